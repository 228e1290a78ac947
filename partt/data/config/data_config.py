"""Data configs: inputs, labels, selection and weights of jets, in weaver's YAML schema."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails

from partt.config import KeyFault, Record, did_you_mean, load_record, shipped_file
from partt.data.config.checks import faults_across, resolved
from partt.data.config.input_groups import (
    MASK,
    CollectionInputs,
    InputGroup,
    InputVariable,
    by_collection,
    collection_of,
)
from partt.data.config.input_map import NONE, InputMap, asked_input_map, shipped_input_map
from partt.data.config.labels import Labels, ParticleLabels, Targets
from partt.data.config.sections import (
    Bucketing,
    FormulaText,
    GroupName,
    GroupSection,
    Name,
    NamesOnce,
    Parameters,
    Preprocess,
    Regex,
    Selection,
    ShortText,
    Variable,
    Weights,
    few,
    raise_all,
)
from partt.data.formulas.definitions import check_definitions, parse_definitions
from partt.data.formulas.expressions import Formula, inline, parse_formula
from partt.data.formulas.grammar import function_name
from partt.errors import ConfigError
from partt.jet_inputs import InputShape, main_collection

__all__ = [
    "CollectionInputs",
    "DataConfig",
    "InputGroup",
    "InputVariable",
    "Weights",
    "branches_to_read",
    "load_data_config",
    "with_input",
]


def _none_as_empty(value: Any) -> Any:
    return {} if value is None else value


def _input_map(value: Any) -> Any:
    try:
        return shipped_input_map(value) if isinstance(value, str) else value
    except ConfigError as error:
        raise ValueError(str(error)) from error


Empty = BeforeValidator(_none_as_empty)
Few = BeforeValidator(few)


class DataConfig(Record):
    """A data config; derive another one with `with_parameters` or `with_reweight_hists`."""

    treename: Name | None = None
    """the tree to read; needed only if a file has more than one"""
    input: Annotated[InputMap | None, BeforeValidator(_input_map)] = None
    """how the entries of files become jets, if they are events: the name of a shipped input map, or its keys;
    null: every entry is a jet"""
    selection: Selection = None
    """which jets to use, a formula of variables with one value per jet; null: all"""
    test_time_selection: Selection = None
    """another selection for prediction; null: the same"""
    file_magic: Annotated[Mapping[Name, Annotated[Mapping[Regex, float], Few]], Few, Empty] = Field(
        default_factory=dict
    )
    """new variable -> regular expression, without lookaround and backreferences -> its value in files whose
    path matches; 0 in other files"""
    branch_magic: Annotated[Mapping[Name, ShortText], Few, Empty] = Field(default_factory=dict)
    """text in names of branches -> its replacement in the files"""
    new_variables: Annotated[Mapping[Name, FormulaText], AfterValidator(check_definitions), Few, Empty] = (
        Field(default_factory=dict)
    )
    """new variable -> formula, in any order"""
    preprocess: Annotated[Preprocess, Empty] = Preprocess()
    inputs: Annotated[Mapping[GroupName, GroupSection], Few] = Field(min_length=1)
    """input group -> its variables"""
    labels: Annotated[Labels, Empty] = Labels()
    """null: none, for recipes that need none, and for prediction"""
    targets: Targets | None = None
    observers: NamesOnce = ()
    """variables that `partt predict` copies to its outputs"""
    monitor_variables: NamesOnce = ()
    """for weaver; partt does not use them"""
    weights: Weights | None = None
    """null: all jets have weight 1"""
    bucketing: Bucketing | None = None

    # --- access for the rest of the data layer ---

    @property
    def group_order(self) -> tuple[str, ...]:
        """The names of all input groups, masks included, in the order of the config."""
        return tuple(self.inputs)

    @cached_property
    def collections(self) -> Mapping[str, CollectionInputs]:
        """The collections of particles by name, in the order of the config."""
        collections = {}
        for name, parts in self._by_collection.items():
            groups = {part: self._group(group) for part, group in parts.items()}
            collections[name] = collection_of(name, groups, self._mask_variable(groups.get(MASK)))
        return collections

    @cached_property
    def jet_groups(self) -> Mapping[str, InputGroup]:
        """The input groups with one value per jet, by name."""
        of_particles = {name for parts in self._by_collection.values() for name in parts.values()}
        return {name: self._group(name) for name in self.inputs if name not in of_particles}

    @property
    def main(self) -> CollectionInputs:
        """The main collection: pf, or the first one with features."""
        return self.collections[main_collection(self.input_shape)]

    @property
    def particles(self) -> InputGroup:
        """The features of the main collection."""
        return self.main.features

    @property
    def momenta(self) -> InputGroup | None:
        """The four-momenta of the main collection; None for networks without pair features."""
        return self.main.momenta

    @property
    def points(self) -> InputGroup | None:
        """The coordinates of the main collection, for networks that use them."""
        return self.main.points

    @property
    def groups(self) -> tuple[InputGroup, ...]:
        """The groups that give inputs: all but masks."""
        of_particles = [group for collection in self.collections.values() for group in collection.groups]
        return (*of_particles, *self.jet_groups.values())

    @property
    def input_shape(self) -> InputShape:
        """Names and sizes of the network's inputs."""
        return InputShape(
            {name: collection.shape for name, collection in self.collections.items()},
            {name: len(group.variables) for name, group in self.jet_groups.items()},
        )

    @property
    def input_names(self) -> tuple[str, ...]:
        """The variables that the inputs need, each once."""
        inputs = [variable.name for group in self.groups for variable in group.variables]
        masks = [collection.mask_variable for collection in self.collections.values()]
        return tuple(dict.fromkeys([*inputs, *(name for name in masks if name is not None)]))

    @property
    def resolved_variables(self) -> Mapping[str, InputVariable]:
        """The variables of all inputs, including masks, by name."""
        return {
            variable.name: self._resolve(variable)
            for group in self.inputs.values()
            for variable in group.vars
        }

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the network's outputs; empty if there are none."""
        return self.labels.class_names

    @property
    def label_variables(self) -> tuple[str, ...]:
        """The 0-1 variables of the classes, or the one with the class number; empty if there are none."""
        number = self.labels.class_number
        return self.labels.flags if number is None else (number,)

    @property
    def target_names(self) -> tuple[str, ...]:
        """The targets of regressions, which are variables."""
        return (*self.labels.targets, *(self.targets.value if self.targets else ()))

    @property
    def target_masks(self) -> Mapping[str, str]:
        """Target -> variable that is 0 for jets whose target is not known, where there is one."""
        return self.labels.masks

    @property
    def target_variables(self) -> tuple[str, ...]:
        """The variables that the targets need."""
        return self.variables_of_targets(self.target_names)

    def variables_of_targets(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the variables that some targets need: the targets, and their masks."""
        masks = [self.target_masks[name] for name in names if name in self.target_masks]
        return (*names, *masks)

    @property
    def particle_labels(self) -> Mapping[str, ParticleLabels]:
        """The classes of particles, by name."""
        return self.labels.particles

    def particle_labels_called(self, name: str) -> ParticleLabels:
        """Return classes of particles; an unknown name is an error."""
        if name not in self.particle_labels:
            known = list(self.particle_labels)
            raise ConfigError(
                f"the data config has no classes of particles {name!r} in labels.particles"
                f"{did_you_mean(name, known)}; it has {', '.join(known) or 'none'}"
            )
        return self.particle_labels[name]

    @property
    def weight_variables(self) -> tuple[str, ...]:
        """The variables that weights or the reweighting need."""
        if self.weights is None:
            return ()
        if self.weights.use_precomputed_weights:
            return self.weights.weight_branches
        base = self.weights.base_formula
        names = {**self.weights.reweight_vars, **dict.fromkeys(self.weights.reweight_classes)}
        return (*names, *sorted((base.names if base else set()) - names.keys()))

    @cached_property
    def formulas(self) -> Mapping[str, Formula]:
        """The definitions of variables: `new_variables`, and those of labels and targets, which win."""
        targets = self.targets.value if self.targets else {}
        formulas = parse_definitions({**self.new_variables, **self.labels.definitions, **targets})
        formulas |= {text: parse_formula(text) for text in self.labels.nameless_formulas}
        momenta = {name: formula for name, formula in formulas.items() if formula.is_momenta}
        # Four-momenta are not a column: formulas that use them get their definition instead of their name.
        return {name: inline(formula, momenta) for name, formula in formulas.items() if name not in momenta}

    def selection_for(self, purpose: Literal["train", "predict"]) -> Formula | None:
        """Return the formula that selects jets; prediction may have its own."""
        return self._train_selection if purpose == "train" else self._test_selection

    # --- deriving and writing ---

    def with_parameters(self, fitted: Mapping[str, InputVariable]) -> "DataConfig":
        """Return the config with the numbers of fitted variables, as in weaver's *.auto.yaml."""
        params = {}
        for group in self.inputs.values():
            for variable in group.vars:
                known = fitted.get(variable.name) or self._resolve(variable)
                params[variable.name] = Parameters(
                    length=group.length,
                    pad_mode=group.pad_mode,
                    center="auto" if known.to_fit else known.subtract_by,
                    scale=known.multiply_by,
                    min=known.clip_min,
                    max=known.clip_max,
                    pad_value=known.pad_value,
                )
        return self.replace(preprocess=self.preprocess.replace(params=params))

    def with_class_names(self, names: Sequence[str]) -> "DataConfig":
        """Return the config with names of the classes, whose number is the first entry of custom labels."""
        return self.replace(labels=self.labels.with_names(names))

    def with_particle_labels(self, names: Iterable[str]) -> "DataConfig":
        """Return the config with these classes of particles only."""
        kept = {name: self.particle_labels_called(name) for name in names}
        if kept == self.particle_labels:
            return self
        return self.replace(labels=self.labels.replace(particles=kept))

    def with_reweight_hists(self, hists: Mapping[str, npt.ArrayLike]) -> "DataConfig":
        """Return the config with fitted weights: class -> histogram, one axis per variable."""
        if self.weights is None:
            raise ValueError("a config without weights takes no reweight_hists")
        lists = {name: np.asarray(hist).tolist() for name, hist in hists.items()}
        return self.replace(weights=self.weights.replace(reweight_hists=lists))

    def to_yaml(self) -> str:
        """Return the config as YAML that loads back equal, here and in weaver."""
        data = self.model_dump(mode="python")
        for name, group in self.inputs.items():
            data["inputs"][name]["vars"] = [variable.as_written() for variable in group.vars]
        return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=110, default_flow_style=None)

    # --- checks across sections, and cached values ---

    @model_validator(mode="wrap")
    @classmethod
    def _find_all_faults(cls, data: Any, validate: ModelWrapValidatorHandler["DataConfig"]) -> "DataConfig":
        """Validate, and check across sections, even if some of them have faults."""
        details: list[InitErrorDetails] = []
        try:
            sections: Mapping[str, Any] = dict(config := validate(data))
        except ValidationError as error:
            if not isinstance(data, dict):
                raise
            details = [_repeated(detail) for detail in error.errors(include_url=False)]
            sections = _valid_sections(data, [detail["loc"] for detail in details])
        raise_all(faults_across(sections), details)
        return config

    @cached_property
    def _by_collection(self) -> Mapping[str, Mapping[str, str]]:
        return by_collection({name: group.length for name, group in self.inputs.items()})

    def _group(self, name: str) -> InputGroup:
        group = self.inputs[name]
        variables = tuple(self._resolve(variable) for variable in group.vars)
        return InputGroup(name, group.length, variables, wraps=group.pad_mode == "wrap")

    def _mask_variable(self, mask: InputGroup | None) -> str | None:
        """Return the variable of a mask; None if it is 1 for every particle."""
        if mask is None:
            return None
        name = mask.variables[0].name
        formula = self.formulas.get(name)
        is_one = formula is not None and function_name(formula.tree) in {"ak.ones_like", "np.ones_like"}
        return None if is_one else name

    @cached_property
    def _train_selection(self) -> Formula | None:
        return self._formula(self.selection)

    @cached_property
    def _test_selection(self) -> Formula | None:
        return self._formula(self.test_time_selection) or self._train_selection

    def _formula(self, text: str | None) -> Formula | None:
        if text is None:
            return None
        momenta = {
            name: formula
            for name, formula in parse_definitions(self.new_variables).items()
            if formula.is_momenta
        }
        return inline(parse_formula(text), momenta)

    def _resolve(self, variable: Variable) -> InputVariable:
        return resolved(variable, self.preprocess)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def load_data_config(name_or_path: str) -> DataConfig:
    """Load a shipped data config by name, or any data config by path."""
    return load_record(shipped_file("data_configs", name_or_path), DataConfig)


