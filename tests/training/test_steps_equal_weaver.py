"""The same weights, batches and optimizer in weaver-core and partt give the same losses, step by step."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional
from weaver.nn.model.ParticleTransformer import ParticleTransformer as WeaverParticleTransformer
from weaver.utils.nn.optimizer.ranger import Ranger as WeaverRanger
from weaver.utils.nn.tools import train_regression

from jets import write_jets
from partt.data.config.data_config import load_data_config
from partt.data.files.lists import InputFile
from partt.data.reading.batches import training_batches
from partt.model.tasks import Task
from partt.model.weaver_weights import export_particle_transformer
from partt.training.distributed import World
from partt.training.job import open_job
from partt.training.learner import make_learner, take_step
from partt.training.objectives.regression import Regression
from training_jobs import tiny_recipe

LENGTH = 12
NUM_STEPS = 20
LR = 1e-3
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
MODEL = {
    "name": "part",
    "settings": {
        **NO_DROPOUT,
        "width": 32,
        "num_heads": 4,
        "num_blocks": 2,
        "num_class_blocks": 1,
        "feed_forward_width": 128,
        "embedding_widths": [32],
        "pair_widths": [16],
    },
}


def jets_of_equal_length(config):
    """Return the config with jets cut to the same length, and shorter ones left out."""
    groups = {name: group.replace(length=LENGTH) for name, group in config.inputs.items()}
    return config.replace(inputs=groups, selection=f"jet_nparticles >= {LENGTH}")


def weaver_twin(model, num_features, head="classes", num_outputs=10):
    settings = {"dropout": 0, "attn_dropout": 0, "activation_dropout": 0}
    twin = WeaverParticleTransformer(
        num_features,
        num_classes=num_outputs,
        use_pre_activation_pair=False,
        embed_dims=(32, 32),
        pair_embed_dims=(16,),
        num_heads=4,
        num_layers=2,
        num_cls_layers=1,
        block_params=settings,
        cls_block_params=settings,
        fc_params=[],
        trim=False,
    )
    weights = {
        name.replace(f"heads.{head}.", "heads.classes."): tensor
        for name, tensor in model.state_dict().items()
    }
    twin.load_state_dict(export_particle_transformer(weights, model.config, "0.5"))
    return twin.train()


def weaver_inputs(batch):
    particles, momenta = (
        x.unflatten(0, (-1, LENGTH)).transpose(1, 2)
        for x in (batch.inputs.main.features, batch.inputs.main.momenta)
    )
    return particles, momenta, torch.ones(len(batch), 1, LENGTH, dtype=torch.bool)


def small_job(folder, optimizer, objective=None):
    recipe = tiny_recipe(model=MODEL, optimizer=optimizer, batch_size=32)
    files = [InputFile("", str(write_jets(folder / "jets.root", 400)))]
    config = jets_of_equal_length(load_data_config("jetclass_kin"))
    return open_job(recipe, config, files, 0.2, seed=1, objective=objective)


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_losses_agree_step_by_step(tmp_path, weight_decay):
    optimizer = {"name": "ranger", "lr": LR, "weight_decay": weight_decay}
    job = small_job(tmp_path, optimizer)
    learner = make_learner(job, World(), torch.device("cpu"))
    twin = weaver_twin(learner.network, num_features=7)
    decayed = [p for name, p in twin.named_parameters() if p.ndim > 1 and name != "cls_token"]
    others = [p for name, p in twin.named_parameters() if p.ndim <= 1 or name == "cls_token"]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    ranger = WeaverRanger(groups, lr=LR)
    ours, theirs = [], []
    for step, batch in zip(
        range(NUM_STEPS), training_batches(job.train, job.train_index, batch_size=32, seed=1), strict=False
    ):
        assert (batch.inputs.main.lengths == LENGTH).all()
        result = take_step(learner, iter([batch]), step, LR, accumulate=1)
        ours.append(float(result.sums["loss"]) / result.num_jets)
        loss = functional.cross_entropy(twin(*weaver_inputs(batch)), batch.labels)
        ranger.zero_grad()
        loss.backward()
        ranger.step()
        theirs.append(loss.item())
    assert max(theirs) - min(theirs) > 0.05  # they do move
    assert ours == pytest.approx(theirs, rel=1e-5)


def with_target(batch):
    """Return the batch with the mass of each jet in units of 100 GeV, from its particles of equal number."""
    momenta = batch.inputs.main.momenta.unflatten(0, (-1, LENGTH)).sum(dim=1).double()
    mass = (momenta[:, 3].square() - momenta[:, :3].square().sum(dim=1)).clamp(min=0).sqrt() / 100
    return replace(batch, targets=mass[:, None].float())


class WeaverLoader(list):
    """Batches as weaver's training loop takes them from its loader."""

    dataset = SimpleNamespace(
        config=SimpleNamespace(input_names=["features", "momenta", "mask"], label_names=["mass"])
    )

    def __init__(self, batches):
        names = self.dataset.config.input_names
        super().__init__(
            (dict(zip(names, weaver_inputs(batch), strict=True)), {"mass": batch.targets[:, 0]}, {})
            for batch in batches
        )


LOSSES = {
    "mse": functional.mse_loss,
    "mae": functional.l1_loss,
    "log_cosh": lambda p, t: torch.log(torch.cosh(p - t)).mean(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_regression_equals_weavers_regression_mode_step_by_step(tmp_path, loss):
    """Against weaver's own `train_regression`."""
    task = Task(name="mass", kind="value", target="mass")
    job = small_job(tmp_path, {"name": "ranger", "lr": LR}, Regression(task, loss, 0))
    learner = make_learner(job, World(), torch.device("cpu"))
    twin = weaver_twin(learner.network, num_features=7, head="mass", num_outputs=1)
    stream = training_batches(job.train, job.train_index, batch_size=32, seed=1)
    batches = [with_target(batch) for _, batch in zip(range(NUM_STEPS), stream, strict=False)]
    ours = []
    for step, batch in enumerate(batches):
        result = take_step(learner, iter([batch]), step, LR, accumulate=1)
        ours.append(result.sums["loss"] / result.sums["known"])
    theirs = []

    def recorded(predictions, targets):
        theirs.append(LOSSES[loss](predictions, targets))
        return theirs[-1]

    options = {"args": SimpleNamespace(use_amp=False, amp_dtype="bf16")}
    ranger = WeaverRanger(twin.parameters(), lr=LR)
    train_regression(
        twin, recorded, ranger, None, WeaverLoader(batches), torch.device("cpu"), 0, extra_args=options
    )
    theirs = [value.item() for value in theirs]
    assert max(theirs) - min(theirs) > 0.05  # they do move
    assert ours == pytest.approx(theirs, rel=1e-4)
