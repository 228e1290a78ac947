"""The PFNano example of docs/how-to/cms_atlas.md gives the same scores as loops over events and jets."""

import re

import awkward as ak
import numpy as np
import torch

from conftest import ROOT
from partt.data.files.tables import inspect_file, read_columns
from partt.tagger.loading import load_tagger
from partt.tagger.tagger_file import save_tagger
from pfnano import jets_one_by_one, write_pfnano
from small_networks import make_tagger


def test_the_example_of_the_docs(tmp_path, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    save_tagger("tagger.safetensors", make_tagger("part_xs", "jetclass_full", neutral=True))
    path = str(write_pfnano(tmp_path / "pfnano.root"))
    text = (ROOT / "docs" / "how-to" / "cms_atlas.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "pfnano" in block]
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102 - our own documentation
    jets = names["jets"]
    assert isinstance(jets, ak.Array)

    columns = read_columns(path, list(inspect_file(path).branches))
    expected = ak.Array(jets_one_by_one(columns))
    assert ak.num(jets).tolist() == columns["FatJet_pt"].lengths.tolist()
    scores = load_tagger("tagger.safetensors")(expected).Hbb
    np.testing.assert_allclose(ak.flatten(jets.score_Hbb), scores, atol=1e-4)
