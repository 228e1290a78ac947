"""The note inside a file of scores: what it was made from, by which tagger; read by reruns and evaluation."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, ValidationError

from partt.config import Record
from partt.data.files.tables import read_note
from partt.model.tasks import Task


class Balance(Record):
    """Where the entries, or the jets of events, of inputs went: entries = scored + not selected + bad."""

    events: int = 0  # 0: every entry is a jet
    entries: int = 0
    scored: int = 0
    not_selected: int = 0
    bad: int = 0

    def __add__(self, other: "Balance") -> "Balance":
        """Add up two balances."""
        return Balance(**{name: getattr(self, name) + getattr(other, name) for name in Balance.model_fields})

    @property
    def is_even(self) -> bool:
        """Whether every entry is accounted for."""
        return self.entries == self.scored + self.not_selected + self.bad

    def __str__(self) -> str:
        """Return the balance in words."""
        what = f"{self.events} events, {self.entries} jets" if self.events else f"{self.entries} entries"
        return f"{what}: {self.scored} scored, {self.not_selected} not selected, {self.bad} bad"


def sum_of(balances: Sequence[Balance]) -> Balance:
    """Add up balances."""
    return sum(balances, Balance())


class Origin(Record):
    """Everything that determines the contents of an output."""

    format_version: int = 1
    input: str
    input_identity: str  # changes when the file changes
    tagger_sha256: str
    class_names: list[str]
    options: dict[str, Any]
    carried: list[str]  # observers, kept branches
    tree: str = ""  # if it was named
    jets: str = ""  # collection of jets, if the rows are events


class Provenance(Record):
    """The note inside an output: its origin, and where the entries of its input went."""

    origin: Origin
    balance: Balance
    rows: int
    network: str = ""  # this and the versions: unknown in files of partt 0.1
    tagger_name: str = ""  # of its file or run folder; unknown in files of partt 0.1
    versions: dict[str, str] = Field(default_factory=dict)
    # what the tagger predicts: classes, regressions; empty in files of older versions, which had only classes
    tasks: Annotated[tuple[Task, ...], Field(strict=False)] = ()

    @property
    def tagger(self) -> str:
        """The tagger, for messages: the beginning of its SHA-256, and its network."""
        return tagger_text(self.origin.tagger_sha256, self.network)


def tagger_text(sha256: str, network: str) -> str:
    """Name a tagger in messages: the beginning of its SHA-256, and its network."""
    return sha256[:12] + (f" ({network})" if network else "")


def read_provenance(url: str) -> Provenance | None:
    """Return the provenance of a file of scores; None if partt did not make it."""
    note = read_note(url)
    try:
        return None if note is None else Provenance.model_validate_json(note)
    except ValidationError:
        return None
