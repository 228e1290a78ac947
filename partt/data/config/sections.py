"""Sections of a data config: weaver's YAML schema, strictly typed."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails

from partt.config import KeyFault, Record
from partt.data.formulas.expressions import Formula, parse_formula
from partt.errors import ConfigError

MAX_NAME = 1000  # characters
MAX_ENTRIES = 10_000  # of a list or mapping

Item = TypeVar("Item")


def few(value: Any) -> Any:
    """Return a list or mapping; raise an error if it is too long, before its entries are validated."""
    if isinstance(value, list | Mapping) and len(value) > MAX_ENTRIES:
        raise ValueError(f"{len(value)} entries; at most {MAX_ENTRIES} are supported")
    return value


def raise_all(faults: Iterable[KeyFault], others: Sequence[InitErrorDetails] = ()) -> None:
    """Raise all faults as one error, if there are any."""
    details = [InitErrorDetails(type="value_error", ctx={"error": fault}, input=None) for fault in faults]
    if others or details:
        raise ValidationError.from_exception_data("config", [*others, *details])


def _tuple(value: Any) -> Any:
    return tuple(few(value)) if isinstance(value, list) else value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names; raise a KeyFault if one is there twice."""
    seen: set[str] = set()
    for position, name in enumerate(names):
        if name in seen:
            raise KeyFault((position,), f"duplicate name {name!r}")
        seen.add(name)
    return names


def _formula(text: str) -> str:
    try:
        parse_formula(text)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return text


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text[:60]!r} is not a regular expression: {error}") from error
    try:
        matches(text, "")
    except ValueError as error:
        raise ValueError(
            f"{text[:60]!r} cannot be matched in bounded time ({error}): use no lookaround, no backreference "
            "and no large repetition"
        ) from error
    return text


def matches(pattern: str, text: str) -> bool:
    """Tell whether a regular expression is found in a text, in a time linear in its length (RE2).

    Python's `re` would backtrack for ever with some patterns.
    """
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    found: bool = pc.match_substring_regex(pa.scalar(readable), pattern).as_py()
    return found


def _bins(edges: tuple[float, ...]) -> tuple[float, ...]:
    if len(edges) < 2:
        raise ValueError("at least two bin edges are needed")
    for position, (low, high) in enumerate(pairwise(edges)):
        if low >= high:
            raise KeyFault((position + 1,), f"bin edges must increase, but {high:g} follows {low:g}")
    return edges


def _check_limits(clip_min: float, clip_max: float) -> None:
    if clip_min >= clip_max:
        raise ValueError(f"clip_min ({clip_min:g}) must be below clip_max ({clip_max:g})")


ShortText = Annotated[str, Field(max_length=MAX_NAME)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
GroupName = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_]+$")]
FormulaText = Annotated[str, AfterValidator(_formula)]
Selection = Annotated[FormulaText | None, BeforeValidator(lambda text: None if text == "" else text)]
Regex = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_regex)]
Tuple = Annotated[tuple[Item, ...], BeforeValidator(_tuple), PlainSerializer(list)]
Names = Annotated[Tuple[Name], AfterValidator(unique)]
NamesOnce = Annotated[
    Tuple[Name],
    AfterValidator(lambda names: tuple(dict.fromkeys(names))),
    BeforeValidator(lambda names: [names] if isinstance(names, str) else [] if names is None else names),
]
Edges = Annotated[Tuple[float], AfterValidator(_bins)]


class Preprocess(Record):
    """Standardisation of inputs: with given numbers, or with numbers fitted to the data."""

    method: Annotated[Literal["manual", "auto"], BeforeValidator(_lower)] = "manual"
    """auto: variables given only by name are fitted, the others keep their numbers"""
    data_fraction: Annotated[
        float, Field(gt=0, le=1), BeforeValidator(lambda value: 0.1 if value is None else value)
    ] = 0.1
    """the fraction of each file, from its first entry, that is used in a fit; null: 0.1"""
    params: Mapping[Name, "Parameters"] | None = None
    """the numbers of all variables, instead of those in `vars`; a fit writes them"""


class Parameters(Record):
    """The numbers of one variable, as in weaver's *.auto.yaml."""

    length: int | None = Field(default=None, ge=1)
    pad_mode: Annotated[Literal["constant", "wrap"], BeforeValidator(_lower)] = "constant"
    """for weaver; partt does not pad"""
    center: float | Literal["auto"] | None = None
    """null: raw; auto: not fitted yet"""
    scale: float = 1
    """(variable - center) * scale, then clipped at min and max"""
    min: float = -5
    max: float = 5
    pad_value: float = 0
    """for weaver; partt does not pad"""

    @model_validator(mode="after")
    def _check_clip(self) -> "Parameters":
        _check_limits(self.min, self.max)
        return self


