"""Hostile configs and recipes: refused within seconds, with a line that names the file; never a traceback."""

import json
import os
import random
import re

import numpy as np
import pytest
import yaml

from attacks import NUM_ATTACKS, outcome
from partt.config import load_record, parse_record, parse_yaml
from partt.data.config.data_config import DataConfig, load_data_config
from partt.data.config.sections import matches
from partt.data.formulas.expressions import evaluate, parse_formula
from partt.data.jagged import Jagged
from partt.data.variables import file_branches
from partt.errors import ConfigError
from partt.training.recipe import Recipe, load_recipe

CONFIG = load_data_config("jetclass_kin").to_yaml()
RECIPE = load_recipe("jetclass_part_kin").to_yaml()


def refused(text: str, record_type: type = DataConfig) -> str:
    message = outcome(lambda: parse_record(text, record_type, "file.yaml"), max_lines=30)
    assert message is not None
    assert "file.yaml" in message
    return message


def with_key(key: str, value: object) -> str:
    return yaml.safe_dump({**yaml.safe_load(CONFIG), key: value})


@pytest.mark.parametrize("tag", ["!!bool foo", "!!timestamp foo", '!!int ""', "!!int 1", "!!python/none x",
                                 "!!binary _", "!!set {a}", "!foo x", "!!float x", "!!omap [a]"])  # fmt: skip
def test_tags_are_refused(tag):
    assert "is not supported" in refused(f"{CONFIG}\nselection: {tag}\n")


def test_text_may_have_its_tag():
    assert parse_yaml("a: !!str 5\n", "f")[0] == {"a": "5"}


@pytest.mark.parametrize(
    "text",
    [
        "[" + "0," * 499_000 + "]",  # 25 s in 0.1
        "a: !!int 1" + ":1" * 400_000,
        "a: 0x" + "f" * 900_000,
        "a: " + "9" * 900_000,
        "[" * 900_000,
        "{a: " * 200_000,
        "- " * 400_000,
        "? " * 400_000,
        "a: &a [x, x]\nb: " + "[*a, " * 60 + "]" * 60,
        "a0: &a0 x\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)),
        "a0: &a0 {x: y}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 40)),
        "[" * 7_900_000,
        "a: '" + "x " * 3_900_000 + "'",
        "a:" + "\n" * 7_900_000,
        "a: " + "x" * 8_100_000,
        "x" * 7_900_000 + ": 1",
        "---\n" * 1_900_000,
        "&" + "a" * 7_900_000,
        "new_variables: {a: '" + "+a" * 3_900_000 + "'}",
        "selection: '" + "(" * 7_900_000 + "'",
    ],
    ids=range(20),
)
def test_bombs_end_soon(text):
    refused(text)


