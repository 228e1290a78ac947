"""`partt convert`: every event of the public datasets, in order, with the particles that it had."""

import itertools
import math
import pickle
import resource
import tracemalloc
import zipfile

import h5py
import numpy as np
import pytest
from dataset_files import (
    FIXTURE,
    fixture_columns,
    jetclass_arrays,
    top_landscape_columns,
    write_quark_gluon,
    write_top_landscape,
)

from partt.cli.main import main
from partt.conversion import dataset as dataset_module
from partt.conversion.convert import convert
from partt.data.config.data_config import load_data_config
from partt.data.files.tables import inspect_file, read_columns
from partt.data.variables import read_variables
from partt.errors import DataError
from partt.tagger.loading import load_tagger

NUM_JETS = 25


def convert_one(kind, path, out) -> dict:
    assert main(["convert", kind, str(path), "--out", str(out)]) == 0
    return read_columns(str(out), sorted(inspect_file(str(out)).branches))


def jets_of(column) -> list[np.ndarray]:
    return [column.contents[a:b] for a, b in itertools.pairwise(column.offsets)]


def check_jets(columns):
    """Compare jets with slow sums over their particles."""
    names = ("px", "py", "pz", "energy", "deta", "dphi")
    for jet, particles in enumerate(zip(*(jets_of(columns[f"part_{name}"]) for name in names), strict=True)):
        px, py, pz, energy, deta, dphi = (values.astype(float) for values in particles)
        total = [sum(values) for values in (px, py, pz, energy)]
        pt = math.hypot(total[0], total[1])
        assert columns["jet_pt"][jet] == pytest.approx(pt, rel=1e-5)
        assert columns["jet_energy"][jet] == pytest.approx(total[3], rel=1e-5)
        assert columns["jet_nparticles"][jet] == columns["n_parts"][jet] == len(px)
        if len(px) == 0:
            continue
        eta, phi = math.asinh(total[2] / pt), math.atan2(total[1], total[0])
        assert columns["jet_eta"][jet] == pytest.approx(eta, rel=1e-5, abs=1e-6)
        assert columns["jet_phi"][jet] == pytest.approx(phi, rel=1e-5, abs=1e-6)
        mass = math.sqrt(max(total[3] ** 2 - pt**2 - total[2] ** 2, 0))
        assert columns["jet_mass"][jet] == pytest.approx(mass, rel=1e-3, abs=0.05)
        sign = -1 if eta < 0 else 1
        expected = [
            sign * (math.asinh(z / math.hypot(x, y)) - eta) for x, y, z in zip(px, py, pz, strict=True)
        ]
        assert deta == pytest.approx(expected, abs=1e-5)
        turns = (np.arctan2(py, px) - phi - dphi) / (2 * np.pi)
        assert turns == pytest.approx(np.rint(turns), abs=1e-5)
        assert (np.abs(dphi) <= np.pi + 1e-6).all()


# --- what is in the files is in the ROOT files ---


def test_top_landscape_as_pandas_writes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_module, "JETS_PER_TABLE", 7)  # several tables, the last one not full
    columns = convert_one("toplandscape", FIXTURE, tmp_path / "top.root")
    expected = fixture_columns()
    assert columns["label"].tolist() == expected["is_signal_new"].tolist()
    for name, component in (("energy", "E"), ("px", "PX"), ("py", "PY"), ("pz", "PZ")):
        for jet, values in enumerate(jets_of(columns[f"part_{name}"])):
            row = [expected[f"{component}_{i}"][jet] for i in range(200) if expected[f"E_{i}"][jet] > 0]
            assert values.tolist() == row
    assert columns["jet_nparticles"][3] == 0  # an event without particles is kept
    check_jets(columns)


def test_quark_gluon(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_module, "JETS_PER_TABLE", 10)
    arrays = write_quark_gluon(tmp_path / "qg.npz", NUM_JETS)
    columns = convert_one("quarkgluon", tmp_path / "qg.npz", tmp_path / "qg.root")
    assert columns["label"].tolist() == arrays["y"].tolist()
    charges = {211: 1, 321: 1, 2212: 1, 11: -1, 13: -1}
    kinds = {211: "ChargedHadron", 321: "ChargedHadron", 2212: "ChargedHadron", 130: "NeutralHadron"}
    kinds |= {2112: "NeutralHadron", 22: "Photon", 11: "Electron", 13: "Muon"}
    for jet in range(NUM_JETS):
        particles = sorted((row for row in arrays["X"][jet] if row[0] > 0), key=lambda row: -row[0])
        found = {name: jets_of(columns[name])[jet] for name in columns if name.startswith("part_")}
        assert found["part_pid"].tolist() == [row[3] for row in particles]
        for i, (pt, eta, phi, pid) in enumerate(particles):
            momentum = (pt * math.cos(phi), pt * math.sin(phi), pt * math.sinh(eta), pt * math.cosh(eta))
            got = [found[f"part_{name}"][i] for name in ("px", "py", "pz", "energy")]
            assert got == pytest.approx(momentum, rel=1e-5, abs=1e-5)
            code = int(abs(pid))
            assert found["part_charge"][i] == charges.get(code, 0) * np.sign(pid)
            flags = [name for name in found if name.startswith("part_is") and found[name][i]]
            assert flags == [f"part_is{kinds[code]}"]
    check_jets(columns)


