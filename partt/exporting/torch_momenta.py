"""Four-momenta of formulas in torch, for tracing: Cartesian tensors, (N,) per jet or (N, P) per particle."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from partt.data.formulas.column_functions import Function, Value
from partt.data.formulas.four_momenta import OPERANDS_OF_MOMENTA

CARTESIAN = ("px", "py", "pz", "energy")


@dataclass(frozen=True, eq=False)
class TorchMomenta:
    """Four-momenta in Cartesian coordinates, and the coordinates that were given."""

    px: Tensor
    py: Tensor
    pz: Tensor
    energy: Tensor
    given: Mapping[str, Tensor]

    def component(self, name: str) -> Tensor:
        """Return a component by its name in the vector library."""
        name = _SYNONYMS.get(name, name)
        if name in self.given:
            return self.given[name]
        if name in CARTESIAN:
            component: Tensor = getattr(self, name)
            return component
        if name in _COMPONENTS:
            return _COMPONENTS[name](self)
        if name.endswith("2"):
            return self.component(name.removesuffix("2")).square()
        raise TypeError(f"has no component .{name} in an exported file")


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """Return the square root of x^2 + y^2."""
    return (x.square() + y.square()).sqrt()


def _mass(momenta: TorchMomenta) -> Tensor:
    squared = momenta.component("mass2")
    return squared.sign() * squared.abs().sqrt()


def _mass_squared(momenta: TorchMomenta) -> Tensor:
    if "mass" in momenta.given:
        mass = momenta.given["mass"]
        return mass * mass.abs()
    return momenta.energy.square() - momenta.component("p").square()


def _rapidity(momenta: TorchMomenta) -> Tensor:
    return 0.5 * torch.log((momenta.energy + momenta.pz) / (momenta.energy - momenta.pz))


_COMPONENTS: Mapping[str, Callable[[TorchMomenta], Tensor]] = {
    "pt": lambda momenta: hypot(momenta.px, momenta.py),
    "p": lambda momenta: hypot(momenta.component("pt"), momenta.pz),
    "eta": lambda momenta: torch.asinh(momenta.pz / momenta.component("pt")),
    "phi": lambda momenta: torch.atan2(momenta.py, momenta.px),
    "theta": lambda momenta: torch.atan2(momenta.component("pt"), momenta.pz),
    "costheta": lambda momenta: momenta.pz / momenta.component("p"),
    "rapidity": _rapidity,
    "mass": _mass,
    "mass2": _mass_squared,
    "mt": lambda momenta: (momenta.energy.square() - momenta.pz.square()).sqrt(),
    "et": lambda momenta: momenta.energy * momenta.component("pt") / momenta.component("p"),
    "beta": lambda momenta: momenta.component("p") / momenta.energy,
    "gamma": lambda momenta: momenta.energy / momenta.component("mass"),
}
_SYNONYMS: Mapping[str, str] = {
    "x": "px",
    "y": "py",
    "z": "pz",
    "rho": "pt",
    "mag": "p",
    "rho2": "pt2",
    "mag2": "p2",
    "Et": "et",
    "Mt": "mt",
    **dict.fromkeys(("t", "E", "e"), "energy"),
    **dict.fromkeys(("tau", "m", "M"), "mass"),
    **dict.fromkeys(("tau2", "m2", "M2"), "mass2"),
}


# --- from columns -----------------------------------------------------------------------------------------


def from_cartesian(px: Tensor, py: Tensor, pz: Tensor, energy: Tensor) -> TorchMomenta:
    """Combine Cartesian coordinates."""
    return TorchMomenta(px, py, pz, energy, {})


def from_energy(pt: Tensor, eta: Tensor, phi: Tensor, energy: Tensor) -> TorchMomenta:
    """Combine pt, eta, phi, energy."""
    given = {"pt": pt, "eta": eta, "phi": phi}
    return TorchMomenta(pt * phi.cos(), pt * phi.sin(), pt * eta.sinh(), energy, given)


def from_mass(pt: Tensor, eta: Tensor, phi: Tensor, mass: Tensor) -> TorchMomenta:
    """Combine pt, eta, phi, mass."""
    energy = hypot(pt * eta.cosh(), mass)
    given = {"pt": pt, "eta": eta, "phi": phi, "mass": mass}
    return TorchMomenta(pt * phi.cos(), pt * phi.sin(), pt * eta.sinh(), energy, given)


def momenta(function: Callable[..., TorchMomenta]) -> Function:
    """Let a function of four tensors take columns per jet and per particle."""

    def call(*columns: Value) -> TorchMomenta:
        if not all(isinstance(column, Tensor) for column in columns):
            raise TypeError("takes only columns in an exported file")
        per_particle = any(column.ndim == 2 for column in columns)
        return function(
            *(column[:, None] if per_particle and column.ndim == 1 else column for column in columns)
        )

    return call


# --- operations -------------------------------------------------------------------------------------------


def by_component(function: Function, *arguments: Value) -> TorchMomenta:
    """Apply a function of tensors to each Cartesian component of the arguments that are four-momenta."""
    parts: list[Any] = [
        function(*(getattr(value, name) if isinstance(value, TorchMomenta) else value for value in arguments))
        for name in CARTESIAN
    ]
    return from_cartesian(*parts)


def with_momenta(function: Function, on_columns: Function) -> Function:
    """Let an operator, which works on columns, add, subtract and scale four-momenta as well."""

    def call(*arguments: Value) -> Value:
        are_momenta = tuple(isinstance(argument, TorchMomenta) for argument in arguments)
        if not any(are_momenta):
            return on_columns(*arguments)
        if are_momenta not in OPERANDS_OF_MOMENTA.get(function, ()):
            raise TypeError("four-momenta can be added, subtracted and scaled; take a component, such as .pt")
        return by_component(on_columns, *arguments)

    return call


def with_sum(on_columns: Function) -> Function:
    """Let a sum over the particles of each jet, which works on columns, add four-momenta as well."""

    def call(column: Value, axis: int | None = 1, **options: Value) -> Value:
        if isinstance(column, TorchMomenta):
            return by_component(lambda part: on_columns(part, axis, **options), column)
        return on_columns(column, axis, **options)

    return call


def distances(subtract: Function) -> dict[str, Function]:
    """Return the distances between four-momenta; `subtract` aligns values per jet and per particle."""

    def difference(name: str, left: Value, right: Value) -> Tensor:
        if not isinstance(left, TorchMomenta) or not isinstance(right, TorchMomenta):
            raise TypeError("is the distance of two four-momenta")
        result: Tensor = subtract(left.component(name), right.component(name))
        return result

    def delta_eta(left: Value, right: Value) -> Tensor:
        return difference("eta", left, right)

    def delta_phi(left: Value, right: Value) -> Tensor:
        return torch.remainder(difference("phi", left, right) + math.pi, 2 * math.pi) - math.pi

    def delta_r(left: Value, right: Value) -> Tensor:
        return hypot(delta_eta(left, right), delta_phi(left, right))

    return {".deltaeta": delta_eta, ".deltaphi": delta_phi, ".deltaR": delta_r}