def test_a_config_of_2_megabytes_loads():
    """weaver's *.auto.yaml have histograms of up to hundreds of classes, and 80 000 values in all."""
    data, num_classes = yaml.safe_load(CONFIG), 300
    classes = [f"label_class_number_{i}" for i in range(num_classes)]
    bins = [float(edge) for edge in range(75_000 // num_classes // 10 + 1)]
    hist = [[0.12345678901234567] * 10 for _ in bins[1:]]
    data["labels"] = {"type": "simple", "value": [*classes, "label_other"]}
    data["weights"] = {
        "use_precomputed_weights": False,
        "reweight_method": "flat",
        "reweight_vars": {"jet_pt": bins, "jet_sdmass": [float(edge) for edge in range(11)]},
        "reweight_classes": classes,
        "reweight_hists": dict.fromkeys(classes, hist),
    }
    text = json.dumps(data, indent=2)  # YAML as well
    assert 1_500_000 < len(text) < 3_000_000
    loaded = []
    assert outcome(lambda: loaded.append(parse_record(text, DataConfig, "file.yaml"))) is None
    assert len(loaded[0].weights.reweight_hists) == num_classes


def test_a_key_may_be_given_twice_with_one_value():
    assert parse_yaml("a: {b: 1, b: 1}\n", "f")[0] == {"a": {"b": 1}}
    for text in ("{b: 1, b: 2}", "{b: 1, b: '1'}", "{b: [1], b: [1]}"):
        with pytest.raises(ConfigError, match="f:1: b: duplicate key"):
            parse_yaml(text, "f")


def test_base_60_is_text():
    """44 s in 0.1, for the number that nobody means."""
    assert parse_yaml("a: 1:30\nb: 1" + ":1" * 400_000, "f")[0]["a"] == "1:30"


@pytest.mark.parametrize(
    "key", ["observers", "monitor_variables", "new_variables", "branch_magic", "file_magic"]
)
def test_too_many_entries(key):
    names = [f"v{i}" for i in range(12_000)]
    value = {"file_magic": {"x": dict.fromkeys(names, 1.0)}}.get(key, dict.fromkeys(names, "a + b"))
    assert "at most 10000" in refused(
        with_key(key, names if key.endswith("s") and "new" not in key else value)
    )


def test_many_faults_are_counted_not_listed():
    assert refused(CONFIG + "".join(f"\nunknown{i}: 1" for i in range(3000))).endswith("and 2980 more")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*.*.*.*.*.*)*x"])
def test_regular_expressions_do_not_backtrack(pattern):
    config = parse_record(with_key("file_magic", {"x": {pattern: 1}}), DataConfig, "f")
    assert pattern in config.file_magic["x"]
    assert outcome(lambda: matches(pattern, "a" * 4000 + "!")) is None


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(" * 5000, "(a{500}){500}"])
def test_regular_expressions_without_a_bound_are_refused(pattern):
    refused(with_key("file_magic", {"x": {pattern: 1}}))


def test_branch_magic_that_grows():
    magic = {f"{'a' * 2**i}": "a" * 2 ** (i + 1) for i in range(9)} | {
        f"{'a' * i}": "b" * 999 for i in range(9, 500)
    }
    config = load_data_config("jetclass_kin").replace(branch_magic={"p": "a", **magic})
    assert "branch_magic" in outcome(lambda: file_branches(config, config.input_names))


@pytest.mark.parametrize("formula", ["x[:, ::0]", "x[:, 0.5:]", "x[:, 2**40:]", "ak.pad_none(x, 2.0)",
                                     "ak.fill_none(ak.pad_none(x, True), 0)[:, ::0]"])  # fmt: skip
def test_indices_and_lengths_are_whole_numbers(formula):
    table = {"x": Jagged(np.arange(5.0), np.array([0, 2, 2, 5]))}
    assert "cannot compute" in (message := outcome(lambda: evaluate(parse_formula(formula), table))) or (
        "slice" in message
    )


@pytest.mark.parametrize("change", [{"batch_size": 10**18}, {"accumulate": 10**18}, {"epochs": 10**30},
                                    {"keep_checkpoints": 10**18}, {"jets_per_epoch": 10**30}])  # fmt: skip
def test_recipes_have_bounds(change):
    refused(yaml.safe_dump({**yaml.safe_load(RECIPE), **change}), Recipe)


@pytest.mark.parametrize("settings", [{"num_blocks": 10**9}, {"width": 2**40}, {"num_class_blocks": 10**9},
                                      {"feed_forward_width": 10**12}, {"embedding_widths": [10**12]},
                                      {"pair_widths": [8] * 1000}, {"num_heads": 2**40}])  # fmt: skip
def test_networks_have_bounds(settings):
    recipe = yaml.safe_load(RECIPE)
    recipe["model"] = {"name": "part", "settings": settings}
    assert "model" in refused(yaml.safe_dump(recipe), Recipe)


def test_a_sparse_file_and_a_pipe_are_not_read(tmp_path):
    with (tmp_path / "big.yaml").open("wb") as file:
        file.truncate(3 * 2**30)
    os.mkfifo(tmp_path / "pipe.yaml")
    for name, words in (("big.yaml", "3221225472 bytes"), ("pipe.yaml", "not a regular file")):
        path = tmp_path / name
        assert words in outcome(lambda path=path: load_record(path, DataConfig))


# --- a seeded generator ---------------------------------------------------------------------------------

SCALARS = ["!!bool x", "!!int ''", "!!timestamp x", "!!float x", "!!binary _", "!!set [a]", "!!omap {a: 1}", "1:2:3", "0x_", "0b_", "._", "1e999", ".nan", "-.inf", "2001-99-99", "~", "''",
           "yes", "null", "9" * 400, "1e-3", "'\\0'", '"\\ud800"', "*a", "&a x", "<<", "|", ">-", "%", "@", "`",
           "{}", "[]", "[[]]", "{a: }", "{? a}", "ak.sum(x)", "x[:, ::0]", "__import__('os')", "é\u2028", "\x85",
           "!<tag:yaml.org,2002:int> x", "0o7", "+1", "1_000", "{<<: {a: 1}}", "{<<: 1}", "[*b]"]  # fmt: skip


def attacked(text: str, rng: random.Random) -> bytes:
    lines = text.split("\n")
    for _ in range(rng.choice([1, 1, 1, 2, 4])):  # one fault hides the others
        keys = [place for place, line in enumerate(lines) if re.match(r" *\w+: \S", line)]
        if keys and rng.random() < 0.5:
            position = rng.choice(keys)
            lines[position] = f"{lines[position].partition(':')[0]}: {rng.choice(SCALARS)}"
            continue
        position = rng.randrange(len(lines))
        line = lines[position]
        key, colon, _value = line.partition(":")
        match rng.randrange(7):
            case 0 | 1 | 2 if colon:
                lines[position] = f"{key}: {rng.choice(SCALARS)}"
            case 3:
                lines.insert(position, lines[rng.randrange(len(lines))])
            case 4:
                del lines[position : position + rng.randint(1, 3)]
                lines = lines or [""]
            case 5:
                lines[position] = " " * rng.randint(0, 5) + rng.choice(SCALARS) + line.strip()
            case _:
                cut = rng.randint(0, len(line))
                lines[position] = (
                    line[:cut] + rng.choice(["\t", ":", "-", "#", "'", '"', "\x00", "{", "]"]) + line[cut:]
                )
    data = bytearray("\n".join(lines).encode("utf-8", "surrogatepass"))
    if rng.random() < 0.2:
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


@pytest.mark.parametrize(("text", "record_type"), [(CONFIG, DataConfig), (RECIPE, Recipe)])
def test_attacks(text, record_type):
    for seed in range(NUM_ATTACKS):
        data = attacked(text, random.Random(seed))

        def attempt(data=data):
            record = parse_record(data, record_type, "file.yaml")
            if isinstance(record, DataConfig):
                assert record.input_names
                file_branches(record, record.input_names)

        try:
            outcome(attempt, max_lines=40)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_errors_name_the_file():
    with pytest.raises(ConfigError, match="file.yaml"):
        parse_record(b"\xff\xfe\x00", DataConfig, "file.yaml")
