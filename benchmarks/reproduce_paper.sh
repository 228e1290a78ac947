#!/usr/bin/env bash
# From `partt download` to the tables of arXiv:2202.03772, on GPUs: docs/how-to/reproduce_paper.md.
# usage: [GPUS=1] [SEEDS=5] benchmarks/reproduce_paper.sh [jetclass sizes top quark_gluon]
# GPUS share the trainings on JetClass; SEEDS is how often the two small datasets are trained on.
# Everything goes to data, runs, scores and reports here. If interrupted, rerun the same command: it resumes.
set -euo pipefail
tables=${*:-jetclass sizes top quark_gluon}
gpus=${GPUS:-1}
seeds=${SEEDS:-5}

train_on_jetclass() { # RECIPE FILES RUN
  local launch=(partt)
  if ((gpus > 1)); then
    launch=(torchrun --standalone --nproc-per-node "$gpus" -m partt)
  fi
  "${launch[@]}" train "$1" --train "data/jetclass/train_100M/$2" --val 'data/jetclass/val_5M/*.root' \
    --workers 4 --out "runs/$3" --resume
}

score() { # RUN FILES
  partt predict --tagger "runs/$1" "$2" --out "scores/$1"
}

jetclass() { # five networks on all jets
  partt download jetclass --out data/jetclass
  for network in part_full part_plain particlenet pcnn pfn; do
    train_on_jetclass "jetclass_$network" '*.root' "jetclass_$network"
    score "jetclass_$network" 'data/jetclass/test_20M/*.root'
  done
  partt evaluate 'scores/jetclass_part_full/*.root' --name ParT --run runs/jetclass_part_full --published \
    --compare 'ParT (plain)=scores/jetclass_part_plain/*.root' 'ParticleNet=scores/jetclass_particlenet/*.root' \
    'P-CNN=scores/jetclass_pcnn/*.root' 'PFN=scores/jetclass_pfn/*.root' --out reports/jetclass
}

sizes() { # on a tenth and a fiftieth: 10 and 2 of the 100 files of each class
  partt download jetclass --out data/jetclass
  train_on_jetclass jetclass_part_full '*_00?.root' jetclass_part_full_10M
  train_on_jetclass jetclass_part_full '*_00[01].root' jetclass_part_full_2M
  train_on_jetclass jetclass_particlenet '*_00[01].root' jetclass_particlenet_2M
  for run in jetclass_part_full_10M jetclass_part_full_2M jetclass_particlenet_2M; do
    score "$run" 'data/jetclass/test_20M/*.root'
  done
  partt evaluate 'scores/jetclass_part_full_10M/*.root' --name 'ParT, 10M jets' --published \
    --compare 'ParT, 2M jets=scores/jetclass_part_full_2M/*.root' \
    'ParticleNet, 2M jets=scores/jetclass_particlenet_2M/*.root' --out reports/jetclass_sizes
}

top() { # from random weights, and from a tagger of JetClass with the same features
  partt download jetclass --out data/jetclass --only train val
  train_on_jetclass jetclass_part_kin '*.root' jetclass_part_kin
  partt download top_landscape --out data/top
  partt convert toplandscape data/top/train.h5 data/top/val.h5 data/top/test.h5 --out data/top/root
  local files=(--train data/top/root/train.root --val data/top/root/val.root)
  partt train top_landscape_part "${files[@]}" --seeds "$seeds" --out runs/top_part --resume
  partt train top_landscape_fine_tune "${files[@]}" --init-from runs/jetclass_part_kin --seeds "$seeds" \
    --out runs/top_fine_tuned --resume
  for run in top_part top_fine_tuned; do
    score "$run" data/top/root/test.root
  done
  partt evaluate 'scores/top_fine_tuned/seed_*/test.root' --name 'ParT fine-tuned' --published \
    --compare 'ParT=scores/top_part/seed_*/test.root' --out reports/top
}

quark_gluon() { # the same, with particles identified as in an experiment (kinpid), and better (kinpidplus)
  partt download jetclass --out data/jetclass --only train val
  train_on_jetclass jetclass_part_kinpid '*.root' jetclass_part_kinpid
  partt download quark_gluon --out data/qg
  partt convert quarkgluon data/qg/QG_jets*.npz --out data/qg/root
  local files=(--train data/qg/root/QG_jets.root 'data/qg/root/QG_jets_?.root' 'data/qg/root/QG_jets_1[0-7].root')
  for features in kinpid kinpidplus; do
    local options=("${files[@]}" --val-fraction 0.1111 --set "data_config=quark_gluon_$features" --seeds "$seeds")
    partt train quark_gluon_part "${options[@]}" --out "runs/qg_$features" --resume
    partt train quark_gluon_fine_tune "${options[@]}" --init-from runs/jetclass_part_kinpid \
      --out "runs/qg_${features}_fine_tuned" --resume
    for run in "qg_$features" "qg_${features}_fine_tuned"; do
      score "$run" 'data/qg/root/QG_jets_1[89].root'
    done
    partt evaluate "scores/qg_${features}_fine_tuned/seed_*/*.root" --name 'ParT fine-tuned' \
      --compare "ParT=scores/qg_$features/seed_*/*.root" --out "reports/qg_$features"
  done
}

for table in $tables; do
  "$table"
done
