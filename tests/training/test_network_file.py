"""The user's own network file: trained, kept, and run only where it is given."""

import json
import pickle
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from test_fit import metrics_of, tensors_of
from weaver.utils.nn.tools import train_classification

import partt
from network_files import LOSS, PARTT, WEAVER, times_run, write_network
from partt.cli.main import main
from partt.data.config.data_config import load_data_config
from partt.data.files.lists import InputFile
from partt.data.reading.batches import ordered_batches, training_batches
from partt.errors import ConfigError
from partt.jobs.metrics_file import read_metrics
from partt.model.network_file import read_network_file, run_network_file
from partt.prediction import engines
from partt.tagger.loading import load_tagger, load_torch_tagger
from partt.training.distributed import World
from partt.training.job import open_job
from partt.training.learner import make_learner, take_step
from partt.training.recipe import load_recipe
from prediction_jobs import columns
from training_jobs import TINY_RECIPE, run_job, stop_after, tiny_recipe

OPTIONS = ["--val-fraction", "0.25", "--threads", "1", "--workers", "0", "--seed", "7"]


@pytest.fixture
def folder(jet_file, tmp_path, monkeypatch):
    """Enter a folder with a recipe of another network, a network file and jets."""
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({**TINY_RECIPE, "epochs": 2}))
    write_network(tmp_path, WEAVER + LOSS)
    (tmp_path / "jets.root").symlink_to(jet_file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*options, network="sums.py", out="run"):
    given = [] if network is None else ["--network", str(network)]
    return main(["train", "recipe.yaml", "--train", "jets.root", "--out", out, *OPTIONS, *given, *options])


def file_job(path, jets, **changes):
    recipe = tiny_recipe(model={"file": str(path), **changes.pop("model", {})}, **changes)
    config = load_data_config(recipe.data_config)
    code = run_network_file(read_network_file(path))
    return open_job(recipe, config, [InputFile("", str(jets))], 0.25, seed=7, network_code=code)


def test_a_weaver_file_goes_the_whole_way(folder, capsys):
    assert train("--set", "model.settings.width=12") == 0
    assert times_run(folder / "sums.py") == 1
    capsys.readouterr()
    copy = folder / "run" / "network.py"
    assert copy.read_bytes() == (folder / "sums.py").read_bytes()
    definition = json.loads((folder / "run" / "run.json").read_text())
    assert definition["network_file"] == {"name": "sums.py", "sha256": read_network_file(copy).sha256}
    assert load_recipe("run/recipe.yaml").model.file == "sums.py"  # not the copy

    # Neither the folder nor the tagger runs anything by itself, nor does another file.
    (folder / "other.py").write_text(WEAVER)
    predict = ["predict", "--tagger", "run", "jets.root", "--out", "scores", "--threads", "1"]
    for command in (
        predict,
        ["export", "run", "--out", "run.onnx"],
        ["export-weaver", "run", "--out", "run.pt"],
    ):
        assert main(command) == 2
        assert "needs its network file sums.py (sha256 " in capsys.readouterr().err
    assert main([*predict, "--network", "other.py"]) == 2
    assert "sha256" in capsys.readouterr().err
    assert times_run(folder / "sums.py") == 1
    assert times_run(copy) == times_run(folder / "other.py") == 0

    assert main([*predict, "--network", "sums.py"]) == 0
    assert main([*predict, "--network", "sums.py", "--embeddings", "--overwrite"]) == 2
    assert "no embeddings" in capsys.readouterr().err


@pytest.mark.slow
def test_an_exported_file_gives_the_same_scores(folder, capsys):
    assert train("--set", "epochs=1") == 0
    assert main(["export", "run", "--network", "sums.py", "--out", "run.onnx"]) == 0
    for tagger, options in (("run", ["--network", "sums.py"]), ("run.onnx", [])):
        words = ["--tagger", tagger, *options, "--out", f"{tagger}_scores", "--threads", "1"]
        assert main(["predict", "jets.root", *words]) == 0
    scores, exported = (columns(f"{name}_scores/jets.root") for name in ("run", "run.onnx"))
    for name in (name for name in scores if name.startswith("score_")):
        np.testing.assert_allclose(exported[name], scores[name], rtol=0, atol=1e-5)
    text = WEAVER.replace(
        "        momenta =",
        "        if features.sum() > 0:\n            features = -features\n        momenta =",
    )
    write_network(folder, text, "branching.py")
    assert train("--set", "epochs=1", network="branching.py", out="branching") == 0
    capsys.readouterr()
    assert main(["export", "branching", "--network", "branching.py", "--out", "branching.onnx"]) == 4
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "scores differ from torch's" in line


