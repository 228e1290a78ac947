"""Steps on torch's meta device, in the place of a GPU: nothing waits for it, and nothing is left on the CPU.

`one_device` says what that proves. Numbers are compared nowhere here: the device has none.
"""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from one_device import OneDevice
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from jets import write_jets
from partt.data import jet_batch
from partt.data.config.data_config import load_data_config
from partt.data.jagged import num_jets
from partt.data.made_up_jets import made_up_jets
from partt.data.packing import pack
from partt.data.reading.batches import training_batches
from partt.data.variables import Variables
from partt.jet_inputs import sender
from partt.model import grouping
from partt.model.config_types import CLASSES
from partt.model.grouping import GroupSize
from partt.model.network import Network
from partt.model.weaver_network import WeaverModule, WeaverNetwork, WeaverSettings
from partt.tagger.weaver_inputs import weaver_inputs
from partt.training.averaging import new_average
from partt.training.distributed import World
from partt.training.learner import LossOfBatch, make_learner, restore, snapshot, take_step
from partt.training.objectives import masked_flow, masking
from partt.training.objectives.classification import Classification
from partt.training.objectives.objective import Objective
from partt.training.optimizers import make_optimizer, trained_backbone
from partt.training.recipe import OptimizerChoice
from small_networks import ALL, small_network, with_particles
from small_objectives import CASE, LENGTHS, NUM_CLASSES, OBJECTIVES, batch_of, small_objective
from training_jobs import tiny_job

META = torch.device("meta")


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    """Let a few short jets be several groups, with and without padding."""
    monkeypatch.setattr(grouping, "GROUP_SIZE_ELSEWHERE", GroupSize(20, 500, 2))


@pytest.fixture(autouse=True)
def transfers_are_allowed(monkeypatch):
    """Let batches be moved to the device: the one operation of a step with tensors on two."""

    def unwatched(device):
        move = sender(device)

        def moved(tensor):
            with _disable_current_modes():
                return move(tensor)

        return moved

    for module in (jet_batch, masking, masked_flow):
        monkeypatch.setattr(module, "sender", unwatched)


@pytest.fixture(scope="module")
def learner(tmp_path_factory):
    """Return a learner whose network the tests exchange."""
    job = tiny_job(
        write_jets(tmp_path_factory.mktemp("jets") / "jets.root", 200), clip_norm=1.0, ema={"decay": 0.9}
    )
    return make_learner(job, World(), torch.device("cpu"))


def learner_of(learner, network: Network, objective=None, optimizer="sgd", averages=False):
    """Return the learner of another network and objective, on the meta device."""
    objective = objective or Classification(NUM_CLASSES, label_smoothing=0.1)
    both = LossOfBatch(network, objective).to(META).train()
    choice = OptimizerChoice(name=optimizer, lr=1e-3, weight_decay=0.01)
    return replace(
        learner,
        job=replace(learner.job, objective=objective),
        device=META,
        network=network,
        loss_of_batch=both,
        optimizer=make_optimizer(network, choice, others=objective.parameters()),
        backbone=trained_backbone(network),
        average=new_average(both) if averages else None,
    )


def take_steps(learner, case, num_steps=1, accumulate=1) -> None:
    """Take steps, without any operation on two devices."""
    batches = itertools.repeat(batch_of(case))
    with OneDevice() as operations:
        for step in range(num_steps):
            result = take_step(learner, batches, step, 1e-3, accumulate)
    assert operations.num_operations > 100
    assert result.loss.device == result.norm.device == META
    assert {total.device for total in result.sums.values()} == {META}
    parameters = [parameter for parameter in learner.loss_of_batch.parameters() if parameter.requires_grad]
    assert {parameter.device for parameter in parameters} == {META}
    assert all(parameter.grad is not None for parameter in parameters)


@pytest.mark.parametrize("case", ALL)
def test_training_steps(learner, case):
    take_steps(learner_of(learner, small_network(case).float()), case)


@pytest.mark.parametrize("case", ALL)
def test_validation_steps_and_inference(case):
    network, objective = small_network(case).float().to(META).eval(), Classification(NUM_CLASSES)
    with torch.inference_mode(), OneDevice() as operations:
        batch = batch_of(case).to(META)
        measured = objective.measure(network, batch)  # runs the network as predictions do
    assert operations.num_operations > 10
    assert {total.device for total in [*measured.sums.values(), *measured.values.values()]} == {META}
    assert measured.values["probabilities"].shape == (len(LENGTHS), NUM_CLASSES)


def kinds_of(base: type) -> set[type]:
    """Return the classes of partt that are derived from one."""
    found = {kind for kind in base.__subclasses__() if kind.__module__.startswith("partt.")}
    return found.union(*(kinds_of(kind) for kind in found))


def test_every_objective_is_tried():
    tried = {type(part) for name in OBJECTIVES for part in OBJECTIVES[name]().modules()}
    assert kinds_of(Objective) <= tried


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives(learner, name):
    network, objective = small_objective(name)
    on_meta = learner_of(learner, network, objective, averages=True)
    take_steps(on_meta, CASE)
    with torch.inference_mode(), OneDevice():
        measured = objective.eval().measure(network.eval(), batch_of().to(META))
    assert {total.device for total in [*measured.sums.values(), *measured.values.values()]} == {META}


def test_masked_particles_without_momenta():
    inputs = with_particles(batch_of().inputs, momenta=None)
    rows, moved = masking.draw_rows(inputs.main.layout, 0.5, torch.Generator()), inputs.to(META)
    with OneDevice():
        masked = masking.masked_jets(moved, rows)
    assert masked.ranks.device == META


