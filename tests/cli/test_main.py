"""What the command says before it knows what to do."""

import pytest

from partt.cli.main import VERBS, main


def test_without_a_verb_it_shows_what_there_is(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([])
    shown = capsys.readouterr().err
    assert shown.startswith("usage: partt")
    assert all(f"\n    {verb}" in shown for verb in VERBS)
    assert max(map(len, shown.splitlines())) < 90
