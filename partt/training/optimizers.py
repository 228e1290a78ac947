"""Optimizers: Ranger as published (arXiv:2202.03772), AdamW; which parameters decay, and which are frozen."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from pytorch_optimizer import Ranger
from torch import nn

from partt.errors import ConfigError
from partt.training.recipe import FineTuning, OptimizerChoice

RANGER_BETAS, RANGER_EPS = (0.95, 0.999), 1e-5
ADAMW_BETAS, ADAMW_EPS = (0.9, 0.999), 1e-8
NEVER_DECAYED = "class_token"


@dataclass(frozen=True)
class _Kind:
    """What parameters of one group of the optimizer have in common."""

    decays: bool
    lr_factor: float


def make_optimizer(
    model: nn.Module, choice: OptimizerChoice, fine_tuning: FineTuning | None = None
) -> torch.optim.Optimizer:
    """Return the optimizer of a model's parameters that are not frozen.

    One-dimensional parameters (biases, norms, scales) and the class token do not decay. Each group has a
    `lr_factor`: its learning rate relative to the others.
    """
    fine_tuning = fine_tuning or FineTuning()
    head = head_names(model)
    groups: dict[_Kind, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decays = parameter.ndim > 1 and name != NEVER_DECAYED
        lr_factor = fine_tuning.head_lr_factor if name in head else 1.0
        groups.setdefault(_Kind(decays, lr_factor), []).append(parameter)
    if not groups:
        raise ConfigError("fine_tuning.freeze: every parameter is frozen, so that nothing is left to train")
    options: list[dict[str, Any]] = [
        {
            "params": parameters,
            "weight_decay": choice.weight_decay if kind.decays else 0.0,
            "lr_factor": kind.lr_factor,
        }
        for kind, parameters in groups.items()
    ]
    if choice.name == "adamw":
        betas, eps = choice.betas or ADAMW_BETAS, choice.eps or ADAMW_EPS
        return torch.optim.AdamW(options, lr=choice.lr, betas=betas, eps=eps)
    betas, eps = choice.betas or RANGER_BETAS, choice.eps or RANGER_EPS
    # weaver's Ranger, step by step: no gradient centralisation, and plain momentum in the first steps,
    # where the variance of the second moments is too large to use them.
    optimizer: torch.optim.Optimizer = Ranger(
        options, lr=choice.lr, betas=betas, eps=eps, use_gc=False, degenerated_to_sgd=True
    )
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of all groups."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"]


def head_names(model: nn.Module) -> set[str]:
    """Return the names of the parameters of the last linear layer, which gives the logits."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return {name for name, _ in model.named_parameters() if linear and name.startswith(f"{linear[-1]}.")}


def freeze(model: nn.Module, patterns: tuple[str, ...]) -> int:
    """Keep the parameters that match a shell pattern as they are; return how many numbers that are."""
    frozen: dict[str, nn.Parameter] = {}
    for pattern in patterns:
        matching = dict(_matching(model, pattern))
        if not matching:
            names = sorted({name.split(".")[0] for name, _ in model.named_parameters()})
            raise ConfigError(
                f"fine_tuning.freeze: {pattern!r} matches no parameter; names start with {', '.join(names)}"
            )
        frozen |= matching
    for parameter in frozen.values():
        parameter.requires_grad_(False)
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and own and not own[0].requires_grad:
            module.eval()  # it also keeps what it remembers
    return sum(parameter.numel() for parameter in frozen.values())


def _matching(model: nn.Module, pattern: str) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, item) for name, item in model.named_parameters() if fnmatchcase(name, pattern))
