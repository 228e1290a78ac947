import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml

from conftest import ROOT
from partt.config import parse_record, shipped_file
from partt.data.config.data_config import DataConfig, InputVariable, branches_to_read, load_data_config
from partt.data.formulas.expressions import evaluate
from partt.errors import ConfigError
from partt.jet_inputs import CollectionShape

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from weaver.utils.data.config import DataConfig as WeaverConfig

SHIPPED = sorted((ROOT / "data_configs").glob("*.yaml"))
IN_WEAVER = [path for path in SHIPPED if path.stem != "jetclass_mass"]  # weaver-core has no hybrid labels

BASE = """\
new_variables:
  part_mask: ak.ones_like(part_px)
  part_pt: np.hypot(part_px, part_py)
inputs:
  pf_features:
    length: 128
    vars:
      - [part_pt, 1.7, 0.7]
      - part_eta
  pf_vectors:
    length: 128
    vars: [[part_px, null], [part_py, null], [part_pz, null], [part_e, null]]
  pf_mask:
    length: 128
    vars: [part_mask]
labels:
  type: simple
  value: [label_QCD, label_Top]
"""
REWEIGHTING = """\
weights:
  use_precomputed_weights: false
  reweight_method: flat
  reweight_vars: {jet_pt: [1, 2, 3], jet_mass: [0, 1]}
  reweight_classes: [label_QCD, label_Top]
"""


def parse(text: str) -> DataConfig:
    return parse_record(text, DataConfig, source="c.yaml")


def weaver_parameters(config: DataConfig) -> dict[str, tuple[float | str | None, float, float, float]]:
    return {
        variable.name: (
            "auto" if variable.to_fit else variable.subtract_by,
            variable.multiply_by,
            variable.clip_min,
            variable.clip_max,
        )
        for group in config.groups
        for variable in group.variables
    }


def parameters_in_weaver(config: WeaverConfig) -> dict[str, tuple[float | str | None, float, float, float]]:
    keys = ("center", "scale", "min", "max")
    return {
        name: tuple(numbers[key] for key in keys)
        for name, numbers in config.preprocess_params.items()
        if not name.endswith("_mask")
    }


# --- the shipped configs --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", IN_WEAVER, ids=lambda path: path.stem)
def test_shipped_configs_mean_the_same_in_weaver(path: Path):
    ours, weavers = load_data_config(path.stem), WeaverConfig.load(str(path))
    assert weaver_parameters(ours) == parameters_in_weaver(weavers)
    assert [variable.name for variable in ours.particles.variables] == weavers.input_dicts["pf_features"]
    assert [variable.name for variable in ours.momenta.variables] == weavers.input_dicts["pf_vectors"]
    assert [variable.name for variable in ours.points.variables] == weavers.input_dicts["pf_points"]
    assert ours.particles.length == ours.momenta.length == ours.points.length == 128
    assert list(ours.label_variables) == weavers.label_value
    assert ours.observers == weavers.observer_names
    inputs = [variable.name for group in ours.groups for variable in group.variables]
    needed = branches_to_read(ours, [*inputs, *ours.label_variables])
    assert needed == {name for name in weavers.train_load_branches if not name.startswith("_")}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configs_survive_a_round_trip(path: Path, tmp_path: Path):
    config = load_data_config(str(path))
    (tmp_path / "copy.yaml").write_text(config.to_yaml())
    assert load_data_config(str(tmp_path / "copy.yaml")) == config
    if path in IN_WEAVER:
        weavers = WeaverConfig.load(str(tmp_path / "copy.yaml"))
        assert parameters_in_weaver(weavers) == weaver_parameters(config)
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301


