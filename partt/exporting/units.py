"""Units of the inputs of an exported file, as far as they are known."""

import re

from partt.data.config.data_config import DataConfig, branches_to_read
from partt.tagger.onnx_file import NUM_PARTICLES, InputKind, raw_branches

# end of the name of a branch -> unit; partt's data configs expect GeV and mm
_UNITS = (
    (re.compile(r"(^|_)(px|py|pz|pt|p|e|energy|m|mass)$", re.IGNORECASE), "GeV"),
    (re.compile(r"(^|_)(d0|dz|dxy)(val|err)?$", re.IGNORECASE), "mm"),
    (re.compile(r"phi$", re.IGNORECASE), "rad"),
    (re.compile(r"(eta|rapidity)$", re.IGNORECASE), "1"),
)
_OTHER = "as in the files that the tagger was trained on"


def input_units(config: DataConfig, inputs: InputKind) -> dict[str, str]:
    """Return the unit of every input by name."""
    if inputs == "standardised":
        return {name: "GeV" if name == "pf_vectors" else "1" for name in config.inputs}
    momenta = [variable.name for variable in config.momenta.variables] if config.momenta else []
    known = {name: "GeV" for name in branches_to_read(config, momenta) if name in momenta}
    units = {branch: known.get(name) or _by_name(name) for name, branch in raw_branches(config).items()}
    return {NUM_PARTICLES: "1"} | units


def _by_name(name: str) -> str:
    return next((unit for ending, unit in _UNITS if ending.search(name)), _OTHER)
