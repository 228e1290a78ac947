"""Exclusive kT subjets of jets, with fastjet.

Axes: T particles of all jets, P particles of one jet.
"""

import numpy as np
import numpy.typing as npt

from partt.explanation.particle_facts import ParticleFacts

RADIUS = 0.8
NUMBERS = (2, 3, 4)  # of subjets


def has_fastjet() -> bool:
    """Tell whether fastjet is installed."""
    try:
        import fastjet  # noqa: F401, PLC0415 - an optional library
    except ImportError:
        return False
    return True


def find_subjets(facts: ParticleFacts, number: int) -> list[npt.NDArray[np.int64] | None]:
    """Return the subjet (P,) of each particle, the hardest first, by jet; None for jets with too few."""
    import awkward as ak  # noqa: PLC0415 - takes seconds to import
    import fastjet  # noqa: PLC0415 - an optional library
    import fastjet._swig  # noqa: PLC0415

    fastjet._swig.ClusterSequence.set_fastjet_banner_stream(None)  # noqa: SLF001
    large = np.flatnonzero(facts.lengths > number)
    found: list[npt.NDArray[np.int64] | None] = [None] * len(facts.lengths)
    if facts.momenta is None or facts.pt is None or not len(large):
        return found
    rows = np.concatenate([np.arange(facts.offsets[jet], facts.offsets[jet + 1]) for jet in large])
    records = ak.contents.RecordArray(
        [ak.contents.NumpyArray(np.ascontiguousarray(part)) for part in facts.momenta[rows].T],
        ["px", "py", "pz", "E"],
        parameters={"__record__": "Momentum4D"},
    )
    offsets = np.concatenate([[0], np.cumsum(facts.lengths[large])])
    lists = ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), records))
    tree = fastjet.ClusterSequence(lists, fastjet.JetDefinition(fastjet.kt_algorithm, RADIUS))
    members = tree.exclusive_jets_constituent_index(njets=number).to_list()
    for jet, parts in zip(large, members, strict=True):
        pt = facts.pt[facts.offsets[jet] : facts.offsets[jet + 1]]
        numbers = np.full(len(pt), -1)
        for place, part in enumerate(sorted(parts, key=lambda part: -pt[part].sum())):
            numbers[part] = place
        found[jet] = numbers
    return found