def test_shipped_configs_have_the_published_features():
    sizes = {path.stem: len(load_data_config(path.stem).particles.variables) for path in SHIPPED}
    assert sizes == {
        "jetclass_full": 17,
        "jetclass_kin": 7,
        "jetclass_kinpid": 13,
        "jetclass_mass": 17,
        "jetclass_vertices": 17,
        "quark_gluon_kin": 7,
        "quark_gluon_kinpid": 13,
        "quark_gluon_kinpidplus": 13,
        "top_landscape_kin": 7,
    }
    vertices = load_data_config("jetclass_vertices").collections["sv"]
    assert (len(vertices.features.variables), vertices.length) == (11, 10)
    full = load_data_config("jetclass_full")
    assert full.class_names == ("QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl")
    assert full.particles.variables[2] == InputVariable("part_logptrel", -4.7, 0.7)
    assert full.particles.variables[12] == InputVariable("part_d0err", 0, 1, 0, 1)
    assert full.particles.variables[15] == InputVariable("part_deta")
    assert branches_to_read(full, ["part_logptrel", "part_d0"]) == {
        "part_px",
        "part_py",
        "jet_pt",
        "part_d0val",
    }


def test_names_close_to_a_shipped_config_are_suggested():
    with pytest.raises(ConfigError, match=r"did you mean 'jetclass_full'\?"):
        load_data_config("jetclas_full")


# --- standardisation ------------------------------------------------------------------------------------

AUTO = (
    BASE.replace("- part_eta", "- part_eta\n      - [part_phi, null]\n      - [part_m]")
    + "preprocess: {method: auto}\n"
)


def test_auto_fits_bare_names_only():
    config = parse(AUTO)
    assert {variable.name: variable.to_fit for variable in config.particles.variables} == {
        "part_pt": False,
        "part_eta": True,
        "part_phi": False,
        "part_m": True,
    }
    assert config.particles.variables[2].subtract_by is None
    assert not any(variable.to_fit for variable in parse(AUTO.replace("auto", "manual")).particles.variables)


def test_masks_are_never_fitted():
    config = parse(AUTO.replace("- part_eta", "- part_other_mask"))
    assert config.particles.variables[1] == InputVariable("part_other_mask")


def test_fitted_parameters_are_written_as_weaver_does(tmp_path: Path):
    fitted = {name: InputVariable(name, 0.25, 4.0) for name in ("part_eta", "part_m")}
    config = parse(AUTO).with_parameters(fitted)
    assert config.particles.variables[1] == InputVariable("part_eta", 0.25, 4.0)
    assert config.particles.variables[0] == InputVariable("part_pt", 1.7, 0.7)
    assert parse(config.to_yaml()) == config
    (tmp_path / "c.auto.yaml").write_text(config.to_yaml())
    assert parameters_in_weaver(WeaverConfig.load(str(tmp_path / "c.auto.yaml"))) == weaver_parameters(config)


def test_files_fitted_by_weaver_load(tmp_path: Path):
    (tmp_path / "c.yaml").write_text(AUTO + REWEIGHTING)
    weavers = WeaverConfig.load(str(tmp_path / "c.yaml"))
    for numbers in weavers.preprocess_params.values():
        if numbers["center"] == "auto":
            numbers["center"], numbers["scale"] = 0.125, 2.5
    weavers.options["preprocess"]["params"] = weavers.preprocess_params
    hists = {"label_QCD": [[0.5], [1.0]], "label_Top": [[0.25], [0.125]]}
    weavers.options["weights"]["reweight_hists"] = hists
    weavers.dump(tmp_path / "c.auto.yaml")
    config = load_data_config(str(tmp_path / "c.auto.yaml"))
    assert weaver_parameters(config) == parameters_in_weaver(weavers)
    assert config.particles.variables[1] == InputVariable("part_eta", 0.125, 2.5)
    assert config.weights.reweight_hists == hists
    assert parse(config.to_yaml()) == config


# --- labels, weights, formulas --------------------------------------------------------------------------


def test_custom_labels():
    text = BASE.replace(
        "type: simple\n  value: [label_QCD, label_Top]",
        "type: custom\n  value: {truth: label_Top * 1}\n  names: [QCD, Top]",
    )
    config = parse(text)
    assert config.class_names == ("QCD", "Top")
    assert config.label_variables == ("truth",)
    assert branches_to_read(config, config.label_variables) == {"label_Top"}
    assert parse(config.to_yaml()) == config