def test_a_worker_gets_the_file_with_the_tagger(folder):
    assert train("--set", "epochs=1") == 0
    tagger = load_torch_tagger("run", "sums.py")
    sent = engines._SentTagger(tagger.to_bytes(), "tagger.safetensors", tagger.sha256, tagger.network_file)
    loaded = engines._WorkerTaggers().get(pickle.loads(pickle.dumps(sent)))  # noqa: S301
    inputs = next(training_batches_of(file_job("sums.py", "jets.root"))).inputs
    assert torch.equal(loaded.network(inputs)["classes"], tagger.network(inputs)["classes"])


def training_batches_of(job):
    return training_batches(job.train, job.train_index, batch_size=16, seed=1)


def test_a_resumed_run_is_the_same(folder, jet_file):
    path = folder / "sums.py"
    run_job(file_job(path, jet_file), folder / "whole")
    for num_steps in (4, 9):  # within the first epoch, and within the second
        run_job(file_job(path, jet_file), folder / "parts", resume=True, should_stop=stop_after(num_steps))
    run_job(file_job(path, jet_file), folder / "parts", resume=True)
    mine, theirs = tensors_of(folder / "parts"), tensors_of(folder / "whole")
    assert "network/backbone.module.calls" in mine
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        assert torch.equal(tensor, theirs[name]), name
    assert metrics_of(folder / "parts") == metrics_of(folder / "whole")


def test_a_changed_file_does_not_resume(folder, capsys):
    assert train("--set", "epochs=1") == 0
    (folder / "moved").mkdir()
    (folder / "sums.py").rename(folder / "moved" / "sums.py")
    assert train("--set", "epochs=1", "--resume", network="moved/sums.py") == 0
    (folder / "sums.py").write_text(WEAVER + LOSS + "\n# another\n")
    assert train("--set", "epochs=1", "--resume") == 2
    assert "network_file.sha256: " in capsys.readouterr().err


def test_the_loss_of_the_file_is_the_objective(folder, jet_file):
    job = file_job("sums.py", jet_file, reweighting="loss", epochs=1)
    run_job(job, folder / "run")
    learner = make_learner(job, World(), torch.device("cpu"))
    (line,) = read_metrics(folder / "run" / "metrics.jsonl", "epoch")
    tagger = load_torch_tagger("run", "sums.py")
    total, num_jets = 0.0, 0
    for batch in ordered_batches(job.validation, job.validation_index, batch_size=50):
        chances = tagger.network(batch.inputs)["classes"].softmax(dim=1)[
            torch.arange(len(batch)), batch.labels
        ]
        total -= ((1 - chances) ** 2 * chances.log()).sum().item()
        num_jets += len(batch)
    assert line["validation_loss"] == pytest.approx(total / num_jets, rel=1e-5)
    assert type(learner.objective).__name__ == "FileLoss"
    decayed = [group["weight_decay"] for group in learner.optimizer.param_groups]
    assert decayed == [0.0, 0.0]


def test_weights_that_the_loss_does_not_get_are_said(folder, jet_file):
    recipe = tiny_recipe(model={"file": "sums.py"})
    config = load_data_config("jetclass_kin").replace(
        weights={"use_precomputed_weights": True, "weight_branches": ["jet_pt"]}
    )
    code = run_network_file(read_network_file("sums.py"))
    job = open_job(recipe, config, [InputFile("", str(jet_file))], 0.25, seed=7, network_code=code)
    assert "does not get the weights of jets" in job.notices[0]
    with pytest.raises(ConfigError, match="label_smoothing: .*sums.py has a loss of its own"):
        file_job("sums.py", jet_file, label_smoothing=0.1)