class SumOfGroups(nn.Module):
    """A module as network files have it: of padded input groups."""

    def __init__(self, num_inputs: int, num_outputs: int):
        super().__init__()
        self.linear = nn.Linear(num_inputs, num_outputs)

    def forward(self, *groups):
        return self.linear(torch.cat([group.sum(dim=2) for group in groups], dim=1))


def test_jets_are_padded_for_network_files(learner):
    config = load_data_config("jetclass_full")
    inputs = weaver_inputs(config)
    module = SumOfGroups(sum(len(group.pad_values) for group in inputs.groups), NUM_CLASSES)
    backbone = WeaverModule(WeaverSettings(), Path("network.py"), lambda _: (module, {}), inputs)
    network = WeaverNetwork("network", backbone, config.input_shape, {CLASSES: NUM_CLASSES})
    jets = made_up_jets()
    labels = np.arange(num_jets(jets)) % NUM_CLASSES
    batch = pack(config, Variables(jets, config.formulas, "made up", np.arange(len(labels))), labels=labels)
    on_meta = learner_of(learner, network)
    with OneDevice() as operations:
        take_step(on_meta, iter([batch]), 0, 1e-3, accumulate=1)
    assert operations.num_operations > 50
    with torch.inference_mode(), OneDevice():
        assert network.eval()(batch.to(META).inputs)[CLASSES].shape == (len(batch), NUM_CLASSES)


@pytest.mark.parametrize("optimizer", get_args(OptimizerChoice.model_fields["name"].annotation))
def test_optimizers_and_averages(learner, optimizer):
    network = small_network("pfn").float()
    on_meta = learner_of(learner, network, optimizer=optimizer, averages=True)
    take_steps(on_meta, "pfn", num_steps=7, accumulate=2)  # of which Ranger does something else in the sixth


# --- the tests above fail when a step waits for the device, or uses a tensor of the CPU ---


def item(module, inputs):
    del module
    inputs[0].sum().item()


def condition(module, inputs):
    del module
    if inputs[0].isfinite().all():
        return


def chosen_by_mask(module, inputs):
    del module
    return inputs[0][inputs[0].sum(dim=1) > 0]


def cpu_weight(module, inputs):
    return functional.linear(inputs[0], torch.eye(inputs[0].shape[1]))


def cpu_index(module, inputs):
    return inputs[0][torch.arange(len(inputs[0]))]


def cpu_gather(module, inputs):
    return inputs[0].gather(0, torch.zeros(inputs[0].shape, dtype=torch.int64))


def copy_from_the_host(module, inputs):
    return inputs[0] + torch.ones(inputs[0].shape[1]).to(inputs[0].device)


def numbers_of_the_host(module, inputs):
    return inputs[0] * inputs[0].new_tensor([1.0] * inputs[0].shape[1])


def places_of_the_host(module, inputs):
    return inputs[0][list(range(len(inputs[0])))]


def number_put_at_places(module, inputs):
    changed = inputs[0].clone()
    changed[torch.arange(len(changed), device=changed.device)] = 1.0
    return changed


FAULTS = (
    item,
    condition,
    chosen_by_mask,
    cpu_weight,
    cpu_index,
    cpu_gather,
    copy_from_the_host,
    numbers_of_the_host,
    places_of_the_host,
    number_put_at_places,
)


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_put_into_a_network_are_found(learner, fault):
    network = small_network("part", num_blocks=1).float()
    network.backbone.norm.register_forward_pre_hook(fault)
    batch = batch_of("part")
    network(batch.inputs)[CLASSES].sum().backward()  # on the CPU there is no fault
    on_meta, moved = learner_of(learner, network), batch.to(META)
    expected = "on meta tensors|nonzero|tensors on cpu and meta|numbers of the host"

    def step():
        take_step(on_meta, iter([batch]), 0, 1e-3, accumulate=1)

    def inference():
        network.eval()(moved.inputs)

    for work in (step, inference):
        with pytest.raises((AssertionError, RuntimeError, NotImplementedError), match=expected), OneDevice():
            work()


# --- checkpoints ---


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter.*:UserWarning")
def test_a_checkpoint_continues_on_another_device(learner):
    job = learner.job
    batches = training_batches(job.train, job.train_index, batch_size=16, seed=1)
    take_step(learner, batches, 0, 1e-3, accumulate=1)
    checkpoint = snapshot(learner, {})
    assert {tensor.device.type for tensor in checkpoint.tensors.values()} == {"cpu"}
    elsewhere = make_learner(job, World(), META)
    restore(elsewhere, checkpoint)
    parameters = dict(elsewhere.network.named_parameters())
    states = elsewhere.optimizer.state.values()
    assert {parameter.device for parameter in parameters.values()} == {META}
    assert {value.device for state in states for value in state.values()} == {META}
    assert elsewhere.optimizer.param_groups[0]["step"] == 1
    with OneDevice():
        take_step(elsewhere, batches, 1, 1e-3, accumulate=1)


def test_a_checkpoint_of_a_gpu_continues_on_a_cpu(learner):
    checkpoint = snapshot(learner, {})
    gpu = {"random/0/cuda": torch.zeros(16, dtype=torch.uint8)}
    cpu = make_learner(learner.job, World(), torch.device("cpu"))
    restore(cpu, replace(checkpoint, tensors={**checkpoint.tensors, **gpu}))
    for name, tensor in learner.network.state_dict().items():
        assert torch.equal(cpu.network.state_dict()[name], tensor)
