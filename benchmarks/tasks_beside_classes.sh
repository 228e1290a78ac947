#!/usr/bin/env bash
# Does a regression cost accuracy? Classes alone, and classes + mass + pT: three seeds each, 28 000 jets of seven classes.
# usage: benchmarks/tasks_beside_classes.sh SAMPLE FOLDER    (SAMPLE: made by large_sample.sh)
# Accuracy and AUC go to benchmarks/tasks_beside_classes.csv. If interrupted, rerun the same command: it resumes.
set -euo pipefail
sample=$1
folder=$2

train() { # name, further options
  for seed in 1 2 3; do
    partt train jetclass_mass_regression --train "$sample"/masses_train/*_00[01].root --val "$sample/masses_val/*.root" --seed "$seed" \
      --out "$folder/$1_$seed" --threads 1 --resume --set model.name=part_xs \
      --set optimizer.lr=2e-3 --set epochs=4 "${@:2}"
    partt predict --tagger "$folder/$1_$seed" "$sample/masses_test/*.root" --out "$folder/scores_$1/$seed"
  done
}
train classes --set 'tasks={classification: {weight: 1.0}}'
train tasks
partt evaluate "$folder"/scores_tasks/*/*.root --name 'classes, mass, pT' --compare "classes=$folder/scores_classes/*/*.root" \
  --out "$folder/report"
grep -E '^model,|,(accuracy|auc),' "$folder/report/metrics.csv" > "$(dirname "$0")/tasks_beside_classes.csv"