def test_jetclass_npz(tmp_path):
    arrays = jetclass_arrays(NUM_JETS)
    np.savez(tmp_path / "jets.npz", **arrays)
    columns = convert_one("jetclass-npz", tmp_path / "jets.npz", tmp_path / "jets.root")
    for jet in range(NUM_JETS):
        real = arrays["mask"][jet, 0] > 0
        for i, name in enumerate(("px", "py", "pz", "energy")):
            assert np.array_equal(jets_of(columns[f"part_{name}"])[jet], arrays["momenta"][jet, i, real])
        for i, name in enumerate(("deta", "dphi")):
            assert np.array_equal(jets_of(columns[f"part_{name}"])[jet], arrays["points"][jet, i, real])
    classes = load_data_config("jetclass_kin").labels.value
    for number, name in enumerate(classes):
        assert columns[name].tolist() == arrays["labels"][:, number].tolist()
    assert np.isnan(columns["jet_sdmass"]).all()


def test_real_jets_get_the_scores_that_others_computed(reference, tmp_path):
    """500 jets of the real JetClass, and what weaver-core's ParticleNet says about them."""
    jets, tagger_file = tmp_path / "jets.root", tmp_path / "tagger.safetensors"
    assert (
        main(["convert", "jetclass-npz", str(reference / "jetclass_500_real_jets.npz"), "--out", str(jets)])
        == 0
    )
    weights = str(reference / "ParticleNet_kin.pt")
    options = ["--arch", "particlenet", "--features", "kin", "--out", str(tagger_file)]
    assert main(["import-weaver", weights, *options]) == 0
    tagger = load_tagger(tagger_file)
    variables = read_variables(
        tagger.data_config, tagger.data_config.input_names, inspect_file(str(jets)), 0, 500
    )
    scores = tagger.tag(variables).probabilities
    expected = np.load(reference / "particlenet_kin_scores_on_500.npy")
    np.testing.assert_allclose(scores, expected, atol=2e-5)


# --- the configs fit, and training runs ---


@pytest.fixture
def files(tmp_path):
    write_quark_gluon(tmp_path / "quarkgluon.npz", 40)
    np.savez(tmp_path / "jetclass-npz.npz", **jetclass_arrays(40))
    return {
        "toplandscape": FIXTURE,
        "quarkgluon": tmp_path / "quarkgluon.npz",
        "jetclass-npz": tmp_path / "jetclass-npz.npz",
    }


@pytest.mark.parametrize(
    ("kind", "configs"),
    [
        ("toplandscape", ["top_landscape_kin"]),
        ("quarkgluon", ["quark_gluon_kin", "quark_gluon_kinpid", "quark_gluon_kinpidplus"]),
        ("jetclass-npz", ["jetclass_kin"]),
    ],
)
def test_check_and_train(files, tmp_path, kind, configs, capsys):
    jets = tmp_path / "jets.root"
    convert_one(kind, files[kind], jets)
    changes = ("batch_size=8", "epochs=null", "steps=2")
    for config in configs:
        assert main(["check", config, str(jets)]) == 0
        assert main(["check", config, str(jets), "--for", "predict"]) == 0
        options = [f"--set={change}" for change in (*changes, f"data_config={config}")]
        options += ["--out", str(tmp_path / config), "--threads", "1", "--workers", "0"]
        assert main(["train", "quick", "--train", str(jets), "--val-fraction", "0.3", *options]) == 0
    assert "best: epoch 1" in capsys.readouterr().out


# --- where files go ---


