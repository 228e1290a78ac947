"""From files with several collections and a class number to scores: training, tagger file, prediction."""

import awkward as ak
import numpy as np
import pytest
import torch
import uproot
from kinds_of_configs import make_events, write_events
from torch import Tensor, nn

import partt
from partt.config import Record
from partt.data.config.data_config import load_data_config
from partt.data.jagged import to_awkward
from partt.errors import ConfigError
from partt.jet_inputs import InputShape, JetInputs
from partt.model import registry
from partt.model.grouping import jet_of_row
from partt.model.network import Backbone, Embeddings
from partt.model.registry import NetworkKind, register_network
from partt.tagger.loading import load_tagger
from partt.training.events import Notice
from partt.training.recipe import Recipe

CONFIG = """\
new_variables:
  vertex_mask: ak.ones_like(vertex_pt)
inputs:
  sv_features:
    length: 3
    vars: [vertex_pt, [vertex_mass, 1, 0.5]]
  sv_mask:
    length: 3
    vars: [vertex_mask]
  pf_features:
    length: 12
    vars: [[cand_pt, 10, 0.1], cand_eta]
  pf_mask:
    length: 12
    vars: [cand_is_good]
  jet_features:
    length: 1
    vars: [[jet_pt, 100, 0.01], jet_eta]
labels:
  type: custom
  value:
    truth: is_c + 2 * is_light
"""


class SumsConfig(Record):
    """No settings."""


class Sums(Backbone):
    """The sums of all features over the particles of each collection, and the features of jets."""

    def __init__(self, config: SumsConfig, shape: InputShape) -> None:
        width = sum(item.num_features for item in shape.collections.values()) + sum(
            shape.jet_features.values()
        )
        super().__init__(config, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, inputs: JetInputs, *, with_tokens: bool = False) -> Embeddings:
        del with_tokens
        sums: list[Tensor] = []
        for collection in inputs.collections.values():
            zeros = collection.features.new_zeros(len(inputs), collection.features.shape[1])
            sums.append(zeros.index_add(0, jet_of_row(collection.offsets), collection.features))
        return Embeddings(torch.cat([*sums, *inputs.jet_features.values()], dim=1) * self.scale)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("collections")
    for seed in range(2):
        write_events(path / f"{seed}.root", seed=seed)
    (path / "config.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registered", {})  # not for the tests after these
        register_network("sums", NetworkKind(SumsConfig, Sums))
        yield path


def recipe(folder, name: str = "sums", **changes) -> Recipe:
    return Recipe.model_validate(
        {
            "data_config": str(folder / "config.yaml"),
            "model": {"name": name},
            "optimizer": {"name": "adamw", "lr": 1e-3},
            "batch_size": 40,
            "epochs": 1,
            **changes,
        }
    )


def test_training_prediction_and_events(folder):
    notices = []
    run = partt.train(
        recipe(folder),
        str(folder / "*.root"),
        validation=0.3,
        out=folder / "run",
        cache=folder / "cache",
        num_workers=0,
        device="cpu",
        report=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
    )
    assert any("3 classes are called class_0 to class_2" in text for text in notices)
    tagger = load_tagger(run.tagger)  # its reference jets give the same outputs
    assert tagger.class_names == ("class_0", "class_1", "class_2")
    assert list(tagger.data_config.collections) == ["sv", "pf"]
    assert load_data_config(str(folder / "run" / "data_config.yaml")) == tagger.data_config

    partt.predict(run.tagger, str(folder / "0.root"), folder / "scores")
    with uproot.open(folder / "scores" / "0.root") as file:
        scores = file["tree"].arrays(library="np")
    jets = make_events()
    events = ak.Array(
        {name: to_awkward(column) for name, column in jets.items() if not name.startswith("is_")}
    )
    called = tagger(events)
    for number, name in enumerate(tagger.class_names):
        np.testing.assert_allclose(scores[f"score_{name}"], called[name], rtol=1e-6)
        true = scores[f"label_{name}"] == 1
        assert true.tolist() == ((jets["is_c"] + 2 * jets["is_light"]) == number).tolist()

    two = ak.unflatten(events, [3, 0, 117])  # as lists of jets in events
    np.testing.assert_array_equal(ak.flatten(tagger(two).class_1), called.class_1)


def test_names_of_the_recipe(folder):
    named = recipe(folder, class_names=["b", "c", "light"])
    run = partt.train(
        named, str(folder / "*.root"), validation=0.3, out=folder / "named", num_workers=0, device="cpu"
    )
    assert load_tagger(run.tagger).class_names == ("b", "c", "light")
    (folder / "simple.yaml").write_text(
        CONFIG[: CONFIG.index("labels:")] + "labels: {type: simple, value: [is_b, is_c, is_light]}\n"
    )
    with pytest.raises(ConfigError, match=r"class_names: .*simple.yaml has names of its own"):
        partt.train(
            named.replace(data_config=str(folder / "simple.yaml")), str(folder / "0.root"), validation=0.3
        )


def test_a_network_for_one_collection_refuses_more(folder):
    with pytest.raises(ConfigError, match="PCNN takes one collection of particles, found sv, pf"):
        partt.train(
            recipe(folder, "pcnn"),
            str(folder / "*.root"),
            validation=0.3,
            out=folder / "pcnn",
            num_workers=0,
            device="cpu",
        )
