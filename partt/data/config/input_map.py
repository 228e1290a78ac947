"""Input maps: how the entries of a file of events become jets."""

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from partt.config import KeyFault, Record, load_record, shipped_file, shipped_names
from partt.data.config.sections import FormulaText, Name, Names, Tuple, few, raise_all
from partt.data.formulas.definitions import check_definitions, parse_definitions
from partt.data.formulas.expressions import Formula, parse_formula
from partt.errors import ConfigError

FOLDER = "input_maps"
NONE = "none"  # --input none: the files have one jet per entry, whatever the data config says


class Link(Record):
    """How the particles of a collection belong to jets: by a table, by references or by indices."""

    table: Name | None = None
    """collection with a row for each pair of jet and particle; its branches are variables, too"""
    jet: Name | None = None
    """branch of the table: position of the jet in the event; negative: none"""
    particle: Name | None = None
    """branch of the table: position of the particle; null: row i is particle i"""
    references: Name | None = None
    """branch of the jets with references (TRefArray) to the fUniqueID of particles, as in Delphes"""
    indices: Names = ()
    """branches of the jets, each with the position of one particle; negative: none"""

    @model_validator(mode="after")
    def _check_kind(self) -> "Link":
        kinds = [name for name in ("table", "references", "indices") if getattr(self, name)]
        if len(kinds) != 1:
            raise ValueError("needs one of `table`, `references` and `indices`")
        if self.table is not None and self.jet is None:
            raise KeyFault(("jet",), "this key is needed with `table`")
        if self.table is None and (self.jet is not None or self.particle is not None):
            raise ValueError("`jet` and `particle` are branches of a `table`")
        return self


class ListRule(Record):
    """Which particles a list keeps, and in which order."""

    select: FormulaText | None = None
    """particles for which it is 0 are left out"""
    sort_by: FormulaText | None = None
    """the largest comes first"""


class InputMap(Record):
    """How events become jets: every entry of a collection is a jet, and particles are linked to it."""

    tree: Name | None = None
    """the tree of events; null: that of the data config"""
    jets: Name
    """the collection of jets: branches JETS_pt or JETS.pt, with one value per jet or, as lists of lists, one
    per particle"""
    particles: Annotated[Mapping[Name, Link], BeforeValidator(few)] = Field(default_factory=dict)
    """collection -> how its particles belong to jets"""
    sentinels: Annotated[
        Mapping[Name, Annotated[Tuple[float], Field(min_length=2, max_length=2)]], BeforeValidator(few)
    ] = Field(default_factory=dict)
    """branch -> [the value that means "not measured", the value to use instead]"""
    variables: Annotated[Mapping[Name, FormulaText], AfterValidator(check_definitions), BeforeValidator(few)]
    """variable of jets or particles -> formula of the branches; a dot in a branch becomes _"""
    lists: Annotated[Mapping[Name, ListRule], BeforeValidator(few)] = Field(default_factory=dict)
    """prefix of variables with values per particle (part: part_px, ...) -> which particles, in which order"""

    @cached_property
    def formulas(self) -> Mapping[str, Formula]:
        """The definitions of variables."""
        return parse_definitions(self.variables)

    @cached_property
    def key(self) -> str:
        """The map as text: equal maps have equal keys."""
        return self.model_dump_json()

    @property
    def digest(self) -> str:
        """The collection of jets, and a hash of the whole map."""
        return f"{self.jets} {hashlib.sha256(self.key.encode()).hexdigest()[:12]}"

    def rule_of(self, name: str) -> str | None:
        """Return the prefix in `lists` that a variable has."""
        return next((prefix for prefix in self.lists if name.startswith(f"{prefix}_")), None)

    def names_in(self, prefix: str) -> set[str]:
        """Return the variables that the rule of a list needs."""
        rule = self.lists[prefix]
        texts = [text for text in (rule.select, rule.sort_by) if text is not None]
        return {name for text in texts for name in parse_formula(text).names}

    @model_validator(mode="after")
    def _check_names(self) -> "InputMap":
        raise_all(self._faults())
        return self

    def _faults(self) -> Iterator[KeyFault]:
        for prefix in self.lists:
            if not any(name.startswith(f"{prefix}_") for name in self.variables):
                yield KeyFault(("lists", prefix), f"no variable is called {prefix}_...")


def load_input_map(name_or_path: str) -> InputMap:
    """Load a shipped input map by name, or any by path."""
    return load_record(shipped_file(FOLDER, name_or_path), InputMap)


def shipped_input_map(name: str) -> InputMap:
    """Load a shipped input map: data configs name no files."""
    known = shipped_names(FOLDER)
    if name not in known:
        raise ConfigError(
            f"partt ships no input map {name[:60]!r}; name one of {', '.join(known)}, or write it here"
        )
    return load_input_map(name)


def asked_input_map(asked: InputMap | str | None) -> InputMap | Literal["none"] | None:
    """Return the map that is asked for by name or path; "none": no map, None: that of the data config."""
    if asked is None or isinstance(asked, InputMap):
        return asked
    return "none" if asked == NONE else load_input_map(asked)
