import pickle
import time
import warnings
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partt.data.formulas.column_functions import LengthsDisagreeError
from partt.data.formulas.expressions import evaluate, inline, parse_formula
from partt.data.formulas.functions import FunctionTable
from partt.data.jagged import Column, Jagged, to_awkward
from partt.errors import ConfigError, DataError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from weaver.utils.data.eval_utils import _eval_expr


def make_table(lengths: list[int], seed: int = 0) -> dict[str, Column]:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    num_jets, num_particles = len(lengths), int(offsets[-1])

    def per_particle(values):
        return Jagged(values, offsets.copy())  # every branch of a file has its own offsets

    return {
        "px": per_particle(rng.normal(size=num_particles).astype(np.float32)),
        "py": per_particle(rng.normal(size=num_particles).astype(np.float32)),
        "pz": per_particle(rng.normal(size=num_particles).astype(np.float32)),
        "energy": per_particle((5 + rng.random(num_particles)).astype(np.float32)),
        "d0": per_particle(rng.normal(size=num_particles)),
        "pid": per_particle(rng.choice([-211, 22, 130, 211], num_particles).astype(np.int32)),
        "jet_pt": (500 + rng.random(num_jets)).astype(np.float32),
        "jet_eta": rng.normal(size=num_jets),
        "label": rng.integers(0, 2, num_jets).astype(np.int32),
    }


TABLE = make_table([3, 0, 1, 4])

# Formulas that mean the same in weaver.
SHARED = [
    "np.log(np.hypot(px, py) / jet_pt)",
    "numpy.log10(energy)",
    "np.tanh(d0)",
    "1-label",
    "label",
    "-px + 2 * py ** 2 - pz / 3",
    "pid // 2 + pid % 3",
    "np.abs(pid) == 211",
    "(np.abs(pid)==211) + (np.abs(pid)==22)*0.5 + (np.abs(pid)==130)*0.2",
    "(jet_pt > 500.5) & ~(np.abs(jet_eta) < 1) | (label == 1)",
    "(px > 0) ^ (py > 0)",
    "np.pi * px + math.sqrt(2) * math.pi",
    "px * d0",
    "np.maximum(px, jet_eta)",
    "np.arctan2(py, px)",
    "ak.where(px > 0, px, jet_pt)",
    "np.clip(jet_pt, 500.2, 500.7)",
    "_clip(px, -0.5, 0.5)",
    "np.clip(jet_pt, None, 500.5)",
    "np.nan_to_num(np.log(px), nan=-1, neginf=-2)",
    "ak.ones_like(energy)",
    "awkward.zeros_like(pid)",
    "ak.full_like(px, 3)",
    "np.round(px, 2)",
    "np.isfinite(np.log(px))",
    "np.log(px)",
    "ak.sum(px, axis=1)",
    "np.sum(px > 0, axis=-1)",
    "np.mean(px, axis=1)",
    "ak.any(px > 1, axis=1)",
    "ak.fill_none(np.max(px, axis=1), 0)",
    "ak.fill_none(ak.argmax(px, axis=1), -1)",
    "ak.fill_none(np.log(ak.max(energy, axis=1) * 2), 1)",
    "px / ak.sum(px, axis=1, keepdims=True)",
    "px / jet_pt[:, None]",
    "(px / ak.sum(px, axis=1)) * jet_pt[:, None]",
    "ak.num(px)",
    "ak.count(px, axis=1)",
    "ak.local_index(px)",
    "len(px) * jet_pt",
    "px[:, :2]",
    "px[:, ::-1]",
    "px[:, -2:]",
    "px[pid == 22]",
    "px[ak.argsort(px, ascending=False)]",
    "ak.sum(px[(pid == 22) & (py > 0)], axis=1)",
    "ak.sort(px)",
    "_batch_gather(px, _batch_argsort(py))",
    "ak.fill_none(ak.pad_none(px, 2, clip=True), -1)[:, 1]",
    "ak.flatten(ak.fill_none(ak.pad_none(px, target=1, clip=True), value=-1))",
    "ak.fill_none(ak.firsts(px), 0)",
    "ak.is_none(ak.firsts(px))",
    "ak.drop_none(ak.pad_none(px, 2))",
    "ak.fill_none(ak.firsts(px[ak.argmax(px, axis=1, keepdims=True)]), 0)",
    "ak.concatenate([px, py], axis=1)",
    "np.stack([ak.to_numpy(label), ak.to_numpy(jet_pt)], axis=1)",
    "np.argmax(np.stack([ak.to_numpy(label), ak.to_numpy(1 - label)], axis=1), axis=1)",
    "ak.values_astype(pid, 'float32') / 2",
    "ak.values_astype(px, np.int64)",
    "_p4_from_pxpypze(px, py, pz, energy).mass",
    "_p4_from_pxpypze(px, py, pz, energy).rapidity",
    "_p4_from_ptetaphie(energy, px, py, 2 * energy).pz",
    "_p4_from_ptetaphim(energy, px, py, 0).energy",
    "_p4_from_ptetaphim(jet_pt, jet_eta, jet_eta, label).px",
]