def test_one_file_or_one_for_each_input(tmp_path, capsys):
    for name in ("a", "b"):
        write_quark_gluon(tmp_path / f"{name}.npz", NUM_JETS)
    inputs = [str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]
    assert main(["convert", "quarkgluon", *inputs, "--out", str(tmp_path / "all.root")]) == 0
    assert inspect_file(str(tmp_path / "all.root")).num_entries == 2 * NUM_JETS
    assert main(["convert", "quarkgluon", *inputs, "--out", str(tmp_path / "each")]) == 0
    assert sorted(path.name for path in (tmp_path / "each").iterdir()) == ["a.root", "b.root"]
    assert capsys.readouterr().out.splitlines()[0] == f"{tmp_path / 'all.root'}: 50 jets"
    assert main(["convert", "quarkgluon", inputs[0], inputs[0], "--out", str(tmp_path / "twice")]) == 2
    assert "would both become" in capsys.readouterr().err


def test_progress_counts_all_files(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_module, "JETS_PER_TABLE", 20)
    for name in ("a", "b"):
        write_quark_gluon(tmp_path / f"{name}.npz", NUM_JETS)
    reports = []
    inputs = [tmp_path / "a.npz", tmp_path / "b.npz"]
    convert("quarkgluon", inputs, tmp_path / "out", lambda *report: reports.append(report))
    assert reports == [(20, 50), (25, 50), (45, 50), (50, 50)]


def test_a_file_without_jets(tmp_path):
    np.savez(tmp_path / "none.npz", X=np.zeros((0, 5, 4)), y=np.zeros(0))
    assert len(convert_one("quarkgluon", tmp_path / "none.npz", tmp_path / "none.root")["label"]) == 0


def test_memory_does_not_grow_with_the_file(tmp_path):
    num_jets = 20_000
    np.savez_compressed(tmp_path / "big.npz", X=np.zeros((num_jets, 140, 4)), y=np.zeros(num_jets))
    tracemalloc.start()
    convert("quarkgluon", [tmp_path / "big.npz"], tmp_path / "big.root")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.4 * num_jets * 140 * 4 * 8


# --- faults ---


def changed(arrays, **changes):
    return {name: value for name, value in {**arrays, **changes}.items() if value is not None}


def npz_faults():
    qg = {"X": np.ones((4, 3, 4)), "y": np.ones(4)}
    broken = qg["X"].copy()
    broken[2, 1, 0] = np.nan
    half = qg["X"].copy()
    half[1, 0, 3] = 0.5
    jetclass = jetclass_arrays(4)
    two = jetclass["labels"].copy()
    two[1] = 1
    return [
        ("quarkgluon", changed(qg, y=None), "has no array 'y'; it has: X"),
        (
            "quarkgluon",
            changed(qg, X=np.ones((4, 3, 3))),
            "X is float64 (4, 3, 3); expected numbers of shape (any, any, 4)",
        ),
        ("quarkgluon", changed(qg, y=np.ones(3)), "different numbers of jets: X (4, 3, 4), y (3,)"),
        ("quarkgluon", changed(qg, y=np.array([0, 1, 2, 1])), "entry 2: y must be 0 or 1, not 2"),
        ("quarkgluon", changed(qg, X=broken), "entry 2: X is not finite"),
        ("quarkgluon", changed(qg, X=half), "entry 1: X[..., 3] is 0.5, which is not a PDG code"),
        ("quarkgluon", changed(qg, y=np.array(["a"] * 4)), "y is <U1 (4,); expected numbers"),
        ("quarkgluon", changed(qg, y=np.array([None] * 4)), "it holds Python objects"),
        ("quarkgluon", changed(qg, X=np.asfortranarray(qg["X"])), "stored column by column"),
        ("jetclass-npz", qg, "has no array 'momenta'; it has: X, y"),
        ("jetclass-npz", changed(jetclass, points=np.zeros((4, 2, 39))), "points is float64 (4, 2, 39)"),
        ("jetclass-npz", changed(jetclass, labels=two), "entry 1: 10 labels are set instead of one"),
        ("jetclass-npz", changed(jetclass, mask=jetclass["mask"] * np.nan), "mask is not finite"),
    ]


@pytest.mark.parametrize(("kind", "arrays", "message"), npz_faults())
def test_a_wrong_npz_is_said_in_one_line(tmp_path, capsys, kind, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    assert_refused(kind, tmp_path / "bad.npz", message, capsys)


def assert_refused(kind, path, message, capsys):
    out = path.parent / "out"
    assert main(["convert", kind, str(path), "--out", str(out / "jets.root")]) == DataError.exit_code
    error = capsys.readouterr().err
    assert message in error
    assert str(path) in error
    assert error.count("\n") == 1
    assert not out.exists() or not list(out.iterdir())  # not even a temporary file


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.999])
@pytest.mark.parametrize("kind", ["toplandscape", "quarkgluon", "jetclass-npz"])
def test_truncated_files(files, tmp_path, capsys, kind, fraction):
    contents = files[kind].read_bytes()
    path = tmp_path / "cut"
    path.write_bytes(contents[: int(fraction * len(contents))])
    assert_refused(kind, path, "cannot read", capsys)