def test_weights():
    assert parse(BASE).weight_variables == ()
    branches = BASE + "weights: {use_precomputed_weights: true, weight_branches: [w, v]}\n"
    assert parse(branches).weight_variables == ("w", "v")
    config = parse(BASE + REWEIGHTING + "  reweight_basewgt: w * jet_pt\n")
    assert config.weight_variables == ("jet_pt", "jet_mass", "label_QCD", "label_Top", "w")
    assert config.weights.base_formula.names == {"w", "jet_pt"}
    hists = {name: np.array([[0.5], [1]], dtype=np.float32) for name in config.weights.reweight_classes}
    config = config.with_reweight_hists(hists)
    assert config.weights.reweight_hists["label_Top"] == [[0.5], [1.0]]
    assert parse(config.to_yaml()) == config


@pytest.mark.parametrize("num_variables", [1, 2, 3])
def test_any_number_of_reweighting_variables(num_variables):
    bins = ", ".join(f"v{i}: [0, 1, 2]" for i in range(num_variables))
    config = parse(BASE + REWEIGHTING.replace("jet_pt: [1, 2, 3], jet_mass: [0, 1]", bins))
    assert config.weights.reweight_vars == {f"v{i}": (0, 1, 2) for i in range(num_variables)}


def test_selection_for_prediction_falls_back():
    config = parse(BASE + "selection: jet_pt > 500\n")
    assert config.selection_for("train").names == config.selection_for("predict").names == {"jet_pt"}
    config = parse(BASE + "selection: jet_pt > 500\ntest_time_selection: jet_eta < 2\n")
    assert config.selection_for("predict").text == "jet_eta < 2"
    assert parse(BASE + "selection:\n").selection_for("train") is None
    assert parse(BASE + "selection: ''\n").selection_for("train") is None


def test_four_momenta_may_have_names():
    config = parse(
        BASE.replace(
            "part_pt: np.hypot(part_px, part_py)",
            "part_pt: p4.pt\n  p4: _p4_from_pxpypze(part_px, part_py, part_pz, part_e)",
        )
    )
    assert branches_to_read(config, ["part_pt"]) == {"part_px", "part_py", "part_pz", "part_e"}
    assert "p4" not in config.formulas
    table = {name: np.array([3.0, 4.0]) for name in ("part_px", "part_py", "part_pz", "part_e")}
    np.testing.assert_allclose(evaluate(config.formulas["part_pt"], table), np.sqrt(2) * np.array([3.0, 4.0]))


def test_a_variable_named_like_its_branch_says_nothing():
    config = parse(BASE.replace("part_pt: np.hypot(part_px, part_py)", "part_pt: part_pt"))
    assert branches_to_read(config, ["part_pt"]) == {"part_pt"}


def test_variables_of_the_file_name_are_no_branches():
    config = parse(BASE + "file_magic: {is_top: {'Top_.*': 1, 'QCD': 0}}\nbranch_magic: {part_: cand_}\n")
    assert branches_to_read(config, ["is_top", "part_eta"]) == {"part_eta"}
    assert parse(config.to_yaml()) == config


def test_sections_without_a_value_are_empty():
    text = (
        BASE
        + "observers:\nmonitor_variables:\nweights:\nfile_magic:\nbranch_magic:\npreprocess:\nbucketing:\n"
    )
    assert parse(text) == parse(BASE)
    bucketing = parse(BASE + "bucketing: {var: jet_nparticles, bins: [0, 32, 128]}\n")
    assert parse(bucketing.to_yaml()) == bucketing


def test_numbers_after_no_centre_may_be_null():
    """They are not used; in weaver neither."""
    assert parse(BASE.replace("[part_px, null]", "[part_px, null, null, null, null]")) == parse(BASE)
    with pytest.raises(ConfigError, match=r"pf_features.vars\[0\]"):
        parse(BASE.replace("[part_pt, 1.7, 0.7]", "[part_pt, 1.7, null]"))