class Variable(Record):
    """An entry of `vars`: a name, or [name, subtract_by, multiply_by, clip_min, clip_max, pad_value]."""

    name: Name
    """a branch, or one of new_variables"""
    subtract_by: float | None = None
    """null: the variable is neither scaled nor clipped; the numbers after it may be null, too"""
    multiply_by: float = 1
    """(variable - subtract_by) * multiply_by"""
    clip_min: float = -5
    clip_max: float = 5
    """the result is clipped at clip_min and clip_max"""
    pad_value: float = 0
    """value of jets without any, in groups with one value per jet; partt does not pad particles"""
    is_bare: bool = False  # without subtract_by: raw if manual, fitted if auto

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        *keys, _ = cls.model_fields
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not values:
            raise ValueError(f"should be a name or [{', '.join(keys)}], found {value!r}")
        if len(values) > len(keys):
            raise ValueError(f"{len(values)} entries, but there are only {', '.join(keys)}")
        given = dict(zip(keys, values, strict=False))
        if given.get("subtract_by") is None:  # the others are not used
            given = {key: item for key, item in given.items() if key == "subtract_by" or item is not None}
        return {**given, "is_bare": len(values) == 1}

    @model_validator(mode="after")
    def _check_clip(self) -> "Variable":
        _check_limits(self.clip_min, self.clip_max)
        return self

    def as_written(self) -> str | list[Any]:
        """Return the variable as in YAML, without trailing defaults."""
        if self.is_bare:
            return self.name
        *keys, _ = type(self).model_fields
        while len(keys) > 2 and getattr(self, keys[-1]) == type(self).model_fields[keys[-1]].default:
            keys.pop()
        return [getattr(self, key) for key in keys]


class GroupSection(Record):
    """An input group, called COLLECTION_PART; their order is that of the network's inputs.

    The parts of a collection of particles (pf, sv, ...) are `features`; `vectors`: px, py, pz, energy in GeV,
    raw, for pair features; `points`: coordinates, for nearest neighbours; `mask`: one variable, which is 0
    for particles to leave out. Other parts are further blocks of variables. A group of `length` 1 or null
    whose collection has no vectors, points or mask has one value per jet; `pf` has one per particle.
    """

    length: int | None = Field(ge=1)
    """maximum number of particles, after which jets are cut, the same in all groups of a collection; null: no
    limit; 1 or null: one value per jet"""
    pad_mode: Annotated[Literal["constant", "wrap"], BeforeValidator(_lower)] = "constant"
    """for weaver; partt does not pad"""
    vars: Tuple[Variable] = Field(min_length=1)
    """each a name, or [name, subtract_by, multiply_by, clip_min, clip_max, pad_value]"""


class Weights(Record):
    """Weights from branches, or reweighting to flat or equal spectra."""

    use_precomputed_weights: bool = False
    """true: weights from branches, for the loss; false: reweighting"""
    weight_branches: Names = ()
    """the weight of a jet is their product"""
    reweight_method: Literal["flat", "ref"] | None = None
    """flat: flat spectra; ref: the spectrum of the first class of reweight_classes"""
    reweight_vars: Mapping[Name, Edges] = Field(default_factory=dict)
    """variable with one value per jet -> edges of its bins"""
    reweight_classes: Names = ()
    """0-1 variables, one for each class"""
    class_weights: Tuple[Annotated[float, Field(ge=0)]] | None = None
    """relative numbers of jets of the classes, 0 for a class that is left out; null: equal"""
    reweight_threshold: float = Field(default=10, ge=0, le=100)
    """percentage of the bins, those with the fewest jets, in which every jet is kept"""
    reweight_basewgt: Annotated[
        FormulaText | None, BeforeValidator(lambda value: None if value is False else value)
    ] = None
    """formula of the weight of a jet before reweighting; null or false: 1"""
    reweight_discard_under_overflow: bool = True
    """true: jets outside of the bins are left out; false: they belong to the outermost bins"""
    reweight_hists: Mapping[Name, Any] | None = None
    """class -> weights as nested lists, one axis per variable; a fit writes them"""

    @cached_property
    def base_formula(self) -> Formula | None:
        """The formula of the weight of a jet before reweighting, if there is one."""
        return None if self.reweight_basewgt is None else parse_formula(self.reweight_basewgt)

    @model_validator(mode="after")
    def _check_form(self) -> "Weights":
        raise_all(self._faults())
        return self

    def _faults(self) -> Iterator[KeyFault]:
        needed = (
            ["weight_branches"]
            if self.use_precomputed_weights
            else ["reweight_method", "reweight_vars", "reweight_classes"]
        )
        for key in needed:
            if not getattr(self, key):
                state = "true" if self.use_precomputed_weights else "false"
                yield KeyFault((key,), f"this key is needed with use_precomputed_weights: {state}")
        if self.class_weights is not None and len(self.class_weights) != len(self.reweight_classes):
            text = f"{len(self.class_weights)} weights for {len(self.reweight_classes)} reweight_classes"
            yield KeyFault(("class_weights",), text)
        if self.class_weights is not None and not any(self.class_weights):
            yield KeyFault(("class_weights",), "one class at least needs a weight above 0")
        if self.reweight_hists is not None:
            yield from self._hist_faults(self.reweight_hists)

    def _hist_faults(self, hists: Mapping[str, Any]) -> Iterator[KeyFault]:
        if set(hists) != set(self.reweight_classes):
            yield KeyFault(("reweight_hists",), "the keys must be the reweight_classes")
        shape = tuple(len(edges) - 1 for edges in self.reweight_vars.values())
        for name, hist in hists.items():
            try:
                values = np.array(hist, dtype=float)
            except (TypeError, ValueError):
                values = np.full((), math.nan)
            if values.shape != shape or not (np.isfinite(values) & (values >= 0)).all():
                size = " x ".join(map(str, shape))
                text = f"should be nested lists of {size} finite numbers, none negative"
                yield KeyFault(("reweight_hists", name), text)


class Bucketing(Record):
    """Accepted for weaver, and ignored: partt always groups jets by length."""

    var: Name
    bins: int | Tuple[float]
