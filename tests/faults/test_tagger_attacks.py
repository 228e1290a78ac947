"""Hostile tagger files and weights of weaver-core: one line that names the file, soon, in bounded memory."""

import json
import os
import pickle
import random
import zipfile
from copy import deepcopy

import pytest
import safetensors
import safetensors.torch
import torch

from attacks import NUM_ATTACKS, outcome
from conftest import FIXTURES
from partt.tagger import tagger_file
from partt.tagger.loading import load_tagger
from partt.tagger.tagger_file import save_tagger
from partt.tagger.weaver import import_weaver
from small_networks import make_tagger


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Return header and tensors of a tagger file."""
    path = tmp_path_factory.mktemp("tagger") / "tagger.safetensors"
    save_tagger(path, make_tagger("pfn", "jetclass_kin"))
    with safetensors.safe_open(path, framework="pt") as file:
        names = list(file.keys())
        return json.loads(file.metadata()["partt"]), {name: file.get_tensor(name) for name in names}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tagger.safetensors"


def write(path, header, tensors):
    """Write a tagger file with the sha256 that belongs to its contents."""
    text = header if isinstance(header, str) else json.dumps(header)
    try:
        sha256 = tagger_file.tensors_sha256(text, tensors)
    except TypeError:  # bfloat16 and the like, which numpy lacks
        sha256 = ""
    safetensors.torch.save_file(tensors, path, {"partt": text, "sha256": sha256})


def refused(path) -> str:
    message = outcome(lambda: load_tagger(path))
    assert message is not None
    assert str(path) in message
    return message


OUTPUTS = "reference.outputs.classes"
OFFSETS = "reference.offsets.part_px"
CONTENTS = "reference.contents.part_px"
CHANGES = {
    "infinite outputs": lambda t: {OUTPUTS: torch.full_like(t[OUTPUTS], torch.inf)},
    "infinite output": lambda t: {OUTPUTS: t[OUTPUTS].index_fill(1, torch.tensor([0]), torch.inf)},
    "NaN outputs": lambda t: {OUTPUTS: torch.full_like(t[OUTPUTS], torch.nan)},
    "outputs of bits": lambda t: {OUTPUTS: t[OUTPUTS] > 0},
    "bfloat16": lambda t: {CONTENTS: t[CONTENTS].bfloat16()},
    "float8": lambda t: {CONTENTS: t[CONTENTS].to(torch.float8_e4m3fn)},
    "bfloat16 weights": lambda t: {n: x.bfloat16() for n, x in t.items() if n.startswith("weights.")},
    "offsets beyond": lambda t: {OFFSETS: t[OFFSETS] * 1000},
    "offsets negative": lambda t: {OFFSETS: -t[OFFSETS]},
    "offsets falling": lambda t: {OFFSETS: t[OFFSETS].flip(0)},
    "offsets of floats": lambda t: {OFFSETS: t[OFFSETS].double()},
    "offsets of two dimensions": lambda t: {OFFSETS: t[OFFSETS][None]},
    "no offsets": lambda t: {OFFSETS: t[OFFSETS][:0]},
    "contents of two dimensions": lambda t: {CONTENTS: t[CONTENTS][:, None]},
    "contents without": lambda t: {CONTENTS: t[CONTENTS].sum()},
    "contents bool": lambda t: {CONTENTS: t[CONTENTS] > 0},
    "no jets": lambda t: {
        n: x[:1] if "offsets" in n else x[:0] for n, x in t.items() if n.startswith("reference.")
    },
    "one long jet": lambda t: {
        n: torch.tensor([0, 10**6]) if "offsets" in n else torch.zeros(10**6 if "part_" in n else 1)
        for n, x in t.items()
        if n.startswith(("reference.offsets", "reference.contents"))
    },
}


@pytest.mark.parametrize("change", CHANGES)
def test_tensors(path, parts, change):
    header, tensors = parts
    write(path, header, {**tensors, **CHANGES[change](tensors)})
    refused(path)


HEADERS = {
    "absurd widths": {"network_config": {"particle_widths": [10**12], "jet_widths": [8]}},
    "no widths": {"network_config": {"particle_widths": [], "jet_widths": []}},
    "many layers": {"network_config": {"particle_widths": [8] * 10**5, "jet_widths": [8]}},
    "other network": {"network": "part", "network_config": {"num_blocks": 10**9}},
    "large, in bounds": {
        "network": "part",
        "network_config": {"width": 65536, "feed_forward_width": 65536, "num_blocks": 256},
    },
    "many unknown keys": {"network_config": {f"k{i}": 1 for i in range(100_000)}},
    "heads": {"heads": {"classes": 10**18}},
    "too few outputs": {"heads": {"classes": 3}},
    "names of heads": {"heads": {"classes": 10, "a.b": 1, "": 1}},
    "many heads": {"heads": {f"h{i}": 1 for i in range(10_000)}},
    "data config": {"data_config": "a: !!bool foo"},
}


@pytest.mark.parametrize("change", HEADERS)
def test_headers(path, parts, change):
    header, tensors = parts
    write(path, {**header, **HEADERS[change]}, tensors)
    refused(path)


def test_a_deep_header(path, parts):
    write(path, "[" * 100_000, parts[1])
    refused(path)


def test_very_many_keys(path):
    """21 s in 0.1."""
    keys = {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(100_000)}
    text = json.dumps(keys).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    refused(path)


def test_pipes_and_sparse_files(path, tmp_path):
    os.mkfifo(path)
    assert "not a regular file" in refused(path)
    sparse = tmp_path / "sparse.safetensors"
    with sparse.open("wb") as file:
        file.truncate(3 * 2**30)
    assert "bytes" in refused(sparse)


def test_attacks_on_tagger_files(path, parts):
    """Random changes of random tensors and header entries, with the right sha256."""
    header, tensors = parts
    values = [None, -1, 10**20, 1e400, "", "x", [], {}, [[]], True, {"a": 1}, "part", "\ud800", 2, 3]
    for seed in range(NUM_ATTACKS):
        rng = random.Random(seed)
        changed, new_header = dict(tensors), json.loads(json.dumps(header))
        for _ in range(rng.randint(1, 3)):
            name = rng.choice([n for n in changed if n.startswith("reference.") or rng.random() < 0.2])
            tensor = changed[name]
            match rng.randrange(8):
                case 0:
                    del changed[name]
                case 1:
                    changed[name] = tensor[: rng.randint(0, 3)].clone() if tensor.ndim else tensor
                case 2:
                    changed[name] = tensor.unsqueeze(rng.choice([0, -1]))
                case 3:
                    changed[name] = tensor.to(
                        rng.choice([torch.bool, torch.int64, torch.bfloat16, torch.uint8])
                    )
                case 4:
                    changed[name] = tensor.double() * rng.choice([0, -1, 1e300, torch.inf, torch.nan])
                case 5:
                    changed[
                        rng.choice(["reference.contents.", "reference.offsets.", "weights.", ""]) + "x"
                    ] = tensor
                case 6:
                    new_header[rng.choice(list(new_header))] = deepcopy(rng.choice(values))
                case _:
                    key = rng.choice(list(header["network_config"]))
                    if isinstance(new_header.get("network_config"), dict):
                        new_header["network_config"][key] = deepcopy(rng.choice(values))
        write(path, new_header, {name: tensor.contiguous().clone() for name, tensor in changed.items()})
        try:
            outcome(lambda: load_tagger(path))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


# --- weights of weaver-core ----------------------------------------------------------------------------------


def refused_weights(path) -> str:
    message = outcome(lambda: import_weaver(path, "jetclass_kin", "0.5"))
    assert message is not None
    assert str(path) in message
    return message


def test_a_pipe_as_weights(tmp_path):
    os.mkfifo(tmp_path / "w.pt")
    assert "not a regular file" in refused_weights(tmp_path / "w.pt")


STATES = {
    "scalars": lambda state: {name: torch.tensor(1.0) for name in state},
    "empty tensors": lambda state: {name: tensor.flatten()[:0] for name, tensor in state.items()},
    "numbers as names": lambda state: dict(enumerate(state.values())),
    "sparse": lambda state: {name: tensor.to_sparse() for name, tensor in state.items()},
    "complex": lambda state: {name: tensor.to(torch.complex64) for name, tensor in state.items()},
    "no heads": lambda state: {n: t[:0] if n.endswith("c_attn") else t for n, t in state.items()},
    "flat": lambda state: {name: tensor.flatten() for name, tensor in state.items()},
    "nothing": lambda _state: {},
    "a list": lambda state: list(state.values()),
}


@pytest.mark.parametrize("change", STATES)
def test_odd_weights(tmp_path, change):
    state = torch.load(FIXTURES / "part_small_weaver05.pt", weights_only=True)
    torch.save(STATES[change](state), tmp_path / "w.pt")
    refused_weights(tmp_path / "w.pt")


def test_attacks_on_weights(tmp_path):
    """Flipped bytes, truncation, odd pickles: in both formats of torch.save."""
    state = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}
    path = tmp_path / "w.pt"
    contents = []
    for is_zip in (True, False):
        torch.save(state, path, _use_new_zipfile_serialization=is_zip)
        contents.append(path.read_bytes())
    for seed in range(2 * NUM_ATTACKS):
        rng = random.Random(seed)
        data = bytearray(contents[seed % 2])
        match rng.randrange(5):
            case 0:
                data = data[: rng.randrange(len(data))]
            case 1:
                with zipfile.ZipFile(path, "w") as file:
                    for name in ("data.pkl", "version", "data/0", "byteorder")[: rng.randint(0, 4)]:
                        file.writestr(f"archive/{name}", rng.choice([b"", b"3", pickle.dumps(rng.random())]))
                data = bytearray(path.read_bytes())
            case 2:
                data = bytearray(pickle.dumps(rng.choice([None, 1, "x", [1], {"a": 1}, {"a": [1]}, (1, 2)])))
            case _:
                for _ in range(rng.randint(1, 20)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            refused_weights(path)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
