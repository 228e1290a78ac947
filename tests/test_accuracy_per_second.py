"""benchmarks/accuracy_per_second.py: differences jet by jet are of the same jets."""

import numpy as np
import pytest

import accuracy_per_second
from accuracy_per_second import check_test_jets, differences, fingerprint
from jets import make_jets
from partt.data.files.tables import write_table


def write_files(folder, seeds):
    folder.mkdir()
    for seed in seeds:
        write_table(folder / f"jets_{seed}.root", make_jets(20, seed=seed))
    return folder


def test_networks_of_a_file_are_tested_on_the_same_jets(tmp_path):
    first, again, other = (
        write_files(tmp_path / name, seeds) for name, seeds in (("a", (1, 2)), ("b", (2, 1)), ("c", (1, 3)))
    )
    results = {}
    check_test_jets(first, results)
    assert results == {"test_jets_sha256": fingerprint(again)}
    check_test_jets(again, results)
    with pytest.raises(SystemExit, match="c: these are not the jets that the networks"):
        check_test_jets(other, results)
    (other / "jets_3.root").unlink()
    with pytest.raises(SystemExit, match="c: these are not"):
        check_test_jets(other, results)


def test_differences_are_taken_jet_by_jet(tmp_path, monkeypatch):
    """Three seeds against three; both errors by hand."""
    monkeypatch.setattr(accuracy_per_second, "HERE", tmp_path)
    (tmp_path / "right_class").mkdir()
    right = np.random.default_rng(1).random((6, 1000)) < 0.7
    names = [f"{name}_seed_{seed}" for name in ("slim_s", "part_s") for seed in (1, 2, 3)]
    for name, bits in zip(names, right, strict=True):
        np.save(tmp_path / "right_class" / f"{name}.npy", np.packbits(bits))
    (found,) = differences(tmp_path, 1000).values()
    per_jet = right[:3].mean(axis=0) - right[3:].mean(axis=0)
    spread = [np.std(side.mean(axis=1), ddof=1) for side in (right[:3], right[3:])]
    assert found["accuracy"] == pytest.approx(right[:3].mean() - right[3:].mean())
    assert found["error_of_test_jets"] == pytest.approx(np.std(per_jet) / np.sqrt(1000))
    assert found["error_of_seeds"] == pytest.approx(np.hypot(*spread) / np.sqrt(3))
