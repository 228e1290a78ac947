#!/usr/bin/env bash
# The large sample: 246 200 simulated jets to train and 66 900 others to choose and test, with vertices and generator truth.
# usage: benchmarks/large_sample.sh [FOLDER] [WORKERS] [SET ...]    (default: /work/samples/large, one process, all sets)
# If interrupted, rerun the same command: complete files are kept. Two processes made 104 to 170 jets/s on two idle cores.
# Files have 2000 jets of one class, made in turn, so that whatever is complete has all classes.
set -euo pipefail
folder=${1:-/work/samples/large}
workers=${2:-1}
sets=${*:3}

# Seeds of their own: no event is in two of these sets, nor in those of the other benchmarks.
make_jets() { # folder, jets of each class, seed, further options
  [[ -z $sets || " $sets " == *" $1 "* ]] || return 0
  partt simulate --out "$folder/$1" --jets "$2" --seed "$3" --jets-per-file 2000 --workers "$workers" \
    --extra vertices generator "${@:4}"
}
# H, W and Z bosons with masses from 30 to 250 GeV, for regression of the mass and decorrelation from it.
make_masses() {
  make_jets "$1" "$2" "$3" --classes Hbb Hcc Hgg H4q Hqql Zqq Wqq --mass-range 30:250
}

make_jets val 500 1003
make_masses masses_val 200 1004
make_masses masses_train 6600 1001
make_masses masses_test 1500 1002
make_jets seeds 2000 1007 # for comparisons of several trainings
make_jets train 18000 1006
make_jets test 5000 1005