def assert_as_weaver(text: str, table: dict[str, Column]) -> None:
    ours = evaluate(parse_formula(text), table)
    with np.errstate(all="ignore"):
        weavers = _eval_expr(text, ak.Array({name: to_awkward(column) for name, column in table.items()}))
    weavers = ak.from_regular(ak.Array(weavers), axis=None)
    if "fill_none" in text:  # awkward's type depends on the values
        weavers = ak.values_astype(weavers, np.asarray(ours).dtype)
    assert ak.array_equal(to_awkward(ours), weavers, equal_nan=True, dtype_exact=True), text
    assert type(ours) in {np.ndarray, Jagged}


@pytest.mark.parametrize("text", SHARED)
def test_same_as_weaver(text):
    assert_as_weaver(text, TABLE)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.sampled_from(SHARED), st.integers(0, 99))
def test_same_as_weaver_on_any_table(lengths, text, seed):
    assert_as_weaver(text, make_table(lengths, seed))


operands = st.sampled_from(["px", "py", "d0", "pid", "jet_pt", "jet_eta", "label", "2", "0.5", "np.pi"])
elementwise_texts = st.recursive(
    operands,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "<", ">="]), inner),
        st.builds("np.{}({} + label)".format, st.sampled_from(["log", "sqrt", "tanh", "exp", "abs"]), inner),
        st.builds(
            "np.{}({}, {} + label)".format, st.sampled_from(["hypot", "minimum", "arctan2"]), inner, inner
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6), elementwise_texts, st.sampled_from(["px", "jet_pt"])
)
def test_elementwise_formulas_same_as_weaver(lengths, text, at_least):
    table = make_table(lengths)
    text = f"{at_least} * {text}"
    try:
        ours = evaluate(parse_formula(text), table)
    except ConfigError:
        with np.errstate(all="ignore"), pytest.raises((TypeError, ArithmeticError, ValueError)):
            _eval_expr(text, ak.Array({name: to_awkward(column) for name, column in table.items()}))
        return
    assert len(ours) == len(lengths)
    assert_as_weaver(text, table)


def test_names_are_the_variables_read():
    formula = parse_formula("np.log(part_pt / jet_pt) + math.pi * len(x) + _p4_from_pxpypze(a, b, c, d).pt")
    assert formula.names == {"part_pt", "jet_pt", "x", "a", "b", "c", "d"}
    assert pickle.loads(pickle.dumps(formula)) == formula  # noqa: S301
    np.testing.assert_array_equal(
        evaluate(pickle.loads(pickle.dumps(parse_formula("label + 1"))), TABLE),  # noqa: S301
        TABLE["label"] + 1,
    )


