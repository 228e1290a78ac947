"""The whole pipeline in Python, in a minute: python example.py.

jets -> check -> train -> predict -> evaluate -> export; each step is the verb of the same name of `partt`.
"""

import partt

# ROOT files of jets: here the 900 that come with partt; partt.simulate("jets", jets=1000) makes more.
jets = partt.sample_files()

# Would a training run? Branches, labels, units, duplicates.
report = partt.check("jetclass_full", [str(path) for path in jets])
print(f"{report.num_jets} jets, {report.num_errors} errors")

# A recipe says which network and how; the run folder has everything, checkpoints included.
run = partt.train("quick", jets, validation=0.2, out="example/run", overrides=["epochs=3"], num_workers=0)
print(f"best epoch: {run.state.best_epoch + 1}, accuracy {run.state.best_value:.3f}")

# Scores of every entry, file by file, in the order of the inputs.
scores = partt.predict(run.tagger, jets, "example/scores", discriminants=["Hbb_vs_QCD"])
print(scores.balance)

# The results table of a paper, with intervals, and a report in one HTML file.
found = partt.evaluate("example/scores/*.root", run_folder=run.run_folder, out="example/report")
for column, cell in zip(found.table.columns, found.table.rows[0].cells, strict=True):
    print(f"{column.title:15} {cell.value:.4g}")

# One ONNX file that takes raw branches, for programs without Python.
exported = partt.export(run.tagger, "example/tagger.onnx")
print(f"{exported.path}: scores equal torch's to {exported.header.largest_difference:.0e}")
