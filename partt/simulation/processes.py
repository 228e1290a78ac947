"""The ten processes of JetClass as Pythia settings.

Leading order, 13 TeV. The partner of the jet is invisible (Z -> nu nu), except in top pairs.
"""

from dataclasses import dataclass, replace
from typing import Literal

Decay = Literal["none", "two_partons", "four_quarks", "two_quarks_lepton", "b_two_quarks", "b_lepton"]

HIGGS, Z_BOSON, W_BOSON, TOP = 25, 23, 24, 6
NEUTRINOS = (12, 14, 16)

# Masses of MadGraph's default model, where Pythia's differ by more than a few MeV.
COMMON_SETTINGS = (
    "Beams:eCM = 13000.",
    "25:m0 = 125.",
    "6:m0 = 173.",
    "23:onMode = off",
)
INVISIBLE_Z = ("23:onIfAny = 12 14 16",)
HADRONIC_W = ("24:onMode = off", "24:onIfAny = 1 2 3 4 5")
LEPTONIC_W = ("24:onMode = off", "24:onIfAny = 11 13")
EITHER_W = ("24:onMode = off", "24:onIfAny = 1 2 3 4 5 11 13")
HIGGS_AND_Z = ("HiggsSM:ffbar2HZ = on", *INVISIBLE_Z, "25:onMode = off")
# 15 widths around the peak, as in MadGraph; otherwise the tails are long at high pT.
Z_PEAK = ("23:mMin = 53.8", "23:mMax = 128.6")
W_PEAK = ("24:mMin = 49.1", "24:mMax = 111.7")
TOP_PAIR = ("Top:gg2ttbar = on", "Top:qqbar2ttbar = on", "6:mMin = 151.", "6:mMax = 195.", *W_PEAK)


LOWEST_MASS_TO_WW = 45.0  # Pythia has no H -> W*W* below about 40 GeV


@dataclass(frozen=True)
class Process:
    """One class of jets: how it is generated, and the decay that defines it."""

    label: str  # as in label_<label>
    file_prefix: str  # as in <file_prefix>_000.root
    settings: tuple[str, ...]  # of Pythia
    resonance: int  # absolute PDG code of the particle whose decay makes the jet; 0 for QCD
    decay: Decay
    num_neutrinos: int | None = None  # in the hard process; other events are vetoed before the shower
    lowest_mass: float = 0.0  # of the resonance that Pythia can decay, GeV
    mass_range: tuple[float, float] | None = None  # GeV: the resonance's masses are flat in it


PROCESSES = (
    Process(
        "QCD",
        "ZJetsToNuNu",
        (
            "WeakBosonAndParton:qqbar2gmZg = on",
            "WeakBosonAndParton:qg2gmZq = on",
            "WeakZ0:gmZmode = 2",
            *INVISIBLE_Z,
        ),
        resonance=0,
        decay="none",
    ),
    Process("Hbb", "HToBB", (*HIGGS_AND_Z, "25:onIfMatch = 5 -5"), HIGGS, "two_partons"),
    Process("Hcc", "HToCC", (*HIGGS_AND_Z, "25:onIfMatch = 4 -4"), HIGGS, "two_partons"),
    Process("Hgg", "HToGG", (*HIGGS_AND_Z, "25:onIfMatch = 21 21"), HIGGS, "two_partons"),
    Process(
        "H4q",
        "HToWW4Q",
        (*HIGGS_AND_Z, "25:onIfMatch = 24 -24", *HADRONIC_W),
        HIGGS,
        "four_quarks",
        lowest_mass=LOWEST_MASS_TO_WW,
    ),
    Process(
        "Hqql",
        "HToWW2Q1L",
        (*HIGGS_AND_Z, "25:onIfMatch = 24 -24", *EITHER_W),
        HIGGS,
        "two_quarks_lepton",
        num_neutrinos=3,  # two of the Z, one of the leptonic W
        lowest_mass=LOWEST_MASS_TO_WW,
    ),
    Process(
        "Zqq",
        "ZToQQ",
        (
            "WeakDoubleBoson:ffbar2gmZgmZ = on",
            "WeakZ0:gmZmode = 2",
            "23:onIfAny = 1 2 3 4 5 12 14 16",
            *Z_PEAK,
        ),
        Z_BOSON,
        "two_partons",
        num_neutrinos=2,
    ),
    Process(
        "Wqq",
        "WToQQ",
        ("WeakDoubleBoson:ffbar2ZW = on", *INVISIBLE_Z, *HADRONIC_W, *W_PEAK),
        W_BOSON,
        "two_partons",
    ),
    Process("Tbqq", "TTBar", (*TOP_PAIR, *HADRONIC_W), TOP, "b_two_quarks"),
    Process("Tbl", "TTBarLep", (*TOP_PAIR, *LEPTONIC_W), TOP, "b_lepton"),
)

LABELS = tuple(process.label for process in PROCESSES)
BY_LABEL = {process.label: process for process in PROCESSES}


def has_mass_range(process: Process) -> bool:
    """Whether the masses of a class can be drawn from a range: those of H, W and Z bosons."""
    return process.resonance in (HIGGS, W_BOSON, Z_BOSON)


def in_mass_range(process: Process, mass_range: tuple[float, float]) -> Process:
    """Return the process with a resonance of any mass in the range (GeV); QCD and top as they are.

    A wide Breit-Wigner covers the range, roughly as 1 / m; the generator then accepts events so that the
    masses are flat. The range starts at the lowest mass that Pythia can decay, if that is higher.
    """
    if not has_mass_range(process):
        return process
    low, high = max(mass_range[0], process.lowest_mass), mass_range[1]
    peak = min(1.5 * low, (low + high) / 2)
    settings = (
        f"{process.resonance}:m0 = {peak!r}",
        f"{process.resonance}:mWidth = {3 * peak!r}",
        f"{process.resonance}:doForceWidth = on",
        f"{process.resonance}:mMin = {low!r}",
        f"{process.resonance}:mMax = {high!r}",
        "24:offIfAny = 6",  # a heavy W could decay to a top quark
    )
    return replace(process, settings=process.settings + settings, mass_range=(low, high))
