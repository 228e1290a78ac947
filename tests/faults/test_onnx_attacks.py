"""Hostile ONNX files: one line that names the file, soon; nothing outside of the file is read."""

import os
import random
import resource

import numpy as np
import onnx
import pytest

from attacks import NUM_ATTACKS, outcome
from partt.errors import DataError
from partt.tagger.loading import load_tagger
from partt.tagger.onnx_file import fingerprint, run_session

KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


@pytest.fixture(scope="module")
def contents(exported) -> bytes:
    _, result = exported("pfn")
    return result.path.read_bytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tagger.onnx"


def write(path, model) -> None:
    """Write a model with the sha256 that belongs to its contents."""
    metadata = {item.key: item.value for item in model.metadata_props if item.key != "sha256"}
    onnx.helper.set_model_props(model, metadata)
    onnx.helper.set_model_props(model, {**metadata, "sha256": fingerprint(model)})
    path.write_bytes(model.SerializeToString())


def refused(path) -> str:
    message = outcome(lambda: load_tagger(path))
    assert message is not None
    assert str(path) in message
    return message


def changed(contents, path, change):
    model = onnx.load_model_from_string(contents)
    change(model)
    write(path, model)
    return refused(path)


def test_removed_outputs(contents, path):
    def keep_one(model):
        del model.graph.output[1:]

    assert "outputs" in changed(contents, path, keep_one)


def test_exchanged_outputs(contents, path):
    def exchange(model):
        first, second = model.graph.output[0].name, model.graph.output[1].name
        outputs = [*model.graph.output]
        del model.graph.output[:]
        model.graph.output.extend([outputs[1], outputs[0], *outputs[2:]])
        assert [first, second] == [model.graph.output[1].name, model.graph.output[0].name]

    assert "outputs" in changed(contents, path, exchange)


def external(name):
    tensor = onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [1], [0.0])
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    return tensor


def with_external_function(model):
    node = onnx.helper.make_node("Constant", [], ["y"], value=external("t"))
    opset = [onnx.helper.make_opsetid("", 20)]
    model.functions.append(onnx.helper.make_function("partt", "f", [], ["y"], [node], opset))
    model.opset_import.append(onnx.helper.make_opsetid("partt", 1))  # otherwise onnxruntime refuses the file


def with_external_sparse(model):
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(external("values"))


def with_external_subgraph(model):
    node = onnx.helper.make_node("Constant", [], ["y"], value=external("t"))
    inner = onnx.helper.make_graph([node], "inner", [], [])
    model.graph.node.append(onnx.helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner))


def with_external_training(model):
    model.training_info.add().initialization.initializer.append(external("t"))


@pytest.mark.parametrize(
    "change", [with_external_function, with_external_sparse, with_external_subgraph, with_external_training]
)
def test_external_data_anywhere(contents, path, change):
    assert "external data" in changed(contents, path, change)


def with_endless_loop(model):
    """Add a loop of 2^62 rounds whose condition stays true: 0.1 ran it for ever."""
    info, of = onnx.helper.make_tensor_value_info, onnx.TensorProto
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["go"], ["go_on"])],
        "body",
        [info("round", of.INT64, []), info("go", of.BOOL, [])],
        [info("go_on", of.BOOL, [])],
    )
    model.graph.initializer.extend(
        [
            onnx.helper.make_tensor("rounds", of.INT64, [], [2**62]),
            onnx.helper.make_tensor("go_first", of.BOOL, [], [True]),
        ]
    )
    model.graph.node.append(onnx.helper.make_node("Loop", ["rounds", "go_first"], [], body=body))


def with_scan(model):
    body = onnx.helper.make_graph([], "body", [], [])
    model.graph.node.append(onnx.helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1))


def with_subgraph_of_another_operator(model):
    body = onnx.helper.make_graph([], "body", [], [])
    model.graph.node.append(onnx.helper.make_node("Add", ["x"], ["y"], bodies=[body]))


def with_doubling_functions(model):
    """Add functions that call each other: inlined, 2^60 operators."""
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("partt", 1)]
    for number in range(60):
        inner = f"f{number - 1}" if number else "Identity"
        nodes = [
            onnx.helper.make_node(inner, [name], [result], domain="partt" if number else "")
            for name, result in (("x", "half"), ("half", "y"))
        ]
        model.functions.append(onnx.helper.make_function("partt", f"f{number}", ["x"], ["y"], nodes, opsets))
    model.opset_import.append(onnx.helper.make_opsetid("partt", 1))
    model.graph.node.append(
        onnx.helper.make_node("f59", [model.graph.input[0].name], ["unused"], domain="partt")
    )


