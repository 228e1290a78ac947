"""Labels of a data config: classes, targets of regressions, or both; classes of particles."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from partt.config import KeyFault, Record, did_you_mean
from partt.data.config.sections import FormulaText, GroupName, Name, Names, Tuple, few, raise_all, unique
from partt.jet_inputs import PARTICLES

MASK = "_mask"  # end of the name of a target's mask
# operators in the names of classes that are given by formulas
_WORDS = {"|": "or", "&": "and", "~": "not", "==": "is", "!=": "is_not", ">=": "ge", "<=": "le", ">": "gt",
          "<": "lt", "+": "plus", "-": "minus", "*": "times", "/": "over"}  # fmt: skip

Empty = BeforeValidator(lambda value: {} if value is None else value)
Formulas = Annotated[Mapping[Name, FormulaText], BeforeValidator(few), Empty]
Flags = Annotated[Tuple[FormulaText], AfterValidator(unique)]


def _kind_of_value(value: Any) -> str:
    return "map" if isinstance(value, Mapping) else "list" if isinstance(value, list | tuple) else "text"


class ParticleLabels(Record):
    """A class of each particle of a collection, for a task of the recipe."""

    collection: GroupName = PARTICLES
    """of `inputs`"""
    value: FormulaText
    """variable or formula with a value per particle, the class number; what is no such number (negative, too
    large, NaN) is not known, and does not count"""
    names: Names = Field(min_length=2)
    """the names of the classes, by number"""


class Labels(Record):
    """The classes, by one 0-1 variable each or by their number, and the targets of regressions."""

    type: Literal["simple", "custom", "hybrid"] | None = None
    """simple: classes; custom: formulas by name; hybrid: classes and targets; null: no labels"""
    value: Annotated[
        Annotated[Flags, Tag("list")]
        | Annotated[Formulas, Tag("map")]
        | Annotated[FormulaText | None, Tag("text")],
        Discriminator(_kind_of_value),
    ] = None
    """simple and hybrid: list of 0-1 variables or formulas, exactly one of which is 1 for each jet; a class
    has the name of its variable without label_. custom: name -> formula; with `names`, the first gives the
    class number and the others are targets; without, all are targets. `TARGET_mask` is 0 for jets whose
    target is not known"""
    names: Names | None = None
    """custom: the names of the classes, by number"""
    value_cls_index: FormulaText | None = None
    """simple and hybrid: formula of the class number, instead of a list in `value`"""
    value_cls_names: Names | None = None
    """the names of the classes of value_cls_index, by number"""
    value_custom: Formulas = Field(default_factory=dict)
    """hybrid: target -> formula"""
    split_per_cls: bool = False
    """hybrid, for the forks of weaver: one prediction of each target for each class"""
    particles: Annotated[Mapping[GroupName, ParticleLabels], BeforeValidator(few), Empty] = Field(
        default_factory=dict
    )
    """classes of particles, name -> keys; read only if `tasks.particles` of the recipe has the name; weaver
    ignores them"""

    # --- what the rest of the data layer uses ---

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the network's outputs; empty if there are none."""
        if self.flags:
            return _names_of_flags(self.flags)
        names = self.names or self.value_cls_names or ()
        return names if self.type == "custom" else tuple(name.removeprefix("label_") for name in names)

    @property
    def flags(self) -> tuple[str, ...]:
        """The 0-1 variables or formulas, one for each class."""
        return self.value if isinstance(self.value, tuple) else ()

    @property
    def class_number(self) -> str | None:
        """The variable or formula of the class number, if classes are given by number and have names."""
        if self.type == "custom":
            return next(iter(self._entries)) if self.names else None
        number = self.value if isinstance(self.value, str) else self.value_cls_index
        return number if self.class_names else None

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets of regressions."""
        return tuple(
            name for name in self.definitions if name != self.class_number and not self._is_mask(name)
        )

    @property
    def masks(self) -> Mapping[str, str]:
        """Target -> its mask, where it has one."""
        return {name: f"{name}{MASK}" for name in self.targets if f"{name}{MASK}" in self.definitions}

    @property
    def definitions(self) -> Mapping[str, str]:
        """The formulas that have names, of class number, targets and masks."""
        return self._entries if self.type == "custom" else self.value_custom

    @property
    def nameless_formulas(self) -> tuple[str, ...]:
        """The formulas of 0-1 variables and class numbers; their text is used as name."""
        texts = [*self.flags, self.class_number, *(labels.value for labels in self.particles.values())]
        return tuple(text for text in texts if text is not None and not text.isidentifier())

    def with_names(self, names: Sequence[str]) -> "Labels":
        """Return the labels with names of the classes, whose number is the first entry of custom labels."""
        return self.replace(names=list(names))

    @property
    def _entries(self) -> Mapping[str, str]:
        return self.value if isinstance(self.value, Mapping) else {}

    def _is_mask(self, name: str) -> bool:
        return name.endswith(MASK) and name.removesuffix(MASK) in self.definitions

    # --- checks ---

    @model_validator(mode="before")
    @classmethod
    def _leave_out_foreign_keys(cls, value: Any) -> Any:
        """Leave out keys of other programs, as weaver does, but not misspelt ones."""
        if not isinstance(value, dict):
            return value
        known = list(cls.model_fields)
        return {key: item for key, item in value.items() if key in known or did_you_mean(str(key), known)}

    @model_validator(mode="after")
    def _check_form(self) -> "Labels":
        raise_all(self._faults())
        return self

    def _faults(self) -> Iterator[KeyFault]:
        if self.type is None:
            if self != Labels.model_construct(particles=self.particles):
                yield KeyFault(("type",), "this key is needed: simple, custom or hybrid")
            return
        if self.type == "custom":
            yield from self._custom_faults()
            return
        if self.names is not None:
            yield KeyFault(
                ("names",), "only for type custom: simple labels have the names of their variables"
            )
        if isinstance(self.value, Mapping):
            yield KeyFault(("value",), f"with type {self.type}, should be a list of 0-1 variables")
        if self.value_custom and self.type == "simple":
            yield KeyFault(("value_custom",), "targets need type hybrid, or custom")
        if self.value_cls_index is not None and self.value is not None:
            yield KeyFault(("value_cls_index",), "only if `value` is empty")
        if (self.value_cls_index is None) != (self.value_cls_names is None) and not isinstance(
            self.value, str
        ):
            yield KeyFault(("value_cls_names",), "value_cls_index and value_cls_names are needed together")
        if not isinstance(self.value, Mapping) and not (self.flags or self.value_cls_index or self.value):
            yield KeyFault(("value",), "there must be at least one class")
        if isinstance(self.value, str) and self.value_cls_names is None:
            yield KeyFault(
                ("value",), "a class number needs value_cls_names; 0-1 variables are a list: [is_a, is_b]"
            )
        if self.flags and len(set(self.class_names)) < len(self.class_names):
            yield KeyFault(("value",), "two variables give the same class name, which is without label_")

    def _custom_faults(self) -> Iterator[KeyFault]:
        if not self._entries:
            yield KeyFault(
                ("value",),
                "with type custom, should be name: formula, of the class number or of targets",
            )
        for key in ("value_cls_index", "value_cls_names", "value_custom"):
            if getattr(self, key):
                yield KeyFault((key,), "only for type hybrid")
        first = next(iter(self._entries), "")
        if self.names is not None and not self.names:
            yield KeyFault(("names",), "there must be at least one class")
        if self.names and f"{first}{MASK}" in self._entries:
            yield KeyFault(
                ("value", f"{first}{MASK}"),
                "a class number has no mask: leave these jets out with `selection`",
            )


def _names_of_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the names of classes: variables without label_, formulas in words."""
    names: list[str] = []
    for text in flags:
        name = text.removeprefix("label_")
        if not text.isidentifier():
            number = 1
            name = words = _in_words(text)
            while name in names:
                number += 1
                name = f"{words}_{number}"
        names.append(name)
    return tuple(names)


def _in_words(formula: str) -> str:
    """Return a formula as one word: `(label_a) | (label_b)` is a_or_b."""
    pattern = "|".join(re.escape(sign) for sign in sorted(_WORDS, key=len, reverse=True))
    text = re.sub(pattern, lambda sign: f" {_WORDS[sign[0]]} ", formula)
    words = [word.removeprefix("label_") for word in re.findall(r"\w+", text)]
    return "_".join(words) or "class"


class Targets(Record):
    """Targets as in a fork of weaver (rgerosa/weaver-core): beside `labels`, by name."""

    type: str = "custom"
    """not used"""
    value: Formulas
    """target -> formula"""
    quantile: Annotated[tuple[float, ...], Field(strict=False)] | None = None
    """for the fork; not used: the recipe says what is learned of a target"""
