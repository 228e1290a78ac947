"""The PFNano example of docs/how-to/cms_atlas.md gives the same scores as loops over events and jets."""

import re

import awkward as ak
import numpy as np
import torch

from conftest import ROOT
from partt.data.config.data_config import load_data_config
from partt.data.files.tables import inspect_file, read_columns
from partt.data.made_up_jets import made_up_jets
from partt.model.registry import build_network, network_config
from partt.tagger.loading import load_tagger
from partt.tagger.tagger_file import new_tagger, save_tagger
from pfnano import jets_one_by_one, write_pfnano


def test_the_example_of_the_docs(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    network = build_network("part_xs", network_config("part_xs"), 17, 10)
    save_tagger(
        "tagger.safetensors",
        new_tagger("part_xs", network, load_data_config("jetclass_full"), made_up_jets()),
    )
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