def test_configs_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        parse(BASE).selection = "x"


def test_points_and_momenta_may_be_absent():
    lines = BASE.splitlines(keepends=True)
    config = parse("".join(lines[:9] + lines[15:]))
    assert config.points is None
    assert config.momenta is None
    assert config.groups == (config.particles,)


def test_a_long_chain_of_definitions_is_refused():
    chain = "".join(f"  v{i}: v{i + 1} + 1\n" for i in range(1000))
    with pytest.raises(ConfigError, match="more than 50 definitions depend on each other"):
        parse(BASE.replace("new_variables:\n", f"new_variables:\n{chain}"))


# --- faults ---------------------------------------------------------------------------------------------

QUOTES = " (YAML reads yes, no, on, off as true or false: put the word in quotes)"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "- part_eta",
            "- [part_eta, 0, 1, 5, -5]",
            "9: inputs.pf_features.vars[1]: clip_min (5) must be below clip_max (-5)",
        ),
        (
            "- part_eta",
            "- [part_eta, no]",
            f"9: inputs.pf_features.vars[1]: should be a valid number, found False{QUOTES}",
        ),
        (
            "- part_eta",
            "- [part_eta, '1']",
            "9: inputs.pf_features.vars[1]: should be a valid number, found '1'",
        ),
        (
            "- part_eta",
            "- [part_eta, 1, 2, 3, 4, 5, 6]",
            (
                "9: inputs.pf_features.vars[1]: 7 entries, but there are only "
                "name, subtract_by, multiply_by, clip_min, clip_max, pad_value"
            ),
        ),
        (
            "- part_eta",
            "- 5",
            (
                "9: inputs.pf_features.vars[1]: should be a name or "
                "[name, subtract_by, multiply_by, clip_min, clip_max, pad_value], found 5"
            ),
        ),
        (
            "- part_eta",
            "- [part_pt, 1.8, 0.7]",
            (
                "9: inputs.pf_features.vars[1]: 'part_pt' is already in `inputs` with other parameters; give it "
                "a second name in new_variables"
            ),
        ),
        (
            "[part_px, null]",
            "[part_px, 1]",
            (
                "12: inputs.pf_vectors.vars[0]: pair features need momenta in GeV, not scaled: "
                "write [part_px, null]"
            ),
        ),
        (
            ", [part_e, null]]",
            "]",
            "12: inputs.pf_vectors.vars: should be px, py, pz, energy, found 3 variables",
        ),
        (
            "np.hypot",
            "np.hypto",
            (
                "3: new_variables.part_pt: `np.hypto` in a formula: is not among the functions "
                "that formulas may use "
                "(did you mean 'np.hypot'?)"
            ),
        ),
        (
            "np.hypot(part_px, part_py)",
            "np.hypot(part_px",
            "3: new_variables.part_pt: not a valid formula: '(' was never closed in 'np.hypot(part_px'",
        ),
        (
            "np.hypot(part_px, part_py)",
            "part_pt * 2",
            (
                "3: new_variables.part_pt: has a circular definition: part_pt -> part_pt; give one of "
                "them another name"
            ),
        ),
        (
            "part_pt: np.hypot(part_px, part_py)",
            "a: b\n  b: c\n  c: a",
            "3: new_variables.a: has a circular definition: a -> b -> c -> a; give one of them another name",
        ),
        (
            "part_pt: np",
            "np: np",
            "3: new_variables.np: the name of a variable must be a single word that formulas can use",
        ),
        ("np.hypot(part_px, part_py)", "1", "3: new_variables.part_pt: should be a valid string, found 1"),
        ("  part_pt:", "  part_mask:", "3: new_variables.part_mask: duplicate key"),
        (
            "length: 128",
            "length: no",
            f"6: inputs.pf_features.length: should be a valid integer, found False{QUOTES}",
        ),
        (
            "length: 128",
            "length: 0",
            "6: inputs.pf_features.length: should be greater than or equal to 1, found 0",
        ),
        (
            "length: 128",
            "lenght: 128",
            (
                "5: inputs.pf_features.length: this key is needed\n"
                "c.yaml:6: inputs.pf_features.lenght: unknown key (did you mean 'length'?); known here: "
                "length, pad_mode, vars"
            ),
        ),
        (
            "length: 128",
            "length: 64",
            (
                "11: inputs.pf_vectors.length: must be the same as in pf_features (64): both belong to the particles pf\n"
                "c.yaml:14: inputs.pf_mask.length: must be the same as in pf_features (64): both belong to the particles pf"
            ),
        ),
        ("  pf_mask:", "  pf_mask:\n    pad_mode: wrap", "14: inputs.pf_mask.pad_mode: must be constant"),
        (
            "type: simple",
            "type: custom",
            "18: labels.value: with type custom, should be name: formula, of the class number or of targets",
        ),
        (
            "type: simple",
            "type: smple",
            "17: labels.type: should be 'simple', 'custom' or 'hybrid', found 'smple'",
        ),
        (
            "[label_QCD, label_Top]",
            "[label_QCD, label_QCD]",
            "18: labels.value[1]: duplicate name 'label_QCD'",
        ),
        (
            "[label_QCD, label_Top]",
            "[label_QCD, QCD]",
            "18: labels.value: two variables give the same class name, which is without label_",
        ),
        (
            "[label_QCD, label_Top]",
            "label_QCD",
            "18: labels.value: a class number needs value_cls_names; 0-1 variables are a list: [is_a, is_b]",
        ),
        ("[label_QCD, label_Top]", "[]", "18: labels.value: there must be at least one class"),
        (
            "[label_QCD, label_Top]",
            "{a: b}",
            "18: labels.value: with type simple, should be a list of 0-1 variables",
        ),
        (
            "[label_QCD, label_Top]",
            "[no, label_x]",
            f"18: labels.value[0]: should be a valid string, found False{QUOTES}",
        ),
    ],
)
def test_faults_in_inputs_and_labels(old, new, message):
    with pytest.raises(ConfigError) as caught:
        parse(BASE.replace(old, new, 1))
    assert str(caught.value) == f"c.yaml:{message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "weights: {}",
            "\nc.yaml:".join(
                f"19: weights.{key}: this key is needed with use_precomputed_weights: false"
                for key in ("reweight_method", "reweight_vars", "reweight_classes")
            ),
        ),
        (
            "weights: {use_precomputed_weights: true}",
            "19: weights.weight_branches: this key is needed with use_precomputed_weights: true",
        ),
        (REWEIGHTING + "  class_weights: [1]", "24: weights.class_weights: 1 weights for 2 reweight_classes"),
        (
            REWEIGHTING + "  class_weights: [1, -1]",
            "24: weights.class_weights[1]: should be greater than or equal to 0, found -1",
        ),
        (
            REWEIGHTING.replace("2, 3", "3, 2"),
            "22: weights.reweight_vars.jet_pt[2]: bin edges must increase, but 2 follows 3",
        ),
        (
            REWEIGHTING.replace("[0, 1]", "[0]"),
            "22: weights.reweight_vars.jet_mass: at least two bin edges are needed",
        ),
        (
            REWEIGHTING.replace("flat", "flt"),
            "21: weights.reweight_method: should be 'flat' or 'ref', found 'flt'",
        ),
        (
            REWEIGHTING + "  reweight_hists: {label_QCD: [[1], [2]]}",
            "24: weights.reweight_hists: the keys must be the reweight_classes",
        ),
        (
            REWEIGHTING + "  reweight_hists: {label_QCD: [[1], [2]], label_Top: [1]}",
            "24: weights.reweight_hists.label_Top: should be nested lists of 2 x 1 finite numbers, none negative",
        ),
        (
            REWEIGHTING + "  reweight_hists: {label_QCD: [[1], [2]], label_Top: [[1], [.nan]]}",
            "24: weights.reweight_hists.label_Top: should be nested lists of 2 x 1 finite numbers, none negative",
        ),
        (
            REWEIGHTING + "  reweight_basewgt: a*",
            "24: weights.reweight_basewgt: not a valid formula: invalid syntax in 'a*'",
        ),
        (
            "selection: a and b",
            (
                "19: selection: `a and b` in a formula: "
                "write & and | with parentheses around each part instead of `and` and `or`"
            ),
        ),
        ("selection: yes", f"19: selection: should be a valid string, found True{QUOTES}"),
        ("preprocess: {method: magic}", "19: preprocess.method: should be 'manual' or 'auto', found 'magic'"),
        (
            "preprocess: {data_fraction: 2}",
            "19: preprocess.data_fraction: should be less than or equal to 1, found 2",
        ),
        (
            f"preprocess: {{params: {{{', '.join(f'part_{x}: {{}}' for x in ('pt', 'px', 'py', 'pz', 'e', 'mask'))}}}}}",
            "9: inputs.pf_features.vars[1]: preprocess.params has no entry for 'part_eta'",
        ),
        (
            "file_magic: {a: {'(': 1}}",
            (
                "19: file_magic.a.(: '(' is not a regular expression: missing ), unterminated "
                "subpattern at position 0"
            ),
        ),
        ("file_magic: {a: {x: y}}", "19: file_magic.a.x: should be a valid number, found 'y'"),
        ("branch_magic: {a: 1}", "19: branch_magic.a: should be a valid string, found 1"),
        ("observers: 5", "19: observers: should be a list, found 5"),
        ("treename: 5", "19: treename: should be a valid string, found 5"),
        ("bucketing: {var: a}", "19: bucketing.bins: this key is needed"),
        (
            "obsrvers: [a]",
            (
                "19: obsrvers: unknown key (did you mean 'observers'?); known here: treename, input, selection, "
                "test_time_selection, file_magic, branch_magic, new_variables, preprocess, "
                "inputs, labels, targets, observers, "
                "monitor_variables, weights, bucketing"
            ),
        ),
    ],
)
def test_faults_in_other_sections(text, message):
    with pytest.raises(ConfigError) as caught:
        parse(f"{BASE}{text}\n")
    assert str(caught.value) == f"c.yaml:{message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "c.yaml: the file is empty"),
        ("# nothing\n", "c.yaml: the file is empty"),
        ("[]", "c.yaml: expected keys and values, found []"),
        ("a: b: c", "c.yaml:1: not valid YAML: mapping values are not allowed in this context"),
        ("labels: {type: simple, value: [a, b]}", "c.yaml:1: inputs: this key is needed"),
    ],
)
def test_files_that_are_no_config(text, message):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_numbers_with_exponents_are_numbers():
    config = parse(BASE.replace("1.7, 0.7", "1e-3, 2E2"))
    assert config.particles.variables[0] == InputVariable("part_pt", 0.001, 200)
    assert yaml.safe_load(config.to_yaml())["inputs"]["pf_features"]["vars"][0] == ["part_pt", 0.001, 200.0]