@pytest.mark.parametrize(
    "change", [with_endless_loop, with_scan, with_subgraph_of_another_operator, with_doubling_functions]
)
def test_programs(contents, path, change):
    assert "loops, branches or functions" in changed(contents, path, change)


HUGE = 2**31  # float32 values: 8 GiB
HUGE_TENSORS = {  # operator -> its inputs after a one
    "ConstantOfShape": [[HUGE]],
    "Expand": [1.0, [HUGE]],
    "Tile": [[1.0], [HUGE]],
    "Pad": [[1.0], [0, HUGE]],
    "Range": [0, HUGE, 1],
}


@pytest.mark.parametrize("operator", HUGE_TENSORS)
def test_huge_tensors_of_few_numbers(contents, path, operator):
    """They are refused when the file is run, and never allocated: 0.1 computed them while it was loaded."""
    model = onnx.load_model_from_string(contents)
    first = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["inner" if name == first else name for name in node.output]
    inputs = [f"huge_{number}" for number in range(len(HUGE_TENSORS[operator]))]
    for name, value in zip(inputs, HUGE_TENSORS[operator], strict=True):
        kind = np.float32 if value in (1.0, [1.0]) and operator != "Range" else np.int64
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, kind), name))
    make = onnx.helper.make_node
    model.graph.node.extend(
        [
            make(operator, inputs, ["huge"]),
            make("Cast", ["huge"], ["huge_floats"], to=onnx.TensorProto.FLOAT),
            make("ReduceMax", ["huge_floats"], ["largest"], keepdims=0),
            make("Add", ["inner", "largest"], [first]),
        ]
    )
    write(path, model)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    session = load_tagger(path).session
    feed = {
        item.name: np.ones([size if isinstance(size, int) else 2 for size in item.shape], KINDS[item.type])
        for item in session.get_inputs()
    }
    with pytest.raises(DataError, match="onnxruntime cannot run the file"):
        run_session(session, feed)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # kB


def set_metadata(key, value):
    def change(model):
        metadata = {item.key: item.value for item in model.metadata_props}
        onnx.helper.set_model_props(model, {**metadata, key: value})

    return change


def set_version(version):
    def change(model):
        model.ir_version = version

    return change


def set_opset(model):
    model.opset_import[0].version = 10**6


def unknown_operator(model):
    model.graph.node[0].op_type = "NoSuchOperator"


@pytest.mark.parametrize(
    "change",
    [
        set_version(10**6),
        set_metadata("units", "[" * 100_000),
        set_metadata("class_names", '["' + "a" * 10**6 + '"]'),
        set_metadata("class_names", '["QCD"]'),
        set_metadata("data_config", "a: !!bool foo"),
        set_metadata("versions", "1" * 10_000),
        set_metadata("format_version", "²"),
        set_opset,
        unknown_operator,
    ],
    ids=range(9),
)
def test_versions_and_metadata(contents, path, change):
    changed(contents, path, change)


def test_a_pipe(path):
    os.mkfifo(path)
    assert "not a regular file" in refused(path)


def test_a_sparse_file(path):
    with path.open("wb") as file:
        file.truncate(3 * 2**30)
    assert "bytes" in refused(path)


def test_attacks(contents, path):
    """Flipped bytes, and random changes of nodes, outputs and weights with the right sha256."""
    for seed in range(NUM_ATTACKS):
        rng = random.Random(seed)
        if seed % 2:
            data = bytearray(contents)
            for _ in range(rng.randint(1, 5)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            path.write_bytes(data)
        else:
            model = onnx.load_model_from_string(contents)
            for _ in range(rng.randint(1, 3)):
                node = rng.choice(model.graph.node)
                weight = rng.choice(model.graph.initializer)
                match rng.randrange(7):
                    case 0:
                        node.op_type = rng.choice(
                            ["Add", "Loop", "If", "Scan", "", "Softmax", "Reshape", "Expand", "Range"]
                        )
                    case 1:
                        del node.input[:]
                    case 2:
                        model.graph.node.remove(node)
                    case 3:
                        weight.dims[:] = [rng.choice([-1, 0, 10**12])]
                    case 4:
                        weight.data_type = rng.randrange(30)
                    case 5:
                        del model.graph.output[rng.randrange(1 + len(model.graph.output)) :]
                    case _:
                        node.output[0] = rng.choice(model.graph.node).output[0]
            write(path, model)
        try:
            outcome(lambda: load_tagger(path))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
