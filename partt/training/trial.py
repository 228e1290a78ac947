"""A trial of the user's own network on a few jets, before the run folder is made."""

import copy
from dataclasses import replace

import numpy as np
import torch

from partt.data.config.labels import ParticleLabels
from partt.data.jagged import Table, num_jets
from partt.data.jet_batch import JetBatch, ParticleClasses
from partt.data.packing import pack
from partt.data.variables import Variables
from partt.errors import NumericalError
from partt.model.foreign_code import blamed_on
from partt.tagger.tagger_file import new_tagger, reference_outputs
from partt.training.learner import Learner


def try_network_file(learner: Learner, jets: Table) -> None:
    """Take a step and compute scores of a few jets with a copy of a network from a file; errors are raised.

    Weights, buffers and random numbers of the run stay as they are.
    """
    job = learner.job
    if job.network_file is None:
        return
    with blamed_on(job.network_file.path):
        network, objective = copy.deepcopy(learner.network).cpu(), copy.deepcopy(job.objective).cpu()
    config = job.train.config
    places = np.arange(2 * num_jets(jets)) % num_jets(jets)  # a BatchNorm needs two jets or more
    variables = Variables(jets, config.formulas, "training jets", np.arange(num_jets(jets))).take(places)
    labels = (np.arange(len(places)) % max(1, len(config.class_names))).astype(np.int64)
    targets = np.zeros((len(places), len(config.target_names)), dtype=np.float32)
    batch = pack(config, variables, labels=labels, targets=targets)  # inputs of bad jets are 0
    of_particles = {name: _first_class(batch, label) for name, label in config.particle_labels.items()}
    batch = replace(batch, particle_labels=of_particles)
    if job.train.teacher is not None:
        soft_labels = torch.zeros(len(places), len(config.class_names)).log_softmax(dim=1)
        batch = replace(batch, soft_labels=soft_labels)
    with blamed_on(job.network_file.path), torch.random.fork_rng(devices=[]):
        loss = objective(network.train(), batch).loss
        loss.backward()
        outputs = reference_outputs(new_tagger(network, config, jets, network_file=job.network_file))
    if not (loss.isfinite() and all(values.isfinite().all() for values in outputs.values())):
        raise NumericalError(
            f"{job.network_file.path}: the loss or the outputs of the first training jets are NaN or infinite"
        )


def _first_class(batch: JetBatch, labels: ParticleLabels) -> ParticleClasses:
    offsets = batch.inputs.collections[labels.collection].offsets
    return ParticleClasses(torch.zeros(int(offsets[-1]), dtype=torch.int64), offsets)
