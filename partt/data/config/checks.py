"""Checks of data configs across sections, and what a variable of `inputs` means."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from partt.config import KeyFault, did_you_mean
from partt.data.config.input_groups import MASK, VECTORS, InputVariable, by_collection, split_name
from partt.data.config.labels import ParticleLabels
from partt.data.config.sections import GroupSection, Preprocess, Variable
from partt.data.formulas.definitions import check_definitions


def resolved(variable: Variable, preprocess: Preprocess) -> InputVariable:
    """Combine `vars`, `preprocess.method` and `preprocess.params` of a variable."""
    exempt = variable.name.endswith("_mask")
    if preprocess.params is not None:
        numbers = preprocess.params[variable.name]
        to_fit = numbers.center == "auto" and not exempt
        center = None if isinstance(numbers.center, str) else numbers.center
        return InputVariable(
            variable.name, center, numbers.scale, numbers.min, numbers.max, numbers.pad_value, to_fit
        )
    return InputVariable(
        variable.name,
        variable.subtract_by,
        variable.multiply_by,
        variable.clip_min,
        variable.clip_max,
        variable.pad_value,
        to_fit=variable.is_bare and preprocess.method == "auto" and not exempt,
    )


def faults_across(sections: Mapping[str, Any]) -> Iterator[KeyFault]:
    """Yield the faults that more than one section makes; sections that are not valid are left out."""
    if "inputs" in sections:
        yield from _input_faults(sections["inputs"], sections.get("preprocess") or Preprocess())
    if "labels" in sections and "new_variables" in sections:
        definitions = sections["labels"].definitions
        try:
            check_definitions({**sections["new_variables"], **definitions})
        except KeyFault as fault:
            yield KeyFault(("labels", "value"), f"{fault.path[0]} {fault}")
    if "labels" in sections and "inputs" in sections:
        collections = by_collection({name: group.length for name, group in sections["inputs"].items()})
        yield from _particle_label_faults(sections["labels"].particles, list(collections))


def _particle_label_faults(
    labels: Mapping[str, ParticleLabels], collections: Sequence[str]
) -> Iterator[KeyFault]:
    for name, label in labels.items():
        wanted, known = label.collection, ", ".join(collections) or "none"
        if wanted not in collections:
            yield KeyFault(
                ("labels", "particles", name, "collection"),
                f"no particles {wanted!r} in `inputs`{did_you_mean(wanted, collections)}; there are {known}",
            )


def _input_faults(inputs: Mapping[str, GroupSection], preprocess: Preprocess) -> Iterator[KeyFault]:
    seen: dict[str, InputVariable] = {}
    for name, group in inputs.items():
        for position, variable in enumerate(group.vars):
            key = ("inputs", name, "vars", position)
            if preprocess.params is not None and variable.name not in preprocess.params:
                yield KeyFault(key, f"preprocess.params has no entry for {variable.name!r}")
                continue
            parameters = resolved(variable, preprocess)
            if seen.setdefault(variable.name, parameters) != parameters:
                yield KeyFault(
                    key,
                    f"{variable.name!r} is already in `inputs` with other parameters; give it a second name "
                    "in new_variables",
                )
    for parts in by_collection({name: group.length for name, group in inputs.items()}).values():
        first = next(iter(parts.values()))
        for part, name in parts.items():
            yield from _group_faults(name, part, inputs[name], preprocess)
            if inputs[name].length != inputs[first].length:
                yield KeyFault(
                    ("inputs", name, "length"),
                    f"must be the same as in {first} ({inputs[first].length}): both belong to the particles "
                    f"{split_name(name)[0]}",
                )


def _group_faults(name: str, part: str, group: GroupSection, preprocess: Preprocess) -> Iterator[KeyFault]:
    expected = {VECTORS: (4, "px, py, pz, energy"), MASK: (1, "the mask")}
    if part in expected and len(group.vars) != expected[part][0]:
        text = f"should be {expected[part][1]}, found {len(group.vars)} variables"
        yield KeyFault(("inputs", name, "vars"), text)
    if part == MASK and group.pad_mode != "constant":
        yield KeyFault(("inputs", name, "pad_mode"), "must be constant")
    for position, variable in enumerate(group.vars if part == VECTORS else ()):
        if preprocess.params is not None and variable.name not in preprocess.params:
            continue
        parameters = resolved(variable, preprocess)
        if parameters.to_fit or parameters.subtract_by is not None:
            yield KeyFault(
                ("inputs", name, "vars", position),
                f"pair features need momenta in GeV, not scaled: write [{variable.name}, null]",
            )