def test_every_formula_is_checked_at_load_time():
    for text in ("selection: __import__('os')", "test_time_selection: open('x')"):
        with pytest.raises(ConfigError, match="is not among the functions"):
            parse(f"{BASE}{text}\n")


@pytest.mark.parametrize(
    ("new_variable", "label"),
    [("1", "truth + 1"), ("truth * 2", "loop + 1")],
    ids=["itself", "through a variable"],
)
def test_cycles_through_custom_labels(tmp_path, new_variable, label):
    options = yaml.safe_load(shipped_file("data_configs", "jetclass_kin").read_text())
    options["new_variables"]["loop"] = new_variable
    options["labels"] = {"type": "custom", "value": {"truth": label}, "names": ["a", "b"]}
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(options))
    with pytest.raises(ConfigError, match="labels.value: (truth|loop) has a circular definition: "):
        load_data_config(str(path))


def test_two_names_of_one_group():
    text = """\
inputs:
  sv: {length: 9, vars: [a]}
  sv_features: {length: 9, vars: [b]}
labels: {type: simple, value: [x, y]}
"""
    with pytest.raises(ConfigError, match="file:3: inputs.sv_features: is the same group as sv: "):
        parse_record(text, DataConfig, "file")


def test_targets_beside_labels_are_checked_too():
    """As rgerosa's fork of weaver has them."""
    text = """\
inputs: {pf_features: {length: 9, vars: [part_px]}}
new_variables: {a: b}
labels: {type: custom, value: {mass: jet_mass, mass_mask: jet_pt > 5}}
targets: {value: {b: a, mass: jet_sdmass}}
"""
    with pytest.raises(ConfigError) as caught:
        parse_record(text, DataConfig, "file")
    assert str(caught.value).splitlines() == [
        "file:4: targets.value.mass: already in `labels`: give one of them another name",
        "file:4: targets.value: a has a circular definition: a -> b -> a; give one of them another name",
    ]


