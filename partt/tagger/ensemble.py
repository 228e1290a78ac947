"""Several taggers as one: the mean of their log-probabilities, renormalised, and of their regressions.

Members may have different networks and inputs; their classes, in any order, and regressions must be the same.

Axes: N jets, C classes.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from partt.data.config.data_config import DataConfig
from partt.data.files.tables import FileInfo
from partt.data.from_awkward import EventJets
from partt.data.jet_batch import Positions
from partt.data.variables import Variables
from partt.errors import ConfigError, DataError
from partt.model.tasks import Task
from partt.tagger.inference import Each, TaggedJets, log_probabilities
from partt.tagger.tagger import Tagger

if TYPE_CHECKING:
    import awkward as ak

    from partt.model.network_file import NetworkFile

SUFFIX = ".safetensors"


class MembersVariables(Variables):
    """The variables of the first member, with those of all members: equal names may mean different things."""

    def __init__(self, of_members: Sequence[Variables]) -> None:
        first = of_members[0]
        super().__init__(first.branches, first.formulas, first.url, first.entries)
        self.of_members = tuple(of_members)

    def take(self, jets: Positions) -> "MembersVariables":
        """Return the given jets."""
        taken = {id(variables): variables.take(jets) for variables in self.of_members}
        return MembersVariables([taken[id(variables)] for variables in self.of_members])


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble(Tagger):
    """Taggers whose predictions are averaged; data config, classes and regressions are those of the first."""

    members: tuple[Tagger, ...]
    name: str = ""

    file_suffix = SUFFIX

    @property
    def data_config(self) -> DataConfig:  # type: ignore[override]
        """The data config of the first member."""
        return self.members[0].data_config

    @property
    def tasks(self) -> tuple[Task, ...]:  # type: ignore[override]
        """The tasks of the first member."""
        return self.members[0].tasks

    @property
    def sha256(self) -> str:  # type: ignore[override]
        """A hash of the hashes of all members, in order: a list and a file of the same members share it."""
        return hashlib.sha256(" ".join(member.sha256 for member in self.members).encode()).hexdigest()

    @property
    def library(self) -> str:  # type: ignore[override]
        """The library that runs the networks; torch if there are both."""
        return "torch" if any(member.library == "torch" for member in self.members) else "onnxruntime"

    @property
    def network_file(self) -> "NetworkFile | None":  # type: ignore[override]
        """The network file of the members that need one."""
        return next((member.network_file for member in self.members if member.network_file), None)

    @property
    def network_name(self) -> str:
        """The names of all networks."""
        counts = Counter(member.network_name for member in self.members)
        names = [f"{count} x {name}" if count > 1 else name for name, count in counts.items()]
        return f"ensemble of {', '.join(names)}"

    @property
    def num_networks(self) -> int:
        """The number of members."""
        return len(self.members)

    def require(self, file: FileInfo) -> None:
        """Raise an error if a file lacks branches that a member needs."""
        for member in self._readers:
            member.require(file)

    def read(self, file: FileInfo, start: int, stop: int, others: Iterable[str] = ()) -> Variables:
        """Read what all members need, and other variables of the first."""
        first, *rest = self._readers
        found = [first.read(file, start, stop, others), *(one.read(file, start, stop) for one in rest)]
        return self._joined(found)

    def jets_of(self, events: "ak.Array") -> EventJets:
        """Return what all members need of the jets of an awkward array."""
        found = [member.jets_of(events) for member in self._readers]
        if any(len(one.variables.entries) != len(found[0].variables.entries) for one in found):
            raise DataError("the members of the ensemble find different numbers of jets in the events")
        return EventJets(self._joined([one.variables for one in found]), found[0].counts)

    def tag(self, variables: Variables, *, with_embeddings: bool = False, each: Each = map) -> TaggedJets:
        """Return the means over the members; NaN if a jet is bad, or not selected, for one of them."""
        if with_embeddings:
            self.require_embeddings()
        if isinstance(variables, MembersVariables):
            inputs = variables.of_members
        elif len(self._readers) == 1:
            inputs = (variables,) * len(self.members)
        else:
            raise ConfigError("members with different data configs need what `read` or `jets_of` gives")
        found = [member.tag(part, each=each) for member, part in zip(self.members, inputs, strict=True)]
        logs = np.zeros((variables.num_jets, len(self.class_names)))
        for member, tagged in zip(self.members, found, strict=True):
            columns = [member.class_names.index(name) for name in self.class_names]
            logs += log_probabilities(tagged.probabilities[:, columns]) / len(found)
        probabilities = np.exp(logs - logs.max(axis=1, keepdims=True, initial=-np.inf))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        predictions = {
            name: np.mean([tagged.predictions[name] for tagged in found], axis=0)
            for name in found[0].predictions
        }
        selected = np.all([tagged.selected for tagged in found], axis=0)
        bad = selected & np.any([tagged.bad for tagged in found], axis=0)
        return TaggedJets(probabilities, predictions, None, selected, bad)

    def require_embeddings(self) -> None:
        """Raise an error: the members' embeddings have nothing in common."""
        raise ConfigError("an ensemble has no embeddings: use one of its taggers")

    def move_to(self, device: str) -> None:
        """Use a device for all members."""
        for member in self.members:
            member.move_to(device)

    def with_hash(self) -> Self:
        """Return the ensemble with hashes of all members."""
        return replace(self, members=tuple(member.with_hash() for member in self.members))

    def to_bytes(self) -> bytes:
        """Return the contents of its file."""
        from partt.tagger.ensemble_file import ensemble_bytes  # noqa: PLC0415 - which imports this module

        return ensemble_bytes(self)

    @property
    def _readers(self) -> list[Tagger]:
        """One member for each data config, the first of all first."""
        readers: dict[tuple[str, frozenset[str]], Tagger] = {}
        for member in self.members:
            readers.setdefault(_reading(member), member)
        return list(readers.values())

    def _joined(self, found: Sequence[Variables]) -> MembersVariables:
        """Return the variables of all members, from those of the readers."""
        by_reading = dict(zip(map(_reading, self._readers), found, strict=True))
        return MembersVariables([by_reading[_reading(member)] for member in self.members])


def make_ensemble(members: Sequence[Tagger]) -> Ensemble:
    """Return several taggers as one; members that are ensembles are replaced by their own."""
    parts: list[Tagger] = []
    for member in members:
        parts += member.members if isinstance(member, Ensemble) else [member]
    first = parts[0]
    first.require_predictions()
    for number, member in enumerate(parts[1:], 2):
        if sorted(member.class_names) != sorted(first.class_names):
            raise ConfigError(
                f"an ensemble needs taggers of the same classes: the first has "
                f"{', '.join(first.class_names) or 'none'}; number {number} has "
                f"{', '.join(member.class_names) or 'none'}"
            )
        if _meanings(member) != _meanings(first):
            names = [", ".join(task.name for task in one.regressions) or "none" for one in (first, member)]
            raise ConfigError(
                f"an ensemble needs taggers of the same regressions, with the same keys: the first has "
                f"{names[0]}; number {number} has {names[1]}"
            )
    return Ensemble(tuple(parts))


def _meanings(tagger: Tagger) -> list[Task]:
    """Return what regressions predict; shift and scale are inside the network."""
    return sorted(
        (task.replace(shift=0.0, scale=1.0) for task in tagger.regressions), key=lambda task: task.name
    )


def _reading(tagger: Tagger) -> tuple[str, frozenset[str]]:
    """Return what decides the variables that a tagger reads."""
    return tagger.data_config.to_yaml(), frozenset(tagger.needed_names)
