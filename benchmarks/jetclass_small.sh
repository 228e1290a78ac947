#!/usr/bin/env bash
# The tagger in the box: 100 000 simulated jets to train part_s, 50 000 others to test it, and its card.
# usage: benchmarks/jetclass_small.sh FOLDER
# If interrupted, rerun the same command: it resumes. It ends by writing partt/tagger/shipped/jetclass-small.* and docs/taggers/.
set -euo pipefail
folder=$1
run=$folder/run_jetclass_small scores=$folder/scores_jetclass_small report=$folder/report_jetclass_small

# Seeds of their own: no event is in two of these sets, nor in the bundled sample (seed 2026).
partt simulate --out "$folder/train" --jets 2000 --workers 2 --seed 101
partt simulate --out "$folder/box_train" --jets 8000 --workers 2 --seed 303
partt simulate --out "$folder/val" --jets 100 --workers 2 --seed 404
partt simulate --out "$folder/test" --jets 1000 --workers 2 --seed 202
partt simulate --out "$folder/box_test" --jets 4000 --workers 2 --seed 505

partt train jetclass_part_s --train "$folder/train/*.root" "$folder/box_train/*.root" --val "$folder/val/*.root" \
  --out "$run" --threads 1 --resume \
  --set batch_size=256 --set optimizer.lr=1e-3 --set optimizer.weight_decay=0.01 --set epochs=10 --set jets_per_epoch=100000 \
  --set schedule.rise_fraction=0.3 --set schedule.final_factor=0.01
for part in test box_test; do
  partt predict --tagger "$run" "$folder/$part/*.root" --out "$scores/$part"
done
partt evaluate "$scores/test/*.root" "$scores/box_test/*.root" --name jetclass-small --run "$run" --out "$report"
python "$(dirname "$0")/tagger_card.py" jetclass-small --run "$run" --report "$report"
