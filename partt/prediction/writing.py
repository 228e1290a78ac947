"""Scores of one input, chunk by chunk -> its output, with every entry accounted for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partt.data.files.tables import inspect_file, write_table
from partt.data.jagged import Table
from partt.data.jet_files import count_jets
from partt.errors import OutputError
from partt.model.tasks import Task
from partt.prediction.opened_files import OpenedFile
from partt.prediction.options import Options
from partt.scores.columns import output_table
from partt.scores.origin import Balance, Origin, Provenance
from partt.scores.scores import Scores


def write_output(
    path: Path,
    file: OpenedFile,
    origin: Origin,
    options: Options,
    chunks: Iterable[Scores],
    *,
    tasks: Sequence[Task],
    network: str,
    tagger_name: str,
    versions: Mapping[str, str],
) -> Provenance:
    """Write the scores of a file; `path` appears only once every entry is accounted for."""
    tally = _Tally(count_jets(file.info), file.info.num_entries if file.jets else 0)

    def tables() -> Iterator[Table]:
        for scores in chunks:
            tally.add(scores)
            yield output_table(scores, options.discriminants)

    def provenance() -> Provenance:
        return Provenance(
            origin=origin,
            balance=tally.balance(),
            rows=tally.rows,
            network=network,
            tagger_name=tagger_name,
            versions=dict(versions),
            tasks=tuple(tasks),
        )

    def note() -> str:
        if not tally.balance().is_even:
            raise OutputError(
                f"{file.info.url}: entries were lost or gained: {tally.balance()}; this is a bug"
            )
        return provenance().model_dump_json()

    rows = write_table(path, tables(), note=note)
    found = inspect_file(str(path)).num_entries
    if not rows == tally.rows == found:
        raise OutputError(f"{path} has {found} entries instead of {tally.rows}; is the disk failing?")
    return provenance()


@dataclass
class _Tally:
    """Counts what is written, and what was left out on purpose."""

    num_jets: int  # of the input
    num_events: int  # 0: every entry is a jet
    rows: int = 0
    scored: int = 0
    bad: int = 0
    not_selected: int = 0

    def add(self, scores: Scores) -> None:
        self.rows += len(scores) if scores.events is None else len(scores.events.offsets) - 1
        self.bad += int(np.count_nonzero(scores.bad))
        self.not_selected += int(np.count_nonzero(~scores.selected)) + scores.num_removed
        self.scored += int(np.count_nonzero(scores.scored))

    def balance(self) -> Balance:
        return Balance(
            events=self.num_events,
            entries=self.num_jets,
            scored=self.scored,
            not_selected=self.not_selected,
            bad=self.bad,
        )
