"""Memory of long trainings; benchmarks/bench_memory.py measures it over 5 000 steps."""

import json
import subprocess
import sys

import yaml

from partt.tagger.tagger_file import save_tagger
from small_networks import make_tagger
from training_jobs import TINY_RECIPE

TRAINING = """
import ctypes, json, sys
import partt
from partt.training.events import StepDone

class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Mallinfo
bytes_in_use = []

def report(event):
    if isinstance(event, StepDone):
        bytes_in_use.append(mallinfo().h)  # uordblks

recipe, jets, tagger, out = sys.argv[1:]
partt.train(
    recipe,
    jets,
    validation=0.25,
    init_from=tagger,
    out=out,
    num_workers=0,
    num_threads=1,
    report=report,
    should_stop=lambda: len(bytes_in_use) == 40,
)
print(json.dumps(bytes_in_use))
"""


def test_a_step_leaves_nothing_in_memory(jet_file, tmp_path):
    """Batches have ever new sizes: oneDNN would keep the kernels of each, 0.2 MB a step.

    It reads its limit when it computes first: for the reference jets of the tagger to start from.
    """
    recipe = {**TINY_RECIPE, "jets_per_epoch": 16_000}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    save_tagger(tmp_path / "start.safetensors", make_tagger())
    arguments = [tmp_path / "recipe.yaml", jet_file, tmp_path / "start.safetensors", tmp_path / "run"]
    command = [sys.executable, "-c", TRAINING, *map(str, arguments)]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    in_use = json.loads(child.stdout)
    early, late = min(in_use[10:20]), min(in_use[-10:])
    assert late - early < 1_000_000
