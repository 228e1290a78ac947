#!/usr/bin/env bash
# Figures of docs/reference/evaluation.md (its table is FOLDER/report/table.md), screenshots of README and tutorial.
# usage: docs/make_figures.sh SAMPLE FOLDER [TUTORIAL]
# SAMPLE: made by benchmarks/large_sample.sh; FOLDER: for the results; TUTORIAL: where the commands of the tutorial were run.
# The PFN learns from 20 000 jets of SAMPLE/seeds; both networks are tested with 20 000 of SAMPLE/train that neither has seen.
# If interrupted, rerun the same command: it resumes.
set -euo pipefail
sample=$1 folder=$2 tutorial=${3:-} docs=$(dirname "$0")

screenshot() { # report, picture, height
  chromium --headless --no-sandbox --disable-gpu --disable-background-networking --hide-scrollbars \
    --window-size=1100,"$3" --screenshot="$2" "file://$(realpath "$1")/report.html"
}

partt train jetclass_pfn --train "$sample/seeds/*.root" --val "$sample/val/*.root" --out "$folder/run_pfn" --threads 1 --resume \
  --set batch_size=128 --set jets_per_epoch=20000 --set optimizer.lr=2e-3 --set epochs=20
partt predict --tagger jetclass-small "$sample/train/*_000.root" --out "$folder/scores_part" --threads 1
partt predict --tagger "$folder/run_pfn" "$sample/train/*_000.root" --out "$folder/scores_pfn" --threads 1
partt evaluate "$folder/scores_part/*.root" --compare PFN="$folder/scores_pfn/*.root" \
  --out "$folder/report" --overwrite
partt evaluate "$folder/scores_pfn/*.root" --name PFN --signal Hbb Tbqq --run "$folder/run_pfn" \
  --out "$folder/report_of_one" --overwrite

copy() { # figure, copy: with 128 colours, a third of the size
  python -c "import sys; from PIL import Image; Image.open(sys.argv[1]).convert('RGB').quantize(128).save(sys.argv[2], optimize=True)" \
    "$folder/$1.png" "$docs/reference/evaluation/$2.png"
}
for name in roc discriminants scores confusion calibration efficiency_jet_pt mass; do
  copy "report/figures/$name" "$name"
done
copy report_of_one/figures/roc roc_of_one
copy report_of_one/figures/training training
screenshot "$folder/report" "$docs/report.png" 1000
if [ -n "$tutorial" ]; then
  screenshot "$tutorial/report" "$docs/tutorial/report.png" 1000
fi
