#!/usr/bin/env bash
# The mass of H, W and Z jets: widths against soft drop's in bins of pT, and the peak of masses that training never saw.
# usage: benchmarks/mass_regression.sh SAMPLE FOLDER    (SAMPLE: made by large_sample.sh)
# The numbers for all jets in bins, and for each class, go to benchmarks/mass_regression.csv.
# If interrupted, rerun the same command: it resumes. Training took 35 minutes on one core of a busy machine.
set -euo pipefail
sample=$1
folder=$2
here=$(dirname "$0")
mkdir -p "$folder"

# Training leaves a window out, around the mass of the Higgs boson; prediction takes all jets.
window='(gen_resonance_mass < 115) | (gen_resonance_mass > 135)'
sed "s/^selection: null/selection: $window\ntest_time_selection: jet_pt > 0/" "$here/../data_configs/jetclass_mass.yaml" \
  > "$folder/jetclass_mass_window.yaml"

partt train jetclass_mass_regression --train "$sample/masses_train/*.root" --val "$sample/masses_val/*.root" \
  --out "$folder/run" --threads 1 --resume --set "data_config=$folder/jetclass_mass_window.yaml" \
  --set optimizer.lr=1e-3 --set epochs=7
for jets in masses_test val; do # varied masses; H at 125 GeV, inside the window
  partt predict --tagger "$folder/run" "$sample/$jets/*.root" --out "$folder/predictions_$jets"
  partt evaluate "$folder/predictions_$jets/*.root" --name part_s --run "$folder/run" --out "$folder/report_$jets" \
    --baseline mass_factor=jet_sdmass --bins true_mass=30,60,90,115,135,165,200,250 jet_pt=500,600,700,850,1000
done
awk -F, '$1 == "target" || ($1 ~ /^mass_factor/ && ($6 == "" || $7 == ""))' "$folder/report_masses_test/regressions.csv" \
  > "$here/mass_regression.csv"
