"""The `partt` command without a verb."""

import pytest

from partt.cli.main import VERBS, main
from partt.model.weaver_weights import EXPORTED


def test_without_a_verb_it_lists_the_verbs(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([])
    shown = capsys.readouterr().err
    assert shown.startswith("usage: partt")
    assert all(f"\n    {verb}" in shown for verb in VERBS)
    assert max(map(len, shown.splitlines())) < 90


def test_export_weaver_says_what_it_can_export(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["export-weaver", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert EXPORTED in shown


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_the_terminal(verb, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([verb, "--help"])
    _, _, text = capsys.readouterr().out.partition("\n\n")
    assert [line for line in text.splitlines() if len(line) > 80 and not line.startswith("  ")] == []
    assert text[0].isupper()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["simulat"], "no verb 'simulat' (did you mean 'simulate'?)"),
        (["taggers", "all"], "partt taggers: error: unexpected argument all"),
        (
            ["train", "quick", "--train", "x", "--val-fraction", "0.2", "--treads=3", "--batch-size", "512"],
            "no option --treads (did you mean '--threads'?), --batch-size; keys of the recipe are set like --set",
        ),
        (["predict", "--data-test", "x"], "no option --data-test; docs/how-to/weaver.md"),
        (["taggers", "--all"], "no option --all; see `partt taggers --help`"),
        (["taggers", "--debgu"], "no option --debgu (did you mean '--debug'?)\n"),
    ],
)
def test_an_unknown_word_is_an_error_that_helps(words, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert message in capsys.readouterr().err
