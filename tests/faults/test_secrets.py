"""Users and tokens in URLs: no verb writes or prints them."""

import threading

import pytest
import yaml
from test_servers import Server

from jets import write_jets
from partt.cli.main import main
from partt.explanation import explanation_page
from prediction_jobs import saved_tagger
from toy_scores import write_scores
from training_jobs import TINY_RECIPE

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("one_figure")]

SECRET = "SECRET"  # noqa: S105
VERBS = {  # words, in which NAME.root stands for a URL with secrets, and the exit code
    "check": ("check jetclass_kin jets.root", 0),
    "check --json": ("check jetclass_kin jets.root --json", 0),
    "check, a file that is missing": ("check jetclass_kin jets.root none.root", 3),
    "train": (
        "train tiny.yaml --train A:jets.root --val more.root --workers 0 --cache cache --seeds 2 --out run",
        0,
    ),
    "predict": ("predict --tagger tagger.safetensors jets.root more.root --out out", 0),
    "predict, a file that is missing": (
        "predict --tagger tagger.safetensors jets.root none.root --on-bad-file skip --max-bad-fraction 0.6",
        0,
    ),
    "evaluate": ("evaluate scores.root --compare other=other.root --out out", 0),
    "explain": ("explain tagger.safetensors jets.root --jets 20 --threads 1 --out out", 0),
    "show": ("show tagger.safetensors jets.root --entry 1 --out out", 0),
}


@pytest.fixture
def server(tmp_path):
    server = Server()
    server.folder = tmp_path / "served"
    server.folder.mkdir()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_writes_or_prints_secrets_of_urls(server, tmp_path, monkeypatch, capfd, verb):
    for name, seed in (("jets", 0), ("more", 1)):
        write_jets(server.folder / f"{name}.root", 60, seed=seed)
    for name, seed in (("scores", 0), ("other", 1)):
        write_scores(server.folder / f"{name}.root", seed=seed, jets_seed=0)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(explanation_page, "draw_figures", lambda _: [])  # they take seconds
    saved_tagger(work / "tagger.safetensors")
    (work / "tiny.yaml").write_text(yaml.safe_dump({**TINY_RECIPE, "epochs": 1, "jets_per_epoch": 32}))

    def with_url(word: str) -> str:
        before, name, after = word.rpartition(next((c for c in "=:" if c in word), "\0"))
        if not after.endswith(".root"):
            return word
        return f"{before}{name}http://me:{SECRET}@127.0.0.1:{server.server_port}/{after}?authz={SECRET}"

    words, code = VERBS[verb]
    assert main([with_url(word) for word in words.split()]) == code
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err
    with_secret = [
        path for path in work.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert with_secret == []
    assert server.requests
