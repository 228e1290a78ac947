import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from weaver.train import init_opt
from weaver.utils.nn.optimizer.ranger import Ranger as WeaverRanger

from partt.errors import ConfigError
from partt.training.checkpoints import optimizer_numbers, optimizer_tensors, restore_optimizer
from partt.training.optimizers import freeze, lr_notices, make_optimizer, optimizer_of, set_learning_rate
from partt.training.recipe import FineTuning, OptimizerChoice
from small_networks import small_network


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_ranger_equals_weavers_step_by_step(weight_decay):
    torch.manual_seed(0)
    start = [torch.randn(6, 4), torch.randn(4)]
    ours = nn.ParameterList([nn.Parameter(tensor.clone()) for tensor in start])
    theirs = nn.ParameterList([nn.Parameter(tensor.clone()) for tensor in start])

    def groups(parameters):
        matrix, vector = ({"params": [parameter], "lr_factor": 1.0} for parameter in parameters)
        return [{**matrix, "weight_decay": weight_decay}, {**vector, "weight_decay": 0.0}]

    optimizer = optimizer_of(groups(ours), OptimizerChoice(name="ranger", lr=1e-2))
    reference = WeaverRanger(groups(theirs), lr=1e-2)
    for step in range(60):
        set_learning_rate(optimizer, 1e-2 if step < 40 else 1e-3)
        for group in reference.param_groups:
            group["lr"] = 1e-2 if step < 40 else 1e-3
        for mine, other, scale in zip(ours, theirs, (1.0, 1e-2), strict=True):
            mine.grad = scale * torch.randn(mine.shape)
            other.grad = mine.grad.clone()
        optimizer.step()
        reference.step()
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, rtol=5e-6, atol=1e-6)


def test_one_dimensional_parameters_and_the_class_token_do_not_decay():
    model = small_network()
    optimizer = make_optimizer(model, OptimizerChoice(name="adamw", lr=1e-3, weight_decay=0.1))
    decaying = {id(p) for g in optimizer.param_groups if g["weight_decay"] for p in g["params"]}
    names = {name for name, parameter in model.named_parameters() if id(parameter) in decaying}
    assert all(dict(model.named_parameters())[name].ndim > 1 for name in names)
    assert "backbone.class_token" not in names
    assert "heads.classes.output.weight" in names
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(list(model.parameters()))


def test_the_head_has_its_own_learning_rate():
    model = small_network()
    optimizer = make_optimizer(model, OptimizerChoice(lr=1e-3), FineTuning(head_lr_factor=50.0))
    set_learning_rate(optimizer, 1e-4)
    rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    for name, parameter in model.named_parameters():
        assert rates[id(parameter)] == pytest.approx(5e-3 if name.startswith("heads.") else 1e-4)


def test_freezing_by_pattern():
    model = small_network()
    num_frozen = freeze(model, ("particle_embedding.*", "blocks.*"))
    assert num_frozen == sum(p.numel() for p in model.parameters() if not p.requires_grad) > 0
    assert model.heads["classes"].output.weight.requires_grad
    with pytest.raises(
        ConfigError, match="'bloks.*' matches no parameter; names start with .*backbone.blocks"
    ):
        freeze(model, ("bloks.*",))
    freeze(model, ("*",))
    with pytest.raises(ConfigError, match="nothing is left to train"):
        make_optimizer(model, OptimizerChoice(lr=1e-3))


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        ({"name": "ranger"}, "ranger", {}),
        ({"name": "adamw", "betas": (0.95, 0.999)}, "adamW", {"weight_decay": 0.01}),
        ({"name": "adam"}, "adam", {"weight_decay": 0.01}),
        ({"name": "adam", "betas": (0.8, 0.99), "eps": 1e-3}, "adam", {"betas": (0.8, 0.99), "eps": 1e-3}),
        ({"name": "sgd"}, "SGD", {"weight_decay": 0.01}),
        ({"name": "sgd", "momentum": 0.9}, "SGD", {"momentum": 0.9, "weight_decay": 0.01}),
    ],
    ids=str,
)
def test_steps_equal_those_of_weavers_optimizers(ours, theirs, options):
    """Weaver's own `init_opt`, with its `lr_mult`, takes the same steps with a copy of the network."""
    model = small_network()
    twin = copy.deepcopy(model)
    choice = OptimizerChoice(
        lr=1e-2, weight_decay=options.get("weight_decay", 0.0), lr_factors={r"heads\.": 3.0}, **ours
    )
    optimizer = make_optimizer(model, choice)
    settings = SimpleNamespace(
        start_lr=1e-2, optimizer=theirs, lr_finder=None, load_epoch=None, lr_scheduler="none"
    )
    twin.no_weight_decay = lambda: {"backbone.class_token"}
    reference, _ = init_opt(settings, twin, lr_mult=(r"heads\.", 3.0), **options)
    for step in range(10):
        set_learning_rate(optimizer, 1e-2)
        for number, (mine, other) in enumerate(zip(model.parameters(), twin.parameters(), strict=True)):
            generator = torch.Generator().manual_seed(100 * step + number)
            mine.grad = torch.randn(mine.shape, generator=generator, dtype=mine.dtype)
            other.grad = mine.grad.clone()
        optimizer.step()
        reference.step()
        for (name, mine), other in zip(model.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-8, msg=name)


def test_learning_rates_by_pattern():
    model = small_network()
    factors = {r"blocks\.1\.": 0.5, "blocks": 0.1, "heads": 10.0}
    choice = OptimizerChoice(lr=1e-3, lr_factors=factors)
    optimizer = make_optimizer(model, choice, FineTuning(head_lr_factor=2.0))
    set_learning_rate(optimizer, 1e-3)
    rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    expected = {"backbone.blocks.0": 1e-4, "backbone.blocks.1": 5e-4, "heads.classes": 2e-2}
    for name, parameter in model.named_parameters():
        known = next((rate for start, rate in expected.items() if name.startswith(start)), 1e-3)
        assert rates[id(parameter)] == pytest.approx(known), name
    assert lr_notices(model, choice)[2] == (
        "optimizer.lr_factors: 'heads' multiplies the learning rate of 2 tensors with 170 parameters by 10"
    )
    for pattern in ("haeds", "weight"):  # a pattern matches the beginning of a name
        with pytest.raises(
            ConfigError, match=f"lr_factors: '{pattern}' matches no .*names start with .*heads"
        ):
            make_optimizer(model, OptimizerChoice(lr=1e-3, lr_factors={pattern: 2.0}))


@pytest.mark.parametrize("name", ["ranger", "adamw", "adam", "sgd"])
def test_a_restored_optimizer_goes_on_exactly(name):
    def train(model, optimizer, steps):
        for step in steps:
            for number, parameter in enumerate(model.parameters()):
                generator = torch.Generator().manual_seed(100 * step + number)
                parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            optimizer.step()

    momentum = 0.9 if name == "sgd" else 0.0
    choice = OptimizerChoice(name=name, lr=1e-2, weight_decay=0.01, momentum=momentum)
    whole = small_network()
    train(whole, make_optimizer(whole, choice), range(20))
    first, second = small_network(), small_network()
    before = make_optimizer(first, choice)
    train(first, before, range(8))
    second.load_state_dict(first.state_dict())
    after = make_optimizer(second, choice)
    restore_optimizer(after, optimizer_tensors(before), optimizer_numbers(before))
    train(second, after, range(8, 20))
    for mine, other in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine, other)