@pytest.mark.parametrize("lengths", [[3, 1], [3, 0]])
def test_filled_values_keep_their_type(lengths):
    table = make_table(lengths)
    assert evaluate(parse_formula("ak.fill_none(ak.firsts(px), 0)"), table).dtype == np.float32
    assert evaluate(parse_formula("ak.fill_none(ak.firsts(pid), 0.5)"), table).dtype == np.float64


def test_functions_of_numbers_keep_float32():
    result = evaluate(parse_formula("px * np.sqrt(2) / np.log(3)"), TABLE)
    assert result.contents.dtype == np.float32  # awkward gives float64


def test_where_keeps_float32_with_single_numbers():
    result = evaluate(parse_formula("np.where(px > 0, px, -1)"), TABLE)
    px = TABLE["px"].contents
    np.testing.assert_array_equal(result.contents, np.where(px > 0, px, np.float32(-1)))
    assert result.contents.dtype == np.float32  # awkward gives float64


def test_chained_comparisons_act_on_every_element():
    result = evaluate(parse_formula("-0.5 < px <= 0.5"), TABLE)
    px = TABLE["px"].contents
    np.testing.assert_array_equal(result.contents, (px > -0.5) & (px <= 0.5))


def test_single_numbers_stand_for_all_jets():
    np.testing.assert_array_equal(evaluate(parse_formula("2**3"), TABLE), [8, 8, 8, 8])


def test_columns_are_not_changed():
    before = {
        name: np.copy(column.contents if isinstance(column, Jagged) else column)
        for name, column in TABLE.items()
    }
    for text in SHARED:
        evaluate(parse_formula(text), TABLE)
    with pytest.raises(ConfigError, match="takes 1 arguments, not 2"):
        evaluate(parse_formula("np.log(px, py)"), TABLE)  # numpy would write into py
    for name, column in TABLE.items():
        np.testing.assert_array_equal(column.contents if isinstance(column, Jagged) else column, before[name])


def test_disagreeing_lengths_name_columns_and_jet():
    table = {**TABLE, "other": Jagged(np.ones(8), np.array([0, 3, 3, 5, 8]))}
    with pytest.raises(LengthsDisagreeError, match=r"^px and other disagree: 1 and 2 values$") as error:
        evaluate(parse_formula("np.log(px * other)"), table)
    assert error.value.jet == 2
    with pytest.raises(DataError, match=r"^px and short disagree: 4 and 2 jets$"):
        evaluate(parse_formula("px * short"), {**TABLE, "short": np.ones(2)})
    with pytest.raises(DataError, match="disagree"):
        evaluate(parse_formula("px[other > 0]"), table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("part_ptt", "neither a branch nor a variable: 'part_ptt'"),
        ("jet_ptt", "(did you mean 'jet_pt'?)"),
        ("np.max(px, axis=1)", "gives no value for jet 1 (an empty jet?): use ak.fill_none(..., value)"),
        ("ak.pad_none(px, 3)", "gives no value for jet 1"),
        ("ak.sum(px)", "needs axis=1: a result over all jets would depend on how the files are read"),
        ("np.sum(px, axis=0)", "needs axis=1"),
        ("ak.sum(jet_pt, axis=1)", "takes a column with values per particle"),
        ("ak.flatten(px)", "changes the number of jets"),
        ("px[0]", "the first index runs over jets and must be `:`, as in [:, 0]"),
        ("px[:, 0]", "some jets are too short: pad them with ak.pad_none and ak.fill_none"),
        ("px[:, None]", "[:, None] is for columns with one value per jet"),
        ("px[label]", "a column must be the only index and have values per particle"),
        ("px[:, label]", "a column must be the only index"),
        ("_p4_from_pxpypze(px, py, pz, energy)", "gives four-momenta: take a component, such as .pt"),
        ("px.pt", "only what _p4_from_...() returns has .pt"),
        ("math.sqrt(px)", "takes single numbers; for columns use np.sqrt"),
        ("math.atan(px)", "for columns use np.arctan"),
        ("math.log(0)", "cannot compute `math.log(0)`"),
        ("np.sqrt(px, axis=1)", "takes no keyword 'axis'"),
        ("(px > 0) - (py > 0)", "cannot compute `(px > 0) - (py > 0)`: numpy boolean subtract"),
        ("ak.pad_none(px, 10**9)", "must be a whole number between 1 and 4096"),
        ("np.nan_to_num(px, nan=py)", "keyword arguments take single numbers"),
        ("np.where(px > 0, px, None)", "takes columns and numbers only"),
        ("np.logical_not(None)", "takes columns and numbers only"),
        ("np.stack([px, px], axis=1)", "takes a list of columns with one value per jet"),
        ("len(px)**len(px)**len(px)**len(px)", "an exponent may be at most 100"),
    ],
)
def test_formulas_that_cannot_be_computed(text, message):
    with pytest.raises(ConfigError) as caught:
        evaluate(parse_formula(text), TABLE)
    assert message in str(caught.value)


