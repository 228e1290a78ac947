#!/usr/bin/env bash
# The tagger in the box: part_s on 200 000 simulated jets, tested on 50 000 others, and its card.
# usage: benchmarks/jetclass_200k.sh FOLDER [WORKERS]
# If interrupted, rerun the same command: it resumes. It ends by writing partt/tagger/shipped/jetclass-200k.* and docs/taggers/.
set -euo pipefail
folder=$1
here=$(dirname "$0")
run=$folder/run_jetclass_200k scores=$folder/scores_jetclass_200k report=$folder/report_jetclass_200k

"$here/large_sample.sh" "$folder" "${2:-1}" val seeds train test
partt train jetclass_part_s --train "$folder/train/*.root" "$folder/seeds/*.root" --val "$folder/val/*.root" \
  --out "$run" --threads 1 --resume \
  --set batch_size=256 --set optimizer.lr=5e-3 --set optimizer.weight_decay=0.01 --set epochs=6 --set jets_per_epoch=200000 \
  --set schedule.rise_fraction=0.3 --set schedule.final_factor=0.01
partt predict --tagger "$run" "$folder/test/*.root" --out "$scores"
partt evaluate "$scores/*.root" --name jetclass-200k --run "$run" --out "$report"
python "$here/tagger_card.py" jetclass-200k --run "$run" --report "$report"
