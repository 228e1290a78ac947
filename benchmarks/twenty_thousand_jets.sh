#!/usr/bin/env bash
# Networks on 20 000 simulated jets, tested on 10 000 others: the numbers of training/README.md.
# usage: benchmarks/twenty_thousand_jets.sh FOLDER [pfn part_s gru pcnn particlenet part_plain part ...]
# If interrupted, rerun the same command: it resumes. Jets take half an hour on two cores, part some fifty minutes on one.
set -euo pipefail
folder=$1
shift
names=${*:-pfn part_s gru pcnn particlenet part_plain part}

partt simulate --out "$folder/train" --jets 2000 --workers 2 --seed 101
partt simulate --out "$folder/val" --jets 100 --workers 2 --seed 404
partt simulate --out "$folder/test" --jets 1000 --workers 2 --seed 202

for name in $names; do
  case $name in # with so few jets: small batches, and learning rates to match
    pfn) recipe=jetclass_pfn settings="optimizer.lr=2e-3 epochs=40" ;;
    part_s) recipe=jetclass_part_s settings="optimizer.lr=1e-3 optimizer.weight_decay=0.01 epochs=15 schedule.rise_fraction=0.3 schedule.final_factor=0.01" ;;
    gru) recipe=jetclass_gru settings="schedule.warmup_steps=300 epochs=15" ;;
    pcnn) recipe=jetclass_pcnn settings="optimizer.lr=3e-3 epochs=15" ;;
    particlenet) recipe=jetclass_particlenet settings="optimizer.lr=5e-3 epochs=4" ;;
    part_plain) recipe=jetclass_part_plain settings="epochs=10" ;;
    part) recipe=jetclass_part_full settings="epochs=10" ;;
    *) echo "no network $name" >&2 && exit 2 ;;
  esac
  overrides=()
  for setting in batch_size=128 jets_per_epoch=20000 $settings; do
    overrides+=(--set "$setting")
  done
  partt train "$recipe" --train "$folder/train/*.root" --val "$folder/val/*.root" --out "$folder/run_$name" \
    --threads 1 --resume "${overrides[@]}"
  partt predict --tagger "$folder/run_$name" "$folder/test/*.root" --out "$folder/scores_$name"
  partt evaluate "$folder/scores_$name/*.root" --name "$name" --run "$folder/run_$name" --out "$folder/report_$name"
done