def test_empty_table():
    table = make_table([])
    for text in ("np.log(px / jet_pt)", "ak.sum(px, axis=1)", "px[:, :1]", "3"):
        assert len(evaluate(parse_formula(text), table)) == 0


@pytest.mark.parametrize(
    "attack",
    [
        "__import__('os').system('touch {flag}')",
        "open('{flag}', 'w')",
        "np.save('{flag}', px)",
        "px.tofile('{flag}')",
        "().__class__.__bases__[0].__subclasses__()",
        "px.__class__",
        "px.contents",
        "np.load('x.npy')",
        "np.fromfile('/etc/passwd')",
        "np.lib.npyio.load('x')",
        "np.os.system('touch {flag}')",
        "numpy.core",
        "ak.from_parquet('x')",
        "ak.numba",
        "math.factorial(10**9)",
        "math.comb(10**9, 10**8)",
        "(lambda: 1)()",
        "[x for x in px]",
        "{{x for x in px}}",
        "{{1: 2}}",
        "(x for x in px)",
        "f'{{px}}'",
        "'a' * 10**9",
        "b'a'",
        "[1] * 10**9",
        "(1,) * 10**9",
        "-[1]",
        "9**9**9",
        "9**9**9**9 * px",
        "10**100",
        "2.0**99999",
        "1 << 10**9",
        "px << 3",
        "px @ py",
        "1e400 ** 2 ** 9999",
        "9" * 4000,
        "1" + "0" * 30,
        "1j",
        "...",
        "None",
        "px[...]",
        "px[py:]",
        "*px",
        "np.log(*px)",
        "np.log(**px)",
        "np.log(px, out=py)",
        "np.log(px, where=py)",
        "np.ones(10**12)",
        "np.zeros(10**12)",
        "np.full(10**12, 1)",
        "np.arange(10**12)",
        "np.repeat(px, 10**9)",
        "np.tile(px, 10**9)",
        "np.random.rand(10)",
        "np.vectorize(px)",
        "np",
        "np.log",
        "len",
        "_clip",
        "_x",
        "__builtins__",
        "getattr(px, 'a')",
        "eval('1')",
        "(x := 1)",
        "await px",
        "px; py",
        "import os",
        "x = 1",
        "",
        "   ",
        "np.log(",
        "a\x00b",
        "px and py",
        "not px",
        "px if py else pz",
        "px in py",
        "px is py",
        "px > 1 & py < 2",
        "_pad(px, 128)",
        "_hash(px)",
        "ak.unflatten(px, 3)",
        "ak.cartesian([px, px])",
        "ak.values_astype(px, 'O')",
        "ak.values_astype(px, np.dtype)",
        "1/0",
        "(-1)**0.5",
        "-" * 4000 + "px",
        "~" * 200 + "px",
        "(" * 1000 + "px" + ")" * 1000,
        "(" * 150 + "1" + "+1)" * 150,
        "px" + "[0]" * 1000,
        "px" + ".pt" * 1000,
        "px" + "+px" * 1000,
        "1+" * 500_000 + "1",
    ],
)
def test_attacks_are_refused_at_once(attack, tmp_path: Path):
    flag = tmp_path / "executed"
    start = time.perf_counter()
    with pytest.raises(ConfigError) as caught:
        parse_formula(
            attack.format(flag=flag) if "flag" in attack else attack.replace("{{", "{").replace("}}", "}")
        )
    assert time.perf_counter() - start < 1
    assert not flag.exists()
    assert len(str(caught.value)) < 400