def test_steps_equal_those_of_weaver(folder, jet_file):
    optimizer = {"name": "adamw", "lr": 1e-2, "weight_decay": 0.01}
    job = file_job("sums.py", jet_file, optimizer=optimizer, model={"settings": {"dropout": 0.0}})
    learner = make_learner(job, World(), torch.device("cpu"))
    backbone = learner.network.backbone
    code = run_network_file(read_network_file("sums.py"))
    twin, _ = code.module.get_model(backbone.inputs.data_config, dropout=0.0)
    twin.load_state_dict(backbone.module.state_dict(), strict=False)
    names = backbone.inputs.data_config.input_names
    batches = [batch for batch, _ in zip(training_batches_of(job), range(10), strict=False)]
    loader = [
        (
            dict(
                zip(
                    names, [group.pad(batch.inputs.padded()) for group in backbone.inputs.groups], strict=True
                )
            ),
            {"_label_": batch.labels},
            None,
        )
        for batch in batches
    ]
    decayed = [p for name, p in twin.named_parameters() if p.ndim > 1 and name != "bias"]
    others = [p for name, p in twin.named_parameters() if p.ndim <= 1 or name == "bias"]
    groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    train_classification(
        twin,
        code.module.get_loss(backbone.inputs.data_config),
        torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.01),
        None,
        _Loader(loader, backbone.inputs.data_config),
        torch.device("cpu"),
        epoch=0,
        extra_args={"args": Namespace(use_amp=False, amp_dtype=None)},
    )
    for step, batch in enumerate(batches):
        take_step(learner, iter([batch]), step, 1e-2, accumulate=1)
    ours = backbone.module.state_dict()
    for name, tensor in twin.state_dict().items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-5, atol=1e-6)
    assert (ours["last.bias"] != 0).all()


class _Loader(list):
    """Batches, as weaver-core's training loop takes them."""

    def __init__(self, batches, config):
        super().__init__(batches)
        self.dataset = SimpleNamespace(config=config)


def test_a_partt_file_goes_the_whole_way(folder, capsys):
    write_network(folder, PARTT, "means.py")
    (folder / "recipe.yaml").write_text(
        yaml.safe_dump({**TINY_RECIPE, "epochs": 1, "model": {"file": "means.py", "settings": {"width": 6}}})
    )
    assert train(network=None) == 0
    capsys.readouterr()
    tagger = load_tagger("run", network_file="means.py")
    assert tagger.network.backbone.width == 6
    assert partt.predict(tagger, "jets.root", "scores", embeddings=True).balance.scored > 200
    with pytest.raises(ConfigError, match="needs its network file means.py"):
        partt.predict("run", "jets.root", "scores")
    assert train("--set", "model.settings.widht=6", network=None, out="typo") == 2
    assert "network means: widht: " in capsys.readouterr().err
    assert train("--init-from", "run", network=None, out="tuned") == 0
    assert main(["export", "run", "--network", "means.py", "--out", "means.onnx"]) == 2
    assert "embed_padded" in capsys.readouterr().err


def test_fine_tuning_needs_the_same_file(folder, capsys):
    assert train("--set", "epochs=1") == 0
    config = load_data_config("jetclass_kin")
    labels = {"type": "simple", "value": ["label_QCD", "label_Hbb"]}
    two = config.replace(labels=labels, selection="(label_QCD == 1) | (label_Hbb == 1)")
    (folder / "two.yaml").write_text(two.to_yaml())
    write_network(folder, WEAVER, "other.py")
    start = ["--init-from", "run", "--set", "epochs=1", "--set", "data_config=two.yaml"]
    assert train(*start, network="other.py", out="tuned") == 2
    assert "sha256" in capsys.readouterr().err
    assert times_run(folder / "other.py") == 0
    freeze = ("--set", "fine_tuning.freeze=[module.each.*]")
    assert train("--set", "epochs=1", *freeze, out="frozen") == 0  # the code of a file may load weights
    capsys.readouterr()
    assert train(*start, *freeze, out="tuned") == 0
    assert "with a new last layer" in capsys.readouterr().out
    before, after = (load_torch_tagger(name, "sums.py").network for name in ("run", "tuned"))
    assert after.head_sizes == {"classes": 2}
    assert torch.equal(after.backbone.module.each[0].weight, before.backbone.module.each[0].weight)


def test_a_partt_file_may_have_a_network_of_its_own(folder, jet_file):
    text = PARTT.replace("import Backbone, Embeddings", "import Backbone, Embeddings, Network").replace(
        "KIND = NetworkKind(MeansConfig, Means)",
        """
class Halved(Network):
    def outputs(self, embeddings):
        return {name: values / 2 for name, values in super().outputs(embeddings).items()}


KIND = NetworkKind(MeansConfig, Means, network=Halved)
""",
    )
    job = file_job(write_network(folder, text, "halved.py"), jet_file)
    network = job.new_network()
    inputs = next(training_batches_of(job)).inputs
    halves, embeddings = network(inputs)["classes"], network.embed(inputs)
    assert torch.equal(2 * halves, network.heads["classes"](embeddings))


