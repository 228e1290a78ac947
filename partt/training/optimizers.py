"""Optimizers: Ranger as published (arXiv:2202.03772) and torch's; parameter groups; frozen parameters."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from partt.data.config.sections import matches
from partt.errors import ConfigError
from partt.model.network import Network
from partt.training.recipe import FineTuning, OptimizerChoice

RANGER_BETAS, RANGER_EPS = (0.95, 0.999), 1e-5
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class _Kind:
    """Settings of a parameter group of the optimizer."""

    decays: bool
    lr_factor: float
    is_backbone: bool = False  # whose learning rate has a factor that depends on the step


def make_optimizer(
    network: Network,
    choice: OptimizerChoice,
    fine_tuning: FineTuning | None = None,
    others: Iterable[nn.Parameter] = (),
) -> torch.optim.Optimizer:
    """Return the optimizer of a network's parameters that are not frozen, and of other parameters.

    Weight decay excludes one-dimensional parameters (biases, norms, scales) and `no_weight_decay` of the
    backbone. `lr_factor` of a parameter group multiplies its learning rate.
    """
    fine_tuning = fine_tuning or FineTuning()
    last_layers = set().union(*network.last_layers.values())
    matching = matching_parameters(network, choice)
    catches_up = bool(fine_tuning.freeze_steps or fine_tuning.catch_up_steps)
    never = {f"backbone.{name}" for name in network.backbone.no_weight_decay}
    groups: dict[_Kind, list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        decays = parameter.ndim > 1 and name not in never
        lr_factor = fine_tuning.head_lr_factor if name in last_layers else 1.0
        lr_factor *= next((choice.lr_factors[key] for key, names in matching.items() if name in names), 1.0)
        kind = _Kind(decays, lr_factor, catches_up and name.startswith("backbone."))
        groups.setdefault(kind, []).append(parameter)
    for parameter in others:
        groups.setdefault(_Kind(parameter.ndim > 1, 1.0), []).append(parameter)
    if not groups:
        raise ConfigError("fine_tuning.freeze: all parameters are frozen, so nothing is left to train")
    options: list[dict[str, Any]] = [
        {
            "params": parameters,
            "weight_decay": choice.weight_decay if kind.decays else 0.0,
            "lr_factor": kind.lr_factor,
            "is_backbone": kind.is_backbone,
        }
        for kind, parameters in groups.items()
    ]
    return optimizer_of(options, choice)


def optimizer_of(options: list[dict[str, Any]], choice: OptimizerChoice) -> torch.optim.Optimizer:
    """Return the optimizer of parameter groups."""
    if choice.name == "sgd":
        return torch.optim.SGD(options, lr=choice.lr, momentum=choice.momentum)
    if choice.name != "ranger":
        kind = torch.optim.AdamW if choice.name == "adamw" else torch.optim.Adam
        betas, eps = choice.betas or ADAM_BETAS, choice.eps or ADAM_EPS
        return kind(options, lr=choice.lr, betas=betas, eps=eps)
    from pytorch_optimizer import Ranger  # noqa: PLC0415 - takes a second to import

    betas, eps = choice.betas or RANGER_BETAS, choice.eps or RANGER_EPS
    # The same steps as weaver's Ranger: no gradient centralisation, and plain momentum in the first steps,
    # where the variance of the second moments is too large to use them.
    optimizer: torch.optim.Optimizer = Ranger(
        options, lr=choice.lr, betas=betas, eps=eps, use_gc=False, degenerated_to_sgd=True
    )
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float, backbone_factor: float = 1.0) -> None:
    """Set the learning rate of all parameter groups; the factor counts if the backbone has its own groups."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"] * (backbone_factor if group.get("is_backbone") else 1.0)


def matching_parameters(network: Network, choice: OptimizerChoice) -> dict[str, dict[str, nn.Parameter]]:
    """Return, for each pattern of `lr_factors`, the trained parameters whose names start with a match.

    The prefix `backbone.` may be left out. A pattern without a match is an error.
    """
    found = {}
    for pattern in choice.lr_factors:
        found[pattern] = {
            name: parameter
            for name, parameter in network.named_parameters()
            if parameter.requires_grad
            and any(matches(f"^(?:{pattern})", start) for start in (name, name.removeprefix("backbone.")))
        }
        if not found[pattern]:
            raise _no_match("optimizer.lr_factors", pattern, network, "parameter that is trained")
    return found


def lr_notices(network: Network, choice: OptimizerChoice) -> list[str]:
    """Return what `lr_factors` match, for the user."""
    return [
        f"optimizer.lr_factors: {pattern!r} multiplies the learning rate of {len(found)} tensors with "
        f"{sum(parameter.numel() for parameter in found.values()):,} parameters by "
        f"{choice.lr_factors[pattern]:g}"
        for pattern, found in matching_parameters(network, choice).items()
    ]


def freeze(network: Network, patterns: tuple[str, ...]) -> int:
    """Freeze the parameters whose names match a shell pattern; return how many numbers they have.

    The prefix `backbone.` may be left out.
    """
    frozen: dict[str, nn.Parameter] = {}
    for pattern in patterns:
        matching = {
            name: parameter
            for name, parameter in network.named_parameters()
            if fnmatchcase(name, pattern) or fnmatchcase(name.removeprefix("backbone."), pattern)
        }
        if not matching:
            raise _no_match("fine_tuning.freeze", pattern, network, "parameter")
        frozen |= matching
    for parameter in frozen.values():
        parameter.requires_grad_(False)
    for module in network.modules():
        own = list(module.parameters(recurse=False))
        if isinstance(module, BATCH_NORMS) and own and not own[0].requires_grad:
            module.eval()  # keeps its running statistics
    return sum(parameter.numel() for parameter in frozen.values())


@dataclass(frozen=True, eq=False)
class TrainedBackbone:
    """What of the backbone is trained; it can be held fixed for some steps."""

    parameters: tuple[nn.Parameter, ...]
    norms: tuple[nn.Module, ...]  # BatchNorms

    def hold(self, *, is_held: bool, needs_gradients: bool) -> None:
        """Keep running statistics as they are, or not; compute no gradients that nobody needs."""
        for module in self.norms:
            module.train(not is_held)
        for parameter in self.parameters:
            parameter.requires_grad_(not is_held or needs_gradients)

    def forget_gradients(self) -> None:
        """Remove gradients, so that an optimizer leaves parameters and their moments alone."""
        for parameter in self.parameters:
            parameter.grad = None


def trained_backbone(network: Network) -> TrainedBackbone:
    """Return what of a backbone is trained, after `freeze`."""
    modules = network.backbone.modules()
    return TrainedBackbone(
        tuple(parameter for parameter in network.backbone.parameters() if parameter.requires_grad),
        tuple(module for module in modules if isinstance(module, BATCH_NORMS) and module.training),
    )


def _no_match(key: str, pattern: str, network: Network, kind: str) -> ConfigError:
    names = sorted({".".join(name.split(".")[:2]) for name, _ in network.named_parameters()})
    return ConfigError(f"{key}: {pattern!r} matches no {kind}; names start with {', '.join(names)}")
