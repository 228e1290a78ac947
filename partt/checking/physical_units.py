"""Units of momenta and impact parameters: MeV instead of GeV, cm instead of mm.

Axes: N jets.
"""

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from partt.checking.findings import CheckReport, ValueSummary
from partt.data.jagged import Jagged
from partt.data.jet_batch import JetBatch
from partt.data.training_domain import BEAM_ENERGY
from partt.data.variables import Variables

SOFTEST_JET = 2.0  # GeV: a smaller median pT is in TeV
FINEST_ERROR = 0.007  # mm: no tracker resolves impact parameters better, so a smaller median error is in cm
IMPACT_ERROR = re.compile(r"(d0|dz|dxy|ip).*err", re.IGNORECASE)


@dataclass
class UnitCheck:
    """Median values by file: a network would learn the difference if one file had other units."""

    jet_pt: dict[str, ValueSummary] = field(default_factory=dict)
    impact_errors: dict[tuple[str, str], ValueSummary] = field(default_factory=dict)  # by branch and file

    def add(self, variables: Variables, batch: JetBatch) -> None:
        """Add the values of some jets of one file."""
        if batch.inputs.collections and batch.inputs.main.momenta is not None:
            summary = self.jet_pt.setdefault(variables.url, ValueSummary("jet pT"))
            summary.add(_jet_pt(batch))
        for name, column in variables.branches.items():
            if IMPACT_ERROR.search(name) and isinstance(column, Jagged):
                summary = self.impact_errors.setdefault((name, variables.url), ValueSummary(name))
                summary.add(column.contents[column.contents > 0])

    def report(self, report: CheckReport) -> None:
        """Warn of units that look wrong, once for each branch and unit."""
        wrong: dict[tuple[str, str], list[tuple[str, float]]] = {}
        for url, summary in self.jet_pt.items():
            unit = "MeV" if summary.median > BEAM_ENERGY else "TeV" if summary.median < SOFTEST_JET else None
            if unit:
                text = f"these look like {unit}; partt expects GeV"
                wrong.setdefault(("momenta", text), []).append((url, summary.median))
        for (name, url), summary in self.impact_errors.items():
            if summary.median < FINEST_ERROR:
                wrong.setdefault((name, "this looks like cm; the configs expect mm"), []).append(
                    (url, summary.median)
                )
        for (name, text), found in wrong.items():
            url, median = found[0]
            what = "the median jet pT" if name == "momenta" else "the median"
            report.warn(name, f"{what} is {median:.2g} in {url} ({len(found)} such files): {text}")


def _jet_pt(batch: JetBatch) -> npt.NDArray[np.float64]:
    """Return the transverse momentum (N,) of each jet with particles, in the unit of the file."""
    particles = batch.inputs.main
    momenta = np.empty((0, 4)) if particles.momenta is None else particles.momenta.numpy()
    usable = (particles.lengths > 0).numpy() & ~batch.bad.numpy()
    jet_of_row = np.repeat(np.arange(len(batch)), particles.lengths.numpy())
    px, py = (np.bincount(jet_of_row, momenta[:, axis], len(batch)) for axis in (0, 1))
    return np.asarray(np.hypot(px, py)[usable], dtype=np.float64)