@pytest.mark.parametrize("kind", ["toplandscape", "quarkgluon", "jetclass-npz"])
def test_foreign_and_missing_files(tmp_path, capsys, kind):
    (tmp_path / "page.html").write_text("<html>Please log in</html>")
    assert_refused(kind, tmp_path / "page.html", "cannot read", capsys)
    assert_refused(kind, tmp_path / "nothing", "no such file", capsys)


def test_flipped_bits_of_an_npz(tmp_path, capsys):
    write_quark_gluon(tmp_path / "qg.npz", NUM_JETS, np.savez)
    contents = bytearray((tmp_path / "qg.npz").read_bytes())
    contents[5000] ^= 1  # in X, which is not compressed: only the checksum tells
    (tmp_path / "qg.npz").write_bytes(contents)
    assert_refused("quarkgluon", tmp_path / "qg.npz", "Bad CRC-32", capsys)


def test_an_array_that_is_shorter_than_its_shape(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", X=np.ones((4, 3, 4)), y=np.ones(4))
    with zipfile.ZipFile(tmp_path / "a.npz") as file, zipfile.ZipFile(tmp_path / "b.npz", "w") as other:
        other.writestr("X.npy", file.read("X.npy")[:-8])
        other.writestr("y.npy", file.read("y.npy") + b"more")
    assert_refused("quarkgluon", tmp_path / "b.npz", "needs 384 bytes, but it has 376", capsys)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_signal_new": None}, "lacks the columns is_signal_new; it has 805: E_0, PX_0"),
        ({f"PX_{i}": None for i in range(200)}, "lacks the columns PX_0, PX_1, PX_2 and 197 more"),
        ({"is_signal_new": np.array([0, 1, 0, 5])}, "entry 3: is_signal_new must be 0 or 1, not 5"),
        ({"PY_1": np.array([0, 0, np.inf, 0], np.float32)}, "entry 2: PY is not finite"),
    ],
)
def test_a_wrong_top_landscape_is_said_in_one_line(tmp_path, capsys, changes, message):
    columns = changed(top_landscape_columns(4), **changes)
    assert_refused("toplandscape", write_top_landscape(tmp_path / "bad.h5", columns), message, capsys)


def test_another_layout_of_hdf5(tmp_path, capsys):
    path = write_top_landscape(tmp_path / "other.h5", top_landscape_columns(4), key="jets")
    assert_refused("toplandscape", path, "has no table 'table/table'", capsys)
    with h5py.File(path, "w") as file:
        file["table/table"] = np.zeros(4)
    assert_refused("toplandscape", path, "has no table 'table/table'", capsys)


class Exploit:
    def __reduce__(self):
        return print, ("executed",)


def test_nothing_in_a_file_is_executed(tmp_path, capsys):
    path = write_top_landscape(tmp_path / "top.h5", top_landscape_columns(4))
    with h5py.File(path, "a") as file:
        for name in ("TITLE", "values_block_0_kind"):
            file["table/table"].attrs[name] = np.bytes_(pickle.dumps(Exploit(), 0))
    assert_refused("toplandscape", path, "columns have names", capsys)
    arrays = {"X": np.ones((1, 1, 4)), "y": np.array([Exploit()])}
    np.savez(tmp_path / "qg.npz", **arrays)
    assert main(["convert", "quarkgluon", str(tmp_path / "qg.npz"), "--out", str(tmp_path / "out")]) == 3
    assert "executed" not in capsys.readouterr().out


def test_a_full_disk_leaves_no_file(tmp_path, capsys):
    write_quark_gluon(tmp_path / "qg.npz", 200)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        code = main(
            ["convert", "quarkgluon", str(tmp_path / "qg.npz"), "--out", str(tmp_path / "out" / "a.root")]
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 5
    assert "cannot write" in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())


def test_an_input_that_is_given_twice_is_refused(tmp_path, capsys):
    """Its jets would be in the file twice; globs of the shell overlap easily."""
    write_quark_gluon(tmp_path / "qg.npz", 4)
    (tmp_path / "link.npz").symlink_to("qg.npz")
    for other in (tmp_path / "qg.npz", tmp_path / "link.npz"):
        words = [
            "convert",
            "quarkgluon",
            str(tmp_path / "qg.npz"),
            str(other),
            "--out",
            str(tmp_path / "a.root"),
        ]
        assert main(words) == 2
        assert f"{other} is given twice" in capsys.readouterr().err
    assert not (tmp_path / "a.root").exists()
