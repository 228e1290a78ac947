import pytest
import torch
from torch import nn
from weaver.utils.nn.optimizer.ranger import Ranger as WeaverRanger

from partt.errors import ConfigError
from partt.training.checkpoints import optimizer_numbers, optimizer_tensors, restore_optimizer
from partt.training.optimizers import freeze, make_optimizer, optimizer_of, set_learning_rate
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


@pytest.mark.parametrize("name", ["ranger", "adamw"])
def test_a_restored_optimizer_goes_on_exactly(name):
    def train(model, optimizer, steps):
        for step in steps:
            for number, parameter in enumerate(model.parameters()):
                generator = torch.Generator().manual_seed(100 * step + number)
                parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            optimizer.step()

    choice = OptimizerChoice(name=name, lr=1e-2, weight_decay=0.01)
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