def test_repeated_doubling_is_stopped():
    table = dict(TABLE)
    doubled = parse_formula("ak.concatenate([x, x], axis=1)")
    start = time.perf_counter()
    with pytest.raises(ConfigError, match="more than 4096 values per jet"):  # noqa: PT012
        table["x"] = table["px"]
        for _ in range(60):
            table["x"] = evaluate(doubled, table)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a and b", "write & and | with parentheses around each part instead of `and` and `or`"),
        ("not a", "write ~(...) instead of `not`"),
        ("a if b else c", "write np.where(condition, a, b) instead of `if`"),
        ("a > 1 & b < 2", "put parentheses around each comparison: (a > 1) & (b < 2)"),
        ("a in b", "comparisons with 'in' do not work on columns"),
        (
            "np.lgo(a)",
            "is not among the functions that formulas may use (did you mean 'np.log'?)",
        ),
        ("np.ones(3)", "cannot be used in formulas: write np.ones_like(a column)"),
        ("np.random.rand(3)", "random numbers differ from run to run"),
        ("_pad(a, 3)", "partt does not pad jets"),
        ("a.shape", "allowed are .px .py .pz .energy .pt .eta .phi .mass"),
        ("'a'", "text is not supported in formulas"),
        ("9**9**9", "an exponent may be at most 100"),
        ("np.log(a", "not a valid formula: '(' was never closed in 'np.log(a'"),
        ("1+" * 3000, "the formula is longer than 4096 characters"),
        ("a" + "+a" * 60, "the formula is nested deeper than 50 levels"),
    ],
)
def test_messages(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_formula(text)
    assert message in str(caught.value)


def test_momenta_can_be_inlined():
    momenta = parse_formula("_p4_from_pxpypze(px, py, pz, energy)")
    assert momenta.is_momenta
    formula = inline(parse_formula("p4.pt / jet_pt"), {"p4": momenta})
    assert formula.names == {"px", "py", "pz", "energy", "jet_pt"}
    np.testing.assert_allclose(
        evaluate(formula, TABLE).contents,
        evaluate(parse_formula("np.hypot(px, py) / jet_pt"), TABLE).contents,
        rtol=1e-6,
    )


def test_another_backend_brings_its_own_functions():
    import ast
    import math

    table = FunctionTable(
        functions={"np.log": math.log},
        operators={ast.Div: lambda a, b: a / b},
        item=lambda value, index: value[index],
        attribute=getattr,
        finish=lambda value, table: value,
    )
    assert evaluate(parse_formula("np.log(a / b)"), {"a": 2.0, "b": 1.0}, table) == math.log(2)
    with pytest.raises(ConfigError, match=r"^np\.exp is not available here"):
        evaluate(parse_formula("np.exp(a)"), {"a": 2.0}, table)


def test_costs_barely_more_than_numpy():
    lengths = np.random.default_rng(0).integers(10, 70, 6400)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    table = {
        "part_pt": Jagged(np.ones(offsets[-1], np.float32), offsets),
        "jet_pt": np.ones(6400, np.float32),
    }
    formula = parse_formula("np.log(part_pt / jet_pt)")

    def fastest(function):
        times = []
        for _ in range(20):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times)

    by_numpy = fastest(lambda: np.log(table["part_pt"].contents / np.repeat(table["jet_pt"], lengths)))
    assert fastest(lambda: evaluate(formula, table)) < 1.5 * by_numpy + 1e-3
