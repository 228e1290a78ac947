"""Network files of our own for tests: in weaver-core's form, with a class of ours or of its own, and in partt's."""

from pathlib import Path

# Everything that a run must keep: dropout of its own by Python's random, and a buffer that no state dict has.
WEAVER = """
import random
from pathlib import Path

import numpy as np
import torch
from torch import nn

with Path(__file__).with_suffix(".ran").open("a") as log:
    log.write("ran\\n")


class Sums(nn.Module):
    def __init__(self, num_features, num_classes, width=8, dropout=0.5):
        super().__init__()
        self.norm = nn.BatchNorm1d(num_features)
        self.each = nn.Sequential(nn.Conv1d(num_features + 6, width, 1), nn.ReLU())
        self.bias = nn.Parameter(torch.zeros(1, width))
        self.last = nn.Linear(width, num_classes)
        self.dropout = dropout
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64), persistent=False)

    def no_weight_decay(self):
        return {"bias"}

    def forward(self, points, features, vectors, mask):
        momenta = torch.log1p(vectors.abs())
        each = self.each(torch.cat((self.norm(features), momenta, points), dim=1)) * mask
        if self.training:
            self.calls += 1
            if self.calls > 3 and random.random() < self.dropout:
                each = each * (1 + np.random.uniform())
        return self.last(each.sum(dim=2) + self.bias)


class ScoresOf(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs).softmax(dim=1)

    def load_state_dict(self, *arguments, **options):
        return self.module.load_state_dict(*arguments, **options)


def get_model(data_config, **options):
    exports = options.pop("for_inference", False)
    model = Sums(len(data_config.input_dicts["pf_features"]), len(data_config.label_value), **options)
    shapes = {name: (1, *shape[1:]) for name, shape in data_config.input_shapes.items()}
    info = {"input_names": list(data_config.input_names), "input_shapes": shapes}
    return (ScoresOf(model) if exports else model), info
"""

LOSS = """

class Focal(nn.Module):
    def forward(self, logits, labels):
        logs = logits.log_softmax(dim=1)[torch.arange(len(labels)), labels]
        return -((1 - logs.exp()) ** 2 * logs).mean()


def get_loss(data_config, **options):
    assert data_config.label_type == "simple"
    return Focal()
"""

PF_SV = """
from weaver.nn.model.ParticleTransformer import ParticleTransformerTagger


def get_model(data_config, **options):
    widths = {name: len(data_config.input_dicts[f"{name}_features"]) for name in ("pf", "sv")}
    sizes = {"num_heads": 2, "num_layers": 2, "num_cls_layers": 1, "embed_dims": [16, 16], "pair_embed_dims": [8]}
    model = ParticleTransformerTagger(
        pf_input_dim=widths["pf"],
        sv_input_dim=widths["sv"],
        num_classes=len(data_config.label_value),
        **{**sizes, **options},
    )
    return model, {"input_names": list(data_config.input_names)}
"""

PARTT = """
import torch
from torch import nn

from partt.config import Record
from partt.model.grouping import jet_of_row
from partt.model.network import Backbone, Embeddings
from partt.model.registry import NetworkKind


class MeansConfig(Record):
    width: int = 8


class Means(Backbone):
    def __init__(self, config, shape):
        super().__init__(config, width=config.width)
        self.each = nn.Linear(self.only_collection(shape).num_features, config.width)

    def forward(self, inputs, *, with_tokens=False):
        particles = inputs.main
        tokens = self.each(particles.features)
        jets = tokens.new_zeros(len(inputs), self.width).index_add(0, jet_of_row(particles.offsets), tokens)
        return Embeddings(jets, tokens if with_tokens else None)


KIND = NetworkKind(MeansConfig, Means)
"""


def write_network(folder: Path, text: str = WEAVER, name: str = "sums.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def times_run(path: Path) -> int:
    """Return how often a file with WEAVER was run."""
    log = path.with_suffix(".ran")
    return len(log.read_text().splitlines()) if log.exists() else 0