# --- what people write ---


def test_all_faults_at_once():
    """Also those across sections, although one section has a fault of its own."""
    text = """\
selecton: jet_pt > 5
new_variables:
  part_pt: np.hipot(part_px, part_py)
inputs:
  pf_features:
    length: 128
    vars: [[part_pt, 1, 2], part_eta]
  pf_vectors:
    length: 64
    vars: [part_px, [part_py, 1], part_pz]
  pf_points:
    vars: [part_eta]
  sv_features:
    length: 10
    vars: [[part_pt, 1, 3]]
  sv_mask:
    length: 10
    pad_mode: wrap
    vars: [a, b]
labels:
  type: simple
  value: [label_QCD, label_QCD]
labels_domain: {type: simple}
weights:
  use_precomputed_weights: false
  reweight_vars: {jet_pt: [3, 2]}
"""
    with pytest.raises(ConfigError) as caught:
        parse(text)
    starts = [line.split(": ")[:2] for line in str(caught.value).splitlines()]
    assert sorted(starts) == sorted(
        [
            ["c.yaml:1", "selecton"],
            ["c.yaml:3", "new_variables.part_pt"],
            ["c.yaml:9", "inputs.pf_vectors.length"],
            ["c.yaml:10", "inputs.pf_vectors.vars"],
            ["c.yaml:10", "inputs.pf_vectors.vars[1]"],
            ["c.yaml:11", "inputs.pf_points.length"],
            ["c.yaml:15", "inputs.sv_features.vars[0]"],
            ["c.yaml:18", "inputs.sv_mask.pad_mode"],
            ["c.yaml:19", "inputs.sv_mask.vars"],
            ["c.yaml:22", "labels.value[1]"],
            ["c.yaml:23", "labels_domain"],
            ["c.yaml:26", "weights.reweight_vars.jet_pt[1]"],
        ]
    )


