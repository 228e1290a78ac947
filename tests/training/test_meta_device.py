"""Steps on torch's meta device, in the place of a GPU: nothing waits for it, and nothing is left on the CPU.

`one_device` says what that proves. Numbers are compared nowhere here: the device has none.
"""

import itertools
from dataclasses import replace

import pytest
import torch
from one_device import OneDevice
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from jets import write_jets
from partt.data import jet_batch
from partt.data.config.data_config import load_data_config
from partt.data.jet_batch import JetBatch, ParticleClasses
from partt.data.reading.batches import training_batches
from partt.jet_inputs import sender
from partt.model import grouping
from partt.model.config_types import CLASSES
from partt.model.grouping import GroupSize
from partt.model.network import Network
from partt.model.tasks import Task
from partt.training.averaging import new_average
from partt.training.distributed import World
from partt.training.learner import LossOfBatch, make_learner, restore, snapshot, take_step
from partt.training.objectives import masked_flow, masking
from partt.training.objectives.classification import Classification
from partt.training.objectives.distillation import Distillation
from partt.training.objectives.jet_observables import num_observables
from partt.training.objectives.masked_flow import MaskedFlow
from partt.training.objectives.masked_particles import OF_OBSERVABLES, MaskedParticles
from partt.training.objectives.particle_classification import ParticleClassification
from partt.training.objectives.particle_targets import particle_targets
from partt.training.objectives.regression import Regression
from partt.training.objectives.sum_of_tasks import SumOfTasks, Term
from partt.training.optimizers import make_optimizer, trained_backbone
from partt.training.recipe import MaskedParticlesChoice, OptimizerChoice
from small_networks import ALL, jets_for, small_network
from training_jobs import tiny_job

META = torch.device("meta")
LENGTHS = (0, 5, 5, 12)  # of jets: several groups, some of them padded
NUM_CLASSES = 10


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


def batch_of(case) -> JetBatch:
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


def learner_of(learner, network: Network, objective=None, optimizer="sgd", averages=False):
    """Return the learner of another network and objective, on the meta device."""
    objective = objective or Classification(NUM_CLASSES, label_smoothing=0.1)
    objective.prepare(network)
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


def regression(kind, **settings) -> Regression:
    return Regression(Task(name="mass", kind=kind, target="mass", **settings), "log_cosh", 0)


OBJECTIVES = {
    "distillation": lambda: Distillation(NUM_CLASSES, temperature=2.0, label_weight=0.5),
    "value": lambda: regression("value"),
    "gaussian": lambda: regression("gaussian"),
    "quantiles": lambda: regression("quantiles", quantiles=(0.16, 0.5, 0.84)),
    "per class": lambda: regression("value", num_classes=NUM_CLASSES, per_class="residual"),
    "particles": lambda: ParticleClassification("origin", "pf", 3),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives(learner, name):
    """Each beside classification, on a network that trims, so that some particles have no tokens."""
    case = "part, pf sv"
    terms = {CLASSES: Term(Classification(NUM_CLASSES), 1.0), "other": Term(OBJECTIVES[name](), 0.5)}
    objective = SumOfTasks(terms)
    template = small_network(case, trim=True, num_blocks=1)
    network = Network(template.name, template.backbone, batch_of(case).inputs.shape, objective.heads).float()
    on_meta = learner_of(learner, network, objective)
    take_steps(on_meta, case)
    with torch.inference_mode(), OneDevice():
        measured = objective.eval().measure(network.eval(), batch_of(case).to(META))
    assert {total.device for total in measured.sums.values()} == {META}


@pytest.mark.parametrize("kind", [MaskedParticles, MaskedFlow])
def test_masked_particles(learner, kind):
    case = "part, pf sv"
    choice = MaskedParticlesChoice.model_validate({"decoder": {"width": 16, "num_heads": 4, "num_blocks": 1}})
    observed = num_observables(batch_of(case).inputs.shape.collections["pf"])
    targets = particle_targets(load_data_config("jetclass_full"))
    objective = kind(targets, choice, num_observables=observed)
    template = small_network(case, trim=True, num_blocks=1)
    network = Network(template.name, template.backbone, batch_of(case).inputs.shape, {}).float()
    on_meta = learner_of(learner, network, objective, averages=True)
    take_steps(on_meta, case)
    with torch.inference_mode(), OneDevice():
        measured = objective.eval().measure(network.eval(), batch_of(case).to(META))
    assert OF_OBSERVABLES in measured.sums
    assert {total.device for total in [*measured.sums.values(), *measured.values.values()]} == {META}


@pytest.mark.parametrize("optimizer", ["ranger", "adam", "adamw", "sgd"])
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
    number_put_at_places,
)


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_put_into_a_network_are_found(learner, fault):
    network = small_network("part", num_blocks=1).float()
    network.backbone.norm.register_forward_pre_hook(fault)
    batch = batch_of("part")
    network(batch.inputs)[CLASSES].sum().backward()  # on the CPU there is no fault
    expected = "Meta|meta|nonzero|tensors on cpu and meta|numbers of the host"
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError), match=expected), OneDevice():
        take_step(learner_of(learner, network), iter([batch]), 0, 1e-3, accumulate=1)
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError), match=expected), OneDevice():
        network.eval()(batch.to(META).inputs)


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