def test_a_partt_file_that_computes_in_float32_only(folder):
    """Reference outputs are computed in float64 where that is possible."""
    text = PARTT.replace("tokens.new_zeros(len(inputs), self.width)", "torch.zeros(len(inputs), self.width)")
    write_network(folder, text, "single.py")
    assert train("--set", "epochs=1", network="single.py") == 0
    load_tagger("run", network_file="single.py")


MODEL_OF = "import torch\nfrom torch import nn\n\ndef get_model(data_config, **options):\n    {}\n"
FAULTS = {
    "def get_model(data_config:\n    pass": "net.py:1: SyntaxError: ",
    "import torch\n\nimport no_such_module": "net.py:3: ModuleNotFoundError: No module named 'no_such_module'",
    "raise SystemExit(3)": "net.py:1: SystemExit: 3",
    "x = 1": "net.py: should define get_model(data_config, **options), as for weaver-core, or KIND",
    WEAVER
    + "\n\ndef get_train_fn(data_config):\n    pass\n": "net.py: get_train_fn is not supported: partt has",
    WEAVER
    + "\n\ndef get_evaluate_fn(data_config):\n    pass\n": "net.py: get_evaluate_fn is not supported: ",
    MODEL_OF.format("return 1 / 0"): "net.py:5: ZeroDivisionError: division by zero",
    MODEL_OF.format("return data_config.input_dict"): "net.py:5: AttributeError: partt's data_config has no "
    "'input_dict' (did you mean 'input_dicts'?)",
    MODEL_OF.format(
        "return {}, {}"
    ): "net.py: get_model should return a torch module and model_info, found dict",
    WEAVER.replace(
        "return self.last(", "return self.lost("
    ): "net.py:33: AttributeError: 'Sums' object has no",
    WEAVER.replace(
        "return self.last(", "return (1, "
    ): "net.py: the module should return one tensor, found tuple",
    WEAVER.replace("len(data_config.label_value)", "3"): "net.py: its module should return [jets, 10], a "
    "column for each of the classes, found [16, 3]",
    WEAVER.replace(
        "sum(dim=2)", "sum(dim=2).log()"
    ): "net.py: the loss or the outputs of the first training jets are",
    WEAVER
    + "\n\ndef get_loss(data_config):\n    return 3\n": "net.py: get_loss should return a function of outputs",
    WEAVER
    + "\n\ndef get_loss(data_config):\n    return nn.CrossEntropyLoss(reduction='none')\n": "net.py: the loss "
    "of a batch should be one number, found [16]",
    WEAVER
    + "\n\ndef get_loss(data_config):\n    return lambda a, b: a.lost\n": ":57: AttributeError: 'Tensor' object",
    WEAVER
    + "\n\ndef get_loss(data_config):\n    return lambda a, b: a.detach().mean()\n": "net.py: RuntimeError: "
    "element 0 of tensors does not require grad",
    PARTT.replace("def forward(self, inputs", "def forward(self, lost"): "NameError: name 'inputs' is not",
}


@pytest.mark.parametrize(("text", "message"), FAULTS.items(), ids=range(len(FAULTS)))
def test_faults_of_a_file_are_one_line(folder, capsys, text, message):
    path = write_network(folder, text, "net.py")
    assert train(network=path.name) in {2, 4}
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("partt: error: ")]
    assert message in line
    assert not (folder / "run" / "run.json").exists()  # so that the corrected file can start


def test_a_file_that_cannot_be_read_is_one_line(folder, capsys):
    for network, message in (
        ("none.py", "cannot read "),
        (".", "cannot read "),
        ("jets.root", "not Python code in"),
    ):
        assert train(network=network) == 2
        assert message in capsys.readouterr().err
    assert main(["predict", "--tagger", "jetclass-small", "--demo", "--network", "sums.py"]) == 2
    assert "needs no network file" in capsys.readouterr().err
    assert times_run(folder / "sums.py") == 0


def test_files_beside_it_can_be_imported(folder):
    write_network(folder, "WIDTH = 5\n", "widths_beside.py")
    text = WEAVER.replace("**options)\n", "**{'width': __import__('widths_beside').WIDTH, **options})\n", 1)
    run_network_file(read_network_file(write_network(folder, text, "beside.py")))
    assert train("--set", "epochs=1", network="beside.py") == 0
