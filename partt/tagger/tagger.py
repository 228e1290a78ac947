"""The interface of taggers, for torch and onnxruntime."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from partt.data.config.data_config import DataConfig
from partt.data.files.tables import FileInfo
from partt.data.from_awkward import EventJets, jets_of_events
from partt.data.training_domain import Domain
from partt.data.variables import Variables, names_for_index, read_variables, require_branches
from partt.errors import ConfigError
from partt.model.network_file import NetworkFile
from partt.model.tasks import Task
from partt.tagger.inference import Each, TaggedJets, classes_of, sharing_threads

if TYPE_CHECKING:
    import awkward as ak

JETS_AT_ONCE = 8192


class Tagger(ABC):
    """A trained network and the data config of its inputs."""

    data_config: DataConfig
    tasks: tuple[Task, ...]
    """what it predicts: classes, regressions"""
    sha256: str
    """of the contents of the file; empty if it was never saved"""
    library: Literal["torch", "onnxruntime"]
    """the library that runs the network"""
    file_suffix: str
    domain: Domain | None = None
    """which values it was trained on; None: not known"""
    network_file: NetworkFile | None = None
    """the user's own network file, if its network is from one"""
    name: str = ""
    """what its file, its run folder or the shipped tagger is called; empty if it was not loaded"""

    @property
    @abstractmethod
    def network_name(self) -> str:
        """The name of the network, in partt.model.registry."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the scores; empty if it only has regressions."""
        return classes_of(self.data_config, self.tasks)

    @property
    def regressions(self) -> tuple[Task, ...]:
        """The tasks that predict a target."""
        return tuple(task for task in self.tasks if task.is_regression)

    @property
    def factors(self) -> tuple[str, ...]:
        """The variables that targets are factors of."""
        return tuple(dict.fromkeys(task.factor_of for task in self.regressions if task.factor_of))

    @property
    def needed_names(self) -> set[str]:
        """The variables that predictions need: inputs, selection, and what targets are factors of."""
        config = self.data_config
        return {*config.input_names, *self.factors} | names_for_index(config, "predict")

    @property
    def num_networks(self) -> int:
        """How many networks run for each jet."""
        return 1

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The columns that `tag` makes its inputs of, each once: variables, or branches where noted."""
        return self.data_config.input_names

    def require(self, file: FileInfo) -> None:
        """Raise an error if a file lacks branches that predictions need."""
        require_branches(self.data_config, self.needed_names, file)

    def read(self, file: FileInfo, start: int, stop: int, others: Iterable[str] = ()) -> Variables:
        """Read what `tag` needs, and other variables, for a range of entries."""
        return read_variables(self.data_config, {*self.needed_names, *others}, file, start, stop)

    def __repr__(self) -> str:
        """Return what a prompt shows: name, network, and what it predicts."""
        predicted = [
            *([f"{len(self.class_names)} classes"] if self.class_names else []),
            *(task.name for task in self.regressions),
        ] or ["embeddings only"]
        name = f" {self.name!r}" if self.name else ""
        return f"<{type(self).__name__}{name}: {self.network_name}, {', '.join(predicted)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a small table."""
        config = self.data_config
        rows = {
            "Network": self.network_name,
            "Classes": ", ".join(self.class_names),
            "Regressions": ", ".join(task.name for task in self.regressions),
            "Inputs": ", ".join(sorted(config.input_names)),
            "Library": self.library,
            "SHA-256": self.sha256[:12] or "not saved",
        }
        left = "style='text-align:left'"
        cells = "".join(
            f"<tr><th {left}>{escape(key)}</th><td {left}>{escape(value)}</td></tr>"
            for key, value in rows.items()
            if value
        )
        return f"<b>{escape(self.name or type(self).__name__)}</b><table>{cells}</table>"

    @abstractmethod
    def tag(self, variables: Variables, *, with_embeddings: bool = False, each: Each = map) -> TaggedJets:
        """Return scores and predictions of jets; `each` is like `map` and computes the batches."""

    def require_predictions(self) -> None:
        """Raise an error if it predicts nothing."""
        if not self.tasks:
            raise ConfigError(
                f"{self.name or 'the tagger'} was trained without labels, and has no scores: `partt train "
                "--init-from` starts from its weights, and `partt predict --embeddings` writes its embeddings"
            )

    @abstractmethod
    def require_embeddings(self) -> None:
        """Raise an error if there are no embeddings of jets."""

    @abstractmethod
    def move_to(self, device: str) -> None:
        """Use a device from now on: cpu, cuda, cuda:N or auto."""

    @abstractmethod
    def with_hash(self) -> Self:
        """Return the tagger with its hash, even if it was never saved."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the contents of its file."""

    def jets_of(self, events: "ak.Array") -> EventJets:
        """Return the variables that the network needs, of the jets of an awkward array (see `__call__`)."""
        return jets_of_events(self.data_config, self.needed_names, events)

    def __call__(self, events: "ak.Array") -> "ak.Array":
        """Return the scores of jets, one field per class, and the predictions, nested like the jets.

        `events`: an awkward array of jets with lists of particles, or of events with lists of such jets; the
        fields are the branches that the data config needs for its inputs and selection. Predictions of
        regressions have the names of their columns in prediction files. Jets that are not selected, or have
        NaN or infinite inputs, get NaN; so do masked jets (None), and masked events stay masked.
        """
        self.require_predictions()
        jets = self.jets_of(events)
        num_jets = jets.variables.num_jets
        parts = []
        with sharing_threads() as each:
            for start in range(0, max(num_jets, 1), JETS_AT_ONCE):
                some = np.arange(start, min(start + JETS_AT_ONCE, num_jets))
                tagged = self.tag(jets.variables.take(some), each=each)
                scores = dict(zip(self.class_names, tagged.probabilities.T, strict=True))
                parts.append({**scores, **tagged.predictions})
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return jets.nest({name: values.astype(np.float32) for name, values in columns.items()})
