"""One of every objective, jets with everything that they ask for, and networks with the heads that they need."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import torch
from torch.nn import functional

from partt.data.config.data_config import load_data_config
from partt.data.jet_batch import JetBatch, ParticleClasses
from partt.model.config_types import CLASSES
from partt.model.network import Network
from partt.model.tasks import PerClass, Task
from partt.training.objectives.classification import Classification
from partt.training.objectives.distillation import Distillation
from partt.training.objectives.file_loss import FileLoss
from partt.training.objectives.jet_observables import num_observables
from partt.training.objectives.masked_flow import MaskedFlow
from partt.training.objectives.masked_particles import MaskedParticles
from partt.training.objectives.objective import Objective
from partt.training.objectives.particle_classification import ParticleClassification
from partt.training.objectives.particle_targets import particle_targets
from partt.training.objectives.regression import Regression
from partt.training.objectives.sum_of_tasks import SumOfTasks, Term
from partt.training.recipe import MaskedParticlesChoice, RegressionTask
from small_networks import jets_for, small_network

LENGTHS = (0, 5, 5, 12)  # of jets: several groups, some of them padded
NUM_CLASSES = 10
CASE = "part, pf sv"
KINDS = {"gaussian": "gaussian", "quantile": "quantiles"}  # loss -> kind of the task; other losses: a value
LOSSES = get_args(RegressionTask.model_fields["loss"].annotation)


def batch_of(case: str = CASE) -> JetBatch:
    """Return jets of all lengths with everything that an objective can ask for, on the CPU."""
    inputs, num_jets = jets_for(case, LENGTHS, dtype=torch.float32), len(LENGTHS)
    zeros = torch.zeros(num_jets, dtype=torch.int32)
    origins = {}
    if "pf" in inputs.collections:
        offsets = inputs.collections["pf"].offsets
        origins["origin"] = ParticleClasses(torch.arange(int(offsets[-1])) % 4 - 1, offsets)
    return JetBatch(
        inputs,
        labels=torch.arange(num_jets) % NUM_CLASSES,
        weights=torch.ones(num_jets),
        source_file=zeros,
        source_entry=zeros.long(),
        bad=zeros.bool(),
        num_cut=zeros,
        num_nan=zeros,
        targets=torch.tensor([[1.0], [float("nan")]] * (num_jets // 2)),
        soft_labels=torch.zeros(num_jets, NUM_CLASSES).log_softmax(dim=1),
        particle_labels=origins,
    )


def regression(loss: str = "log_cosh", per_class: PerClass = False) -> Regression:
    return Regression(
        Task(
            name="mass",
            kind=KINDS.get(loss, "value"),
            target="mass",
            quantiles=(0.16, 0.5, 0.84) if loss == "quantile" else (),
            num_classes=NUM_CLASSES if per_class else 0,
            per_class=per_class,
        ),
        loss,
        column=0,
    )


def beside_classes(objective: Objective) -> SumOfTasks:
    terms = {CLASSES: Term(Classification(NUM_CLASSES), 1.0), "other": Term(objective, 0.5)}
    return SumOfTasks(terms)


def masked(kind: type[MaskedParticles]) -> MaskedParticles:
    choice = MaskedParticlesChoice.model_validate({"decoder": {"width": 16, "num_heads": 4, "num_blocks": 1}})
    observed = num_observables(batch_of().inputs.shape.collections["pf"])
    objective = kind(particle_targets(load_data_config("jetclass_full")), choice, num_observables=observed)
    assert objective.has_observables
    return objective


OBJECTIVES: dict[str, Callable[[], Objective]] = {
    "classes": lambda: Classification(NUM_CLASSES, label_smoothing=0.1),
    "own loss": lambda: FileLoss(NUM_CLASSES, functional.cross_entropy, Path("network.py"), has_weights=True),
    "distillation": lambda: Distillation(NUM_CLASSES, temperature=2.0, label_weight=0.5),
    **{loss: lambda loss=loss: beside_classes(regression(loss)) for loss in LOSSES},
    "per class": lambda: beside_classes(regression(per_class=True)),
    "residuals per class": lambda: beside_classes(regression(per_class="residual")),
    "particles": lambda: beside_classes(ParticleClassification("origin", "pf", 3)),
    "masked particles": lambda: masked(MaskedParticles),
    "masked flow": lambda: masked(MaskedFlow),
}


def small_objective(name: str, case: str = CASE) -> tuple[Network, Objective]:
    """Return an objective and a network for it; by default one that trims: some particles have no tokens."""
    objective = OBJECTIVES[name]()
    template = small_network(case, **({"trim": True, "num_blocks": 1} if case == CASE else {}))
    network = Network(template.name, template.backbone, batch_of(case).inputs.shape, objective.heads).float()
    objective.prepare(network)
    return network, objective
