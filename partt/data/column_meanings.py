"""What a column of particles means, by its name: kinematics, particle types, displacements.

A data config has no such notes, and the field's names are few; columns of other names mean nothing here.
"""

import re
from collections.abc import Iterable

KINEMATICS, TYPES, DISPLACEMENTS = "kinematics", "particle types", "displacements"
# ends of names, in lower case; the first match counts
_MEANINGS = {
    DISPLACEMENTS: r"(d0|dz|dxy|sip[23]?d|ip[23]d|d3d|dlen)(val|err|error|sig|significance)?(_\w+)?",
    TYPES: r"(charge|is_?[a-z]+|pid|pdg_?id|particleid)",
    KINEMATICS: r"(p[xyz]|rapidity|mass|d?eta\w*|d?phi\w*|delta_?r|dr|\w*log\w*|pt\w*|e|energy\w*|e_?rel)",
}
KINDS = {
    "electron": r"is_?el(e|ectron)?",
    "muon": r"is_?mu(on)?",
    "photon": r"is_?(photon|gamma)",
    "charged hadron": r"is_?ch(arged)?_?had(ron)?",
    "neutral hadron": r"is_?n(eu|eutral)?_?had(ron)?",
}
CHARGE = r"charge"
FLAG = r"is_?[a-z]+"
DISPLACEMENT = r"(d0val|dxy|d0)"
DISPLACEMENT_ERROR = r"(d0err|dxyerr|d0error|dxyerror)"


def meaning_of(column: str) -> str | None:
    """Return what a column means, by the end of its name."""
    return next((group for group, ends in _MEANINGS.items() if ends_in(column, ends)), None)


def ends_in(column: str, ends: str) -> bool:
    """Tell whether a name, or its part after an underscore, matches an expression."""
    return re.fullmatch(rf"(\w*_)?({ends})", column, re.IGNORECASE) is not None


def find_column(columns: Iterable[str], ends: str) -> str | None:
    """Return the first column whose name ends in an expression; shorter names come first."""
    return next(
        (name for name in sorted(columns, key=lambda name: (len(name), name)) if ends_in(name, ends)), None
    )
