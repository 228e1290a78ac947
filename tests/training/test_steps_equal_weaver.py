"""The same weights, batches and optimizer in weaver-core and partt give the same losses, step by step."""

import pytest
import torch
from torch.nn import functional
from weaver.nn.model.ParticleTransformer import ParticleTransformer as WeaverParticleTransformer
from weaver.utils.nn.optimizer.ranger import Ranger as WeaverRanger

from jets import write_jets
from partt.data.config.data_config import load_data_config
from partt.data.files.lists import InputFile
from partt.data.reading.batches import training_batches
from partt.model.weaver_weights import export_particle_transformer
from partt.training.distributed import World
from partt.training.job import open_job
from partt.training.learner import make_learner, take_step
from training_jobs import tiny_recipe

LENGTH = 12
NUM_STEPS = 20
LR = 1e-3
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


def jets_of_equal_length(config):
    """Return the config with jets cut to the same length, and shorter ones left out."""
    inputs = config.inputs
    groups = {name: group.replace(length=LENGTH) for name, group in inputs.groups.items()}
    return config.replace(inputs=inputs.replace(**groups), selection=f"jet_nparticles >= {LENGTH}")


def weaver_twin(model, num_features):
    settings = {"dropout": 0, "attn_dropout": 0, "activation_dropout": 0}
    twin = WeaverParticleTransformer(
        num_features,
        num_classes=10,
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
    twin.load_state_dict(export_particle_transformer(model.state_dict(), model.config, "0.5"))
    return twin.train()


def weaver_inputs(batch):
    particles, momenta = (
        x.unflatten(0, (-1, LENGTH)).transpose(1, 2)
        for x in (batch.inputs.main.features, batch.inputs.main.momenta)
    )
    return particles, momenta, torch.ones(len(batch), 1, LENGTH, dtype=torch.bool)


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_losses_agree_step_by_step(tmp_path, weight_decay):
    model = {
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
    optimizer = {"name": "ranger", "lr": LR, "weight_decay": weight_decay}
    recipe = tiny_recipe(model=model, optimizer=optimizer, batch_size=32)
    files = [InputFile("", str(write_jets(tmp_path / "jets.root", 400)))]
    job = open_job(recipe, jets_of_equal_length(load_data_config("jetclass_kin")), files, 0.2, seed=1)
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
        ours.append(result.sums["loss"] / result.num_jets)
        loss = functional.cross_entropy(twin(*weaver_inputs(batch)), batch.labels)
        ranger.zero_grad()
        loss.backward()
        ranger.step()
        theirs.append(loss.item())
    assert max(theirs) - min(theirs) > 0.05  # they do move
    assert ours == pytest.approx(theirs, rel=1e-5)