def with_input(config: DataConfig, asked: InputMap | str | None) -> DataConfig:
    """Return the config with the input map that is asked for; None: with its own, "none": without one."""
    found = asked_input_map(asked)
    if found is None or found == config.input:
        return config
    return config.replace(input=None if found == NONE else found)


def branches_to_read(config: DataConfig, names: Iterable[str]) -> set[str]:
    """Return the branches that variables need; those of `file_magic` are not in the files."""
    branches: set[str] = set()
    todo, seen = list(names), set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in config.formulas:
            todo += config.formulas[name].names
        elif name not in config.file_magic:
            branches.add(name)
    return branches


# --- faults -----------------------------------------------------------------------------------------------


def _repeated(detail: ErrorDetails) -> InitErrorDetails:
    if detail["loc"] == ("labels_domain",):
        fault = KeyFault(
            ("labels_domain",), "not supported: partt does not train on domains; remove this key"
        )
        return InitErrorDetails(type="value_error", loc=(), input=None, ctx={"error": fault})
    return InitErrorDetails(
        type=detail["type"], loc=detail["loc"], input=detail["input"], ctx=detail.get("ctx", {})
    )


def _valid_sections(data: Mapping[str, Any], faults: Sequence[tuple[str | int, ...]]) -> dict[str, Any]:
    """Return the sections, and of `inputs` the groups, that have no faults."""
    sections: dict[str, Any] = {}
    faulty = {place[0] for place in faults if place}
    if "labels" not in faulty:
        sections["labels"] = Labels.model_validate(data.get("labels") or {})
    if "preprocess" not in faulty:
        sections["preprocess"] = Preprocess.model_validate(data.get("preprocess") or {})
    if "new_variables" not in faulty:
        sections["new_variables"] = data.get("new_variables") or {}
    groups = data.get("inputs")
    if isinstance(groups, Mapping):
        faulty_groups = {place[1] for place in faults if place[:1] == ("inputs",) and len(place) > 1}
        if faulty_groups and "labels" in sections:  # nobody knows the collections
            sections["labels"] = sections["labels"].replace(particles={})
        sections["inputs"] = {
            name: GroupSection.model_validate(group)
            for name, group in groups.items()
            if name not in faulty_groups
        }
    return sections