@pytest.mark.parametrize(
    ("changes", "equal"),
    [
        ("preprocess:\n  method: manual\n  data_fraction:\n", "preprocess: {method: manual}\n"),
        ("observers: [jet_pt, jet_eta, jet_pt]\n", "observers: [jet_pt, jet_eta]\n"),
        ("observers: jet_pt\n", "observers: [jet_pt]\n"),
        (f"{REWEIGHTING}  reweight_basewgt: false\n", REWEIGHTING),
    ],
)
def test_spellings_that_weaver_takes(changes, equal):
    assert parse(BASE + changes) == parse(BASE + equal)


def test_keys_of_other_programs_in_labels():
    assert parse(BASE + "  sample_weight: [1, 2]\n") == parse(BASE)
    with pytest.raises(ConfigError, match=r"labels.nmaes: unknown key \(did you mean 'names'\?\)"):
        parse(BASE + "  nmaes: [a, b]\n")


def test_a_class_of_weight_zero():
    parse(BASE + REWEIGHTING + "  class_weights: [1, 0]\n")
    with pytest.raises(ConfigError, match="weights.class_weights: one class at least needs a weight above 0"):
        parse(BASE + REWEIGHTING + "  class_weights: [0, 0]\n")


def labels(text: str) -> DataConfig:
    return parse(BASE.replace("  type: simple\n  value: [label_QCD, label_Top]\n", text))


