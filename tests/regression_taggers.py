"""Small taggers with every kind of regression, and what they should predict."""

import numpy as np
import torch
import yaml

from jets import CLASSES, make_jets
from partt.data.config.data_config import DataConfig, load_data_config
from partt.data.jagged import Table, take
from partt.data.packing import pack
from partt.data.variables import Variables
from partt.model.tasks import Task, classes_task
from partt.tagger.tagger_file import TorchTagger
from small_networks import make_tagger

TARGETS = {
    "mass": "jet_sdmass",
    "mass_mask": "jet_nparticles > 20",
    "ln_pt": "np.log(jet_pt)",
    "factor": "jet_sdmass / jet_mass",
    "energy": "1000 * jet_energy",
}
MASS = "np.sqrt(np.maximum(jet_energy**2 - (jet_pt * np.cosh(jet_eta))**2, 1))"
TASKS = (
    classes_task(10),
    Task(name="factor", kind="value", target="factor", shift=0.9, scale=0.3, factor_of="jet_mass"),
    Task(name="mass", kind="gaussian", target="mass", shift=80.0, scale=12.0, unit="GeV"),
    Task(name="ln_pt", kind="quantiles", target="ln_pt", quantiles=(0.1, 0.5, 0.75, 0.9), shift=6.0),
    Task(name="energy", kind="value", target="energy", shift=1e6, scale=2e5, unit="MeV", per_class=True,
         num_classes=10),
    Task(name="energy_width", kind="gaussian", target="energy", scale=2e5, per_class="residual",
         num_classes=10),
)  # fmt: skip
PREDICTED = (
    "factor", "mass", "mass_low", "mass_high", "ln_pt", "ln_pt_low", "ln_pt_high", "ln_pt_q75", "energy",
    *(f"energy_{name}" for name in CLASSES), "energy_width", "energy_width_low", "energy_width_high",
    *(f"energy_width_{name}" for name in CLASSES),
)  # fmt: skip
CORRECTED = "jet_mass_corrected"


def config_of_targets(name="jetclass_kin", **labels) -> DataConfig:
    """Return a data config of ten classes and TARGETS, with the jet's mass as a new variable."""
    data = yaml.safe_load(load_data_config(name).to_yaml())
    hybrid = {"type": "hybrid", "value": [f"label_{name}" for name in CLASSES], "value_custom": TARGETS}
    new = data["new_variables"] | {"jet_mass": MASS}
    return DataConfig.model_validate({**data, "new_variables": new, "labels": labels or hybrid})


def regression_tagger(case="pfn", tasks=TASKS, **labels) -> TorchTagger:
    """Return a small tagger with random weights and these tasks."""
    config = config_of_targets(**labels)
    changes = {"labels": config.labels, "new_variables": config.new_variables}
    return make_tagger(case, reference_jets=make_jets(6, seed=2), tasks=tasks, **changes)


def predictions_one_by_one(tagger: TorchTagger, jets: Table) -> dict[str, np.ndarray]:
    """Return what TASKS predict for jets, one jet at a time, by formulas of their own: the slow oracle."""
    rows = []
    for jet in range(len(jets["jet_pt"])):
        own = {name: take(column, np.array([jet])) for name, column in jets.items()}
        variables = Variables(own, tagger.data_config.formulas, "one jet", np.array([jet]))
        with torch.inference_mode():
            outputs = tagger.network(pack(tagger.data_config, variables).inputs)
        values = {name: tensor[0].double().numpy() for name, tensor in outputs.items()}
        rows.append(_in_units(values) | {CORRECTED: _in_units(values)["factor"] * variables["jet_mass"][0]})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _in_units(outputs: dict[str, np.ndarray]) -> dict[str, float]:
    mean, width = 80 + 12 * outputs["mass"][0], 12 * np.exp(outputs["mass"][1]) ** 0.5
    q10, q50, q75, q90 = 6 + outputs["ln_pt"]
    energies = 1e6 + 2e5 * outputs["energy"]
    joint, log_variance, *residuals = outputs["energy_width"]
    energy_width = 2e5 * np.exp(log_variance) ** 0.5
    return {
        "factor": 0.9 + 0.3 * outputs["factor"][0],
        "mass": mean, "mass_low": mean - width, "mass_high": mean + width,
        "ln_pt": q50, "ln_pt_low": q10, "ln_pt_high": q90, "ln_pt_q75": q75,
        "energy": energies[outputs["classes"].argmax()],
        **{f"energy_{name}": energy for name, energy in zip(CLASSES, energies, strict=True)},
        "energy_width": 2e5 * joint,
        "energy_width_low": 2e5 * joint - energy_width,
        "energy_width_high": 2e5 * joint + energy_width,
        **{f"energy_width_{name}": 2e5 * (joint + residual)
           for name, residual in zip(CLASSES, residuals[::2], strict=True)},
    }  # fmt: skip
