"""`partt check` finds what would break a job, and says what to do."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml
from kinds_of_configs import INPUTS, LABELS_OF_WEAVER, PF_AND_SV, make_events, write_events

from conftest import FIXTURES
from jets import make_jets, write_jets
from partt.cli.main import main
from partt.config import shipped_file
from partt.data.files.tables import write_table
from partt.data.jagged import Jagged


def check(capsys, *arguments: str) -> tuple[int, dict]:
    """Run `partt check --json`; return the exit code and the report."""
    code = main(["check", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def texts(report: dict, severity: str) -> list[str]:
    return [f"{f['where']}: {f['text']}" for f in report["findings"] if f["severity"] == severity]


def test_good_files_are_ready(tmp_path, capsys):
    files = [write_jets(tmp_path / f"{seed}.root", 100, seed=seed) for seed in range(2)]
    code, report = check(capsys, "jetclass_full", f"A:{files[0]}", f"B:{files[1]}")
    assert code == 0
    assert report["ready"]
    assert [(group["name"], group["num_entries"]) for group in report["groups"]] == [("A", 100), ("B", 100)]
    assert sum(sum(group["jets_by_class"].values()) for group in report["groups"]) == 200
    assert report["branches"]["part_isMuon"]["type"] == "int32[]"
    assert report["branches"]["jet_pt"]["type"] == "float32"
    assert texts(report, "error") == []


def test_the_layout_of_real_jetclass(capsys):
    code, report = check(capsys, "jetclass_full", FIXTURES / "jetclass_vector_layout.root")
    assert code == 0
    assert report["branches"]["label_Hbb"]["type"] == "bool"
    assert "class Hcc: has no jets among those read: a network cannot learn it" in texts(report, "warning")


def test_the_tables_can_be_read(tmp_path, capsys):
    file = write_jets(tmp_path / "a.root", 100)
    assert main(["check", "jetclass_full", f"QCD:{file}", "--limit", "50"]) == 0
    printed = capsys.readouterr().out
    for text in ("QCD", "part_logptrel", "float32[]", "ready", "--deep reads them all"):
        assert text in printed


def test_broken_files_and_missing_branches_are_all_named(tmp_path, capsys):
    jets = make_jets(20)
    jets["part_dz_error"] = jets.pop("part_dzerr")
    write_table(tmp_path / "lacking.root", jets)
    jets = make_jets(20)
    del jets["label_QCD"]
    write_table(tmp_path / "unlabelled.root", jets)
    (tmp_path / "page.root").write_text("<html><body>404</body></html>")
    whole = write_jets(tmp_path / "whole.root", 200)
    (tmp_path / "cut.root").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    code, report = check(capsys, "jetclass_full", f"{tmp_path}/*.root")
    errors = "\n".join(texts(report, "error"))
    assert code == 3
    assert len(texts(report, "error")) == 4
    assert "page.root: this is a web page (HTML), not a ROOT file" in errors
    assert "cut.root: the file is truncated" in errors
    assert "lacking.root: tree 'tree' lacks branches that the data config needs: part_dzerr (did" in errors
    assert "(did you mean 'part_dz_error'?); correct the names in the config" in errors
    assert "needs: label_QCD; jets without labels are for predict, masked_particles and --teacher; " in errors


def test_a_fault_of_several_files_is_one_line(tmp_path, capsys):
    jets = make_jets(20)
    del jets["part_dzerr"]
    for name in "abc":
        write_table(tmp_path / f"{name}.root", jets)
    assert main(["check", "jetclass_full", f"{tmp_path}/*.root"]) == 3
    printed = capsys.readouterr().out
    assert f"error {tmp_path}/a.root (and 2 more): tree 'tree' lacks branches" in printed
    assert "b.root" not in printed
    assert "not ready: 3 errors would stop a job" in printed


def test_deep_reads_everything(tmp_path, capsys):
    jets = make_jets(300, seed=2)
    jets["part_deta"].contents[-1] = np.inf
    write_table(tmp_path / "a.root", jets)
    code, report = check(capsys, "jetclass_full", tmp_path / "a.root", "--limit", "100")
    assert code == 0
    assert report["groups"][0]["num_read"] == 100
    code, report = check(capsys, "jetclass_full", tmp_path / "a.root", "--deep")
    assert code == 3
    assert report["branches"]["part_deta"]["infinite"] == 1
    (error,) = texts(report, "error")
    assert "a.root, entry 299: an input is infinite or a momentum is not finite (1 in all)" in error


def test_values_and_lengths(tmp_path, capsys):
    jets = make_jets(100)
    jets["part_d0val"].contents[:7] = np.nan
    write_table(tmp_path / "a.root", jets)
    code, report = check(capsys, "jetclass_full", tmp_path / "a.root")
    warnings = "\n".join(texts(report, "warning"))
    assert code == 0
    assert report["branches"]["part_d0val"]["nan"] == 7
    assert "part_d0val: 7 NaN and 0 infinite" in warnings
    assert "have no particles" in warnings
    assert "have more than 128 particles (up to 140) and are cut" in warnings


def test_lengths_that_disagree(tmp_path, capsys):
    jets = make_jets(30)
    column = jets["part_deta"]
    lengths = column.lengths.copy()
    lengths[8] += 1
    contents = np.append(column.contents, np.float32(0))
    jets["part_deta"] = Jagged(contents, np.concatenate([[0], np.cumsum(lengths)]))
    write_table(tmp_path / "a.root", jets)
    code, report = check(capsys, "jetclass_full", tmp_path / "a.root")
    assert code == 3
    assert "a.root, entry 8: part_deltaR: part_deta and part_dphi disagree" in texts(report, "error")[0]


def test_labels_and_balance(tmp_path, capsys):
    two = make_jets(50, ["QCD"])
    two["label_Hbb"] = two["label_Hbb"] | (np.arange(50) == 5)
    write_table(tmp_path / "two.root", two)
    code, report = check(capsys, "jetclass_full", tmp_path / "two.root")
    assert code == 3
    assert "entry 5: exactly one label must be 1" in texts(report, "error")[0]
    many, few = (
        write_jets(tmp_path / "many.root", 300, ["QCD"]),
        write_jets(tmp_path / "few.root", 3, ["Hbb"]),
    )
    code, report = check(capsys, "jetclass_full", many, few)
    assert code == 0
    assert any(
        "QCD has 300 jets, Hbb only 3; consider reweighting" in text for text in texts(report, "warning")
    )


def test_units(tmp_path, capsys):
    jets = make_jets(100)
    for name in ("part_px", "part_py", "part_pz", "part_energy"):
        jets[name] = Jagged(jets[name].contents * 1000, jets[name].offsets)
    jets["part_d0err"] = Jagged(jets["part_d0err"].contents / 100, jets["part_d0err"].offsets)
    write_table(tmp_path / "a.root", jets)
    _, report = check(capsys, "jetclass_full", tmp_path / "a.root")
    warnings = "\n".join(texts(report, "warning"))
    assert "these look like MeV; partt expects GeV" in warnings
    assert (
        f"part_d0err: the median is 0.002 in {tmp_path}/a.root (1 such files): this looks like cm" in warnings
    )
    assert "part_dzerr: the median" not in warnings
    # one such file among others is found too
    _, report = check(
        capsys, "jetclass_full", write_jets(tmp_path / "0.root", 3000, seed=1), tmp_path / "a.root"
    )
    assert any("these look like MeV" in text and "a.root" in text for text in texts(report, "warning"))


def test_other_types_in_one_file(tmp_path, capsys):
    write_jets(tmp_path / "a.root", 20)
    jets = make_jets(20, seed=1)
    jets["part_charge"] = Jagged(jets["part_charge"].contents.astype(np.int32), jets["part_charge"].offsets)
    write_table(tmp_path / "b.root", jets)
    code, report = check(capsys, "jetclass_full", f"{tmp_path}/*.root")
    assert code == 0
    (warning,) = [text for text in texts(report, "warning") if "part_charge" in text]
    assert (
        warning
        == f"part_charge: has different types: float32[] in {tmp_path}/a.root, int32[] in {tmp_path}/b.root"
    )


def test_duplicates_between_train_and_test(tmp_path, capsys):
    train = write_jets(tmp_path / "train.root", 50, seed=1)
    shutil.copy2(train, tmp_path / "copy.root")
    code, report = check(capsys, "jetclass_full", "--train", train, "--test", tmp_path / "copy.root")
    assert code == 3
    assert any("is in test and, as" in text for text in texts(report, "error"))
    # the same jets written again, among others
    jets, other = make_jets(50, seed=1), make_jets(50, seed=2)
    write_table(tmp_path / "again.root", [other, jets])
    code, report = check(capsys, "jetclass_full", train, "--test", tmp_path / "again.root")
    assert code == 3
    with_particles = int((jets["part_px"].lengths > 0).sum())
    assert f"jets: {with_particles} jets are both in train and in test: results would be too good" in texts(
        report, "error"
    )
    code, _ = check(capsys, "jetclass_full", train, "--test", write_jets(tmp_path / "b.root", 50, seed=3))
    assert code == 0


def test_copies_inside_a_set(tmp_path, capsys):
    jets = make_jets(20)
    write_table(tmp_path / "a.root", [jets, jets])
    _, report = check(capsys, "jetclass_full", tmp_path / "a.root")
    assert any("jets in train are copies of others" in text for text in texts(report, "warning"))


def test_files_to_predict_need_no_labels(tmp_path, capsys):
    jets = {name: column for name, column in make_jets(20).items() if not name.startswith("label_")}
    write_table(tmp_path / "a.root", jets)
    assert check(capsys, "jetclass_full", tmp_path / "a.root")[0] == 3
    assert check(capsys, "jetclass_full", tmp_path / "a.root", "--for", "predict")[0] == 0


def test_automatic_preprocessing_and_reweighting_are_tried(tmp_path, capsys):
    options = yaml.safe_load(shipped_file("data_configs", "jetclass_kin").read_text())
    options["preprocess"] = {"method": "auto"}
    options["weights"] = {
        "use_precomputed_weights": False,
        "reweight_method": "flat",
        "reweight_vars": {"jet_sdmass": [-2, -1]},
        "reweight_classes": ["label_QCD"],
    }
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(options))
    file = write_jets(tmp_path / "a.root", 50)
    for limit in ([], ["--deep"], ["--limit", "10"]):
        code, report = check(capsys, config, file, *limit)
        assert code == 3
        assert any("no jet of label_QCD is in the bins" in text for text in texts(report, "error"))
    assert check(capsys, config, file, "--for", "predict")[0] == 0


def changed_config(tmp_path, **changes):
    options = yaml.safe_load(shipped_file("data_configs", "jetclass_kin").read_text()) | changes
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(options))
    return path


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, np.nan], "entry 1: the weight (weight) is nan"),
        ([-1, -1], "the sum of the jets' weights is -20; it must"),
    ],
)
def test_weights_that_would_stop_a_training(tmp_path, capsys, weights, message):
    write_jets(tmp_path / "a.root", 20, weight=np.tile(np.float32(weights), 10))
    config = changed_config(
        tmp_path, weights={"use_precomputed_weights": True, "weight_branches": ["weight"]}
    )
    code, report = check(capsys, config, tmp_path / "a.root")
    assert code == 3
    assert any(message in text for text in texts(report, "error"))


def test_a_selection_that_leaves_nothing(tmp_path, capsys):
    file = write_jets(tmp_path / "a.root", 20)
    code, report = check(capsys, changed_config(tmp_path, selection="jet_pt < 0"), file)
    assert code == 3
    assert texts(report, "error") == [
        "jets: no jet passes the selection 'jet_pt < 0', or there are no entries"
    ]


def test_a_formula_that_fails(tmp_path, capsys):
    new = yaml.safe_load(shipped_file("data_configs", "jetclass_kin").read_text())["new_variables"]
    config = changed_config(
        tmp_path,
        new_variables=new | {"hardest": "ak.max(part_pt, axis=1)"},
        observers=["hardest"],
    )
    jets = write_jets(tmp_path / "a.root", 100)  # some are empty
    code, report = check(capsys, config, jets, "--for", "predict")
    assert code == 3
    assert "hardest: " in texts(report, "error")[0]
    assert "use ak.fill_none" in texts(report, "error")[0]


def test_classes_that_sampling_never_draws(tmp_path, capsys):
    weights = {
        "use_precomputed_weights": False,
        "reweight_method": "flat",
        "reweight_vars": {"jet_sdmass": [0, 100, 1000]},
        "reweight_classes": ["label_QCD", "label_Hbb"],
    }
    code, report = check(
        capsys, changed_config(tmp_path, weights=weights), write_jets(tmp_path / "a.root", 200)
    )
    assert code == 0
    assert any("their jets get weight 0 and are never drawn" in text for text in texts(report, "warning"))


def test_missing_observers_are_reported(tmp_path, capsys):
    code, report = check(
        capsys, changed_config(tmp_path, observers=["jet_mas"]), write_jets(tmp_path / "a.root", 20)
    )
    assert code == 0
    assert any("lacks the observers jet_mas" in text for text in texts(report, "warning"))


def test_a_prediction_can_do_without_observers_that_no_file_has(tmp_path, capsys):
    config = changed_config(tmp_path, observers=["jet_pt", "jet_mas"])
    files = [write_jets(tmp_path / f"{seed}.root", 20, seed=seed) for seed in range(2)]
    code, report = check(capsys, config, *files, "--for", "predict")
    assert code == 0
    assert texts(report, "warning")[0] == "observers: jet_mas: in no file, so not in the predictions"
    write_table(files[1], make_jets(20, seed=1) | {"jet_mas": np.ones(20)})
    code, report = check(capsys, config, *files, "--for", "predict")
    assert code == 3
    (error,) = texts(report, "error")
    assert error == f"{files[0]}: lacks the observer jet_mas that other files have; predict it alone"


def test_bad_jets_are_not_taken_for_copies(tmp_path, capsys):
    for seed in range(2):
        jets = make_jets(60, seed=seed)
        jets["part_px"].contents[:] = np.nan
        write_table(tmp_path / f"{seed}.root", jets)
    _, report = check(capsys, "jetclass_full", tmp_path / "0.root", "--test", tmp_path / "1.root")
    assert not any("both in" in text for text in texts(report, "error"))
    assert [group["name"] for group in report["groups"]] == ["train: (all)", "test: (all)"]


def test_output_that_ends_early(tmp_path):
    write_jets(tmp_path / "a.root", 20)
    command = f"{sys.executable} -m partt check jetclass_full {tmp_path}/a.root"
    for end, code in (("| head -1 > /dev/null; exit ${PIPESTATUS[0]}", 0), ("> /dev/full", 5)):
        result = subprocess.run(
            ["bash", "-c", f"{command} {end}"], capture_output=True, text=True, check=False
        )
        assert result.returncode == code
        assert "Traceback" not in result.stderr


def test_a_narrow_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert main(["check", "jetclass_full", str(write_jets(tmp_path / "a.root", 20))]) == 0
    assert "part_isChargedHadron" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["jetclass_ful", "x.root"], 2, "did you mean 'jetclass_full'?"),
        (["no/such.yaml", "x.root"], 2, "no such file: no/such.yaml"),
        (["jetclass_full"], 2, "no files to check: name some"),
        (["jetclass_full", "/no/such/*.root"], 3, "/no/such/*.root"),
    ],
)
def test_wrong_turns(capsys, arguments, code, message):
    assert main(["check", *arguments]) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_debug_shows_the_traceback(capsys):
    assert main(["check", "jetclass_ful", "x.root", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


# --- collections, masks and targets ---


def write_config(folder, text: str) -> str:
    path = folder / "config.yaml"
    path.write_text(text)
    return str(path)


def test_jets_without_vertices_are_counted_and_normal(tmp_path, capsys):
    file = write_events(tmp_path / "a.root", 100)
    code, report = check(capsys, write_config(tmp_path, PF_AND_SV), file)
    events = make_events(100)
    pf, sv = report["collections"]
    assert code == 0
    assert (pf["name"], sv["name"]) == ("pf", "sv")
    assert sv["num_without"] == int((events["vertex_pt"].lengths == 0).sum()) > 20
    assert sv["num_cut_jets"] == int((events["vertex_pt"].lengths > 3).sum())
    assert pf["longest"] == int(events["cand_pt"].lengths.max())
    warnings = texts(report, "warning")
    num_empty = int((events["cand_pt"].lengths == 0).sum())
    assert f"jets: {num_empty} of 100 have no particles" in warnings
    assert any("have more than 3 particles in sv (up to 5) and are cut" in text for text in warnings)
    assert not any("sv: no jet" in text for text in warnings)


def test_tables_by_collection(tmp_path, capsys):
    file = write_events(tmp_path / "a.root", 100)
    assert main(["check", write_config(tmp_path, PF_AND_SV), str(file)]) == 0
    printed = capsys.readouterr().out
    assert "particles per jet" in printed
    of_pf, of_sv = printed.split("inputs of pf computed")[1].split("inputs of sv computed")
    assert "cand_px" in of_pf
    assert "vertex_px" in of_sv.split("warning")[0]


def test_names_with_brackets_stay_text(tmp_path, capsys):
    """They are markup for rich: [/b] was a MarkupError, and [mu] was not shown."""
    names = "  particles:\n    real: {collection: sv, value: vertex_mass > 1, names: ['[/b]', 'e[mu]']}\n"
    file = write_events(tmp_path / "a.root", 100)
    assert main(["check", write_config(tmp_path, PF_AND_SV + names), str(file)]) == 0
    printed = capsys.readouterr().out
    assert "[/b]" in printed
    assert "e[mu]" in printed


def test_a_collection_without_particles_looks_wrong(tmp_path, capsys):
    empty = Jagged(np.empty(0, np.float32), np.zeros(31, np.int64))
    vertices = {f"vertex_{name}": empty for name in ("pt", "eta", "phi", "mass")}
    file = write_events(tmp_path / "a.root", 30, **vertices)
    code, report = check(capsys, write_config(tmp_path, PF_AND_SV), file)
    assert code == 0
    assert "sv: no jet has any" in texts(report, "warning")


def test_a_mask_that_masks_everything_looks_wrong(tmp_path, capsys):
    config = write_config(tmp_path, INPUTS["mask from a branch"])
    file = write_events(tmp_path / "a.root", 30)
    _, report = check(capsys, config, file)
    assert 0 < report["collections"][0]["num_masked"] < report["collections"][0]["num_particles"]
    assert not any("cand_is_good" in text for text in texts(report, "warning"))
    column = make_events(30)["cand_is_good"]
    file = write_events(tmp_path / "b.root", 30, cand_is_good=Jagged(column.contents * 0, column.offsets))
    _, report = check(capsys, config, file)
    assert any("cand_is_good: is 0 for all of" in text for text in texts(report, "warning"))


def test_targets_with_range_and_fraction_unknown(tmp_path, capsys):
    file = write_events(tmp_path / "a.root", 100)
    config = write_config(tmp_path, LABELS_OF_WEAVER["several targets"])
    code, report = check(capsys, config, file)
    events = make_events(100)
    ratio = (events["gen_mass"] / events["jet_mass"])[events["has_gen"] == 1]
    assert code == 0
    assert report["targets"]["mass_factor"]["nan"] == 100 - len(ratio)
    assert report["targets"]["mass_factor"]["maximum"] == pytest.approx(ratio.max(), rel=1e-6)
    assert list(report["targets"]) == ["mass_factor", "pt_factor"]
    assert main(["check", config, str(file)]) == 0
    assert f"{1 - len(ratio) / 100:.2%}" in capsys.readouterr().out


def test_class_numbers_without_names_are_recognised(tmp_path, capsys):
    file = write_events(tmp_path / "a.root", 100)
    _, report = check(capsys, write_config(tmp_path, LABELS_OF_WEAVER["class number"]), file)
    (warning,) = texts(report, "warning")
    assert "target truth_label: has whole numbers up to 18" in warning