def test_classes_given_by_formulas():
    config = labels(
        "  type: simple\n  value: [label_QCD, (label_Tbqq) | (label_Tbl), (jet_pt > 5) & ~label_QCD]\n"
    )
    assert config.class_names == ("QCD", "Tbqq_or_Tbl", "jet_pt_gt_5_and_not_QCD")
    assert branches_to_read(config, config.label_variables) == {
        "label_QCD", "label_Tbqq", "label_Tbl", "jet_pt"
    }  # fmt: skip
    assert parse(config.to_yaml()) == config
    with pytest.raises(
        ConfigError, match=r"labels.value\[1\]: `open\('x'\)` in a formula|labels.value\[1\]: "
    ):
        labels("  type: simple\n  value: [label_QCD, open('x')]\n")


def test_classes_and_targets():
    config = labels(
        "  type: custom\n  names: [a, b]\n  value: {truth: jet_label, mass: m / m0, mass_mask: known, pt: p}\n"
    )
    assert config.class_names == ("a", "b")
    assert config.label_variables == ("truth",)
    assert config.target_names == ("mass", "pt")
    assert config.target_masks == {"mass": "mass_mask"}
    assert branches_to_read(config, config.target_variables) == {"m", "m0", "known", "p"}
    assert parse(config.to_yaml()) == config


def test_a_label_wins_over_a_new_variable():
    text = BASE.replace("new_variables:\n", "new_variables:\n  truth: something_else\n")
    text = text.replace(
        "  type: simple\n  value: [label_QCD, label_Top]\n", "  type: custom\n  value: {truth: x}\n"
    )
    assert parse(text).formulas["truth"].text == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "  type: hybrid\n  value_cls_index: n\n",
            "labels.value_cls_names: value_cls_index and value_cls_names",
        ),
        ("  type: hybrid\n  value: fj_label\n", "labels.value: a class number needs value_cls_names"),
        ("  type: simple\n  value:\n", "labels.value: there must be at least one class"),
        ("  type: custom\n  value:\n", "labels.value: with type custom, should be name: formula"),
        (
            "  type: custom\n  names: [a]\n  value: {n: x, n_mask: y}\n",
            "labels.value.n_mask: a class number has no mask",
        ),
    ],
)
def test_faults_in_labels(text, message):
    with pytest.raises(ConfigError, match=message):
        labels(text)


def test_collections_and_groups_of_jets():
    text = """\
inputs:
  sv_features: {length: 5, vars: [sv_pt]}
  pf_points: {length: 10, vars: [a, b, c]}
  pf_features: {length: 10, vars: [a]}
  pf_extra: {length: 10, vars: [a, b]}
  highlevel: {length: null, vars: [jet_pt]}
  lt_features: {length: null, vars: [lt_pt]}
  lt_mask: {length: null, vars: [lt_mask]}
  jet_features: {length: 1, vars: [jet_mass, jet_eta]}
  constituents_points: {length: 20, vars: [a, b, c]}
labels: {type: simple, value: [x, y]}
"""
    config = parse(text)
    assert list(config.collections) == ["sv", "pf", "lt", "constituents"]
    assert list(config.jet_groups) == ["highlevel", "jet_features"]
    assert config.main.name == "pf"
    assert config.group_order[:3] == ("sv_features", "pf_points", "pf_features")
    assert config.input_shape.collections["pf"] == CollectionShape(1, num_coordinates=3, others={"extra": 2})
    assert config.input_shape.collections["constituents"] == CollectionShape(0, num_coordinates=3)
    assert config.input_shape.jet_features == {"highlevel": 1, "jet_features": 2}
    assert config.collections["lt"].mask_variable == "lt_mask"
    assert "lt_mask" in config.input_names
    assert parse(config.to_yaml()) == config
