#!/usr/bin/env bash
# Table and figures of docs/reference/evaluation.md, and the screenshot of the README.
# usage: docs/make_figures.sh SAMPLE FOLDER    (SAMPLE: made by benchmarks/large_sample.sh; FOLDER: for the results)
# The PFN learns from 20 000 jets of SAMPLE/seeds; both networks are tested with 20 000 of SAMPLE/train that neither has seen.
# If interrupted, rerun the same command: it resumes.
set -euo pipefail
sample=$1 folder=$2 docs=$(dirname "$0")

partt train jetclass_pfn --train "$sample/seeds/*.root" --val "$sample/val/*.root" --out "$folder/run_pfn" --threads 1 --resume \
  --set batch_size=128 --set jets_per_epoch=20000 --set optimizer.lr=2e-3 --set epochs=20
partt predict --tagger jetclass-small "$sample/train/*_000.root" --out "$folder/scores_part" --threads 1
partt predict --tagger "$folder/run_pfn" "$sample/train/*_000.root" --out "$folder/scores_pfn" --threads 1
partt evaluate "$folder/scores_part/*.root" --compare PFN="$folder/scores_pfn/*.root" --run "$folder/run_pfn" \
  --out "$folder/report" --overwrite
partt evaluate "$folder/scores_pfn/*.root" --name PFN --signal Hbb Tbqq --out "$folder/report_of_one" --overwrite

for name in roc discriminants scores confusion calibration efficiency_jet_pt mass training; do
  cp "$folder/report/figures/$name.png" "$docs/reference/evaluation/"
done
cp "$folder/report_of_one/figures/roc.png" "$docs/reference/evaluation/roc_of_one.png"
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1100,900 \
  --screenshot="$docs/report.png" "file://$(realpath "$folder")/report/report.html"
