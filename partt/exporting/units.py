"""Units of the inputs of an exported file, as far as they are known."""

import re
from collections.abc import Sequence

from partt.data.config.data_config import DataConfig
from partt.tagger.onnx_inputs import Axes, raw_branches

# end of the name of a branch -> unit; partt's data configs expect GeV and mm
_UNITS = (
    (re.compile(r"(^|_)(px|py|pz|pt|p|e|energy|m|mass)$", re.IGNORECASE), "GeV"),
    (re.compile(r"(^|_)(d0|dz|dxy)(val|err)?$", re.IGNORECASE), "mm"),
    (re.compile(r"phi$", re.IGNORECASE), "rad"),
    (re.compile(r"(eta|rapidity)$", re.IGNORECASE), "1"),
)
_OTHER = "as in training"


def input_units(config: DataConfig, axes: Axes, factors: Sequence[str] = ()) -> dict[str, str]:
    """Return the unit of every input by name."""
    momenta = [item.momenta for item in config.collections.values() if item.momenta is not None]
    in_gev = {group.name for group in momenta}
    in_gev |= {variable.name for group in momenta for variable in group.variables}
    branches = {branch: name for name, branch in raw_branches(config, factors).items()}

    def unit(name: str) -> str:
        if branches.get(name, name) in in_gev:
            return "GeV"
        return _by_name(branches[name]) if name in branches else "1"

    return {name: unit(name) for name in axes}


def _by_name(name: str) -> str:
    return next((unit for ending, unit in _UNITS if ending.search(name)), _OTHER)
