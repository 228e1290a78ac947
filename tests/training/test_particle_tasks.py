"""Classes of particles: from the data config to an auxiliary loss on the tokens."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
import yaml
from kinds_of_configs import PF_AND_SV, make_events
from test_fit import assert_same_run

from conftest import ROOT
from jets import make_jets, write_jets
from network_files import PARTT, write_network
from partt.cli.main import main
from partt.config import parse_record
from partt.data.config.data_config import DataConfig, load_data_config
from partt.data.files.lists import InputFile
from partt.data.jagged import Jagged
from partt.data.jet_batch import JetBatch, ParticleClasses, concatenate
from partt.data.packing import pack
from partt.data.variables import Variables
from partt.errors import ConfigError, DataError
from partt.jet_inputs import JetInputs
from partt.jobs.metrics_file import read_metrics
from partt.model.network import TOKENS, tokens_of
from partt.tagger.loading import load_torch_tagger
from partt.training.distributed import World
from partt.training.fine_tuning import weights_to_start_from
from partt.training.job import open_job
from partt.training.learner import make_learner
from partt.training.objectives.particle_classification import ParticleClassification
from partt.training.objectives.tasks_of_recipe import make_objective
from small_networks import ALL, SMALL, jets_for, packed_jets, small_network, variables_of
from training_jobs import TINY_RECIPE, run_job, stop_after, tiny_recipe

# --- data configs and packing ---

PARTICLES = """\
  particles:
    origin: {value: cand_origin, names: [primary, b, c]}
    real: {collection: sv, value: vertex_mass > 1, names: ['no', 'yes']}
"""


def parse(text) -> DataConfig:
    return parse_record(text, DataConfig, "c.yaml")


def test_labels_are_packed_as_the_particles_are():
    """After the cut to 20 particles and the mask, and in batches that are taken apart and joined."""
    text = PF_AND_SV.replace("vars: [cand_mask]", "vars: [cand_is_good]") + PARTICLES
    jets = make_events(60)
    total = len(jets["cand_pt"].contents)
    values = np.random.default_rng(1).choice([-3, -1, 0, 1, 2, 3, 0.5, np.nan, np.inf], total)
    jets["cand_origin"] = Jagged(values, jets["cand_pt"].offsets)
    assert jets["cand_pt"].lengths.max() > 20
    config = parse(text)
    variables = Variables(jets, config.formulas, "jets", np.arange(60))
    batch = pack(config, variables, particle_labels=config.particle_labels)

    expected = {"origin": [], "real": []}
    for jet in range(60):
        origin, is_good, mass = (
            jets[name].contents[slice(*jets[name].offsets[jet : jet + 2])]
            for name in ("cand_origin", "cand_is_good", "vertex_mass")
        )
        kept = [value for value, good in zip(origin[:20], is_good[:20], strict=True) if good]
        expected["origin"].append([int(value) if value in {0, 1, 2} else -1 for value in kept])
        expected["real"].append([int(value > 1) for value in mass[:3]])
    order = np.random.default_rng(2).permutation(60)
    taken = batch.take(order)
    joined = concatenate([taken.slice(0, 13), taken.slice(13, 13), taken.slice(13, 60)])
    for name, collection in (("origin", "pf"), ("real", "sv")):
        for found, jets_in_order in ((batch, np.arange(60)), (taken, order), (joined, order)):
            labels = found.particle_labels[name]
            assert torch.equal(labels.offsets, found.inputs.collections[collection].offsets)
            lists = [part.tolist() for part in labels.numbers.split(labels.offsets.diff().tolist())]
            assert lists == [expected[name][jet] for jet in jets_in_order]
    assert pack(config, variables).particle_labels == {}


def test_labels_of_another_number_of_particles_are_named():
    config = parse(PF_AND_SV + PARTICLES)
    for wrong, message in (
        (
            np.zeros(5),
            "labels.particles.origin: cand_origin has one value per jet, but it needs one for each",
        ),
        (Jagged(np.zeros(5), np.arange(6)), "entry 0: cand_origin has 1 values, but cand_pt has"),
    ):
        variables = Variables({**make_events(5), "cand_origin": wrong}, config.formulas, "f", np.arange(5))
        with pytest.raises(DataError, match=message):
            pack(config, variables, particle_labels=["origin"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "sv,",
            "svs,",
            r"c.yaml:41: labels.particles.real.collection: no particles 'svs' in `inputs` \(did you ",
        ),
        ("sv,", "jet,", "no particles 'jet' in `inputs`; there are pf, sv"),
        ("['no', 'yes']", "['no']", "labels.particles.real.names: "),
        (
            "names: [primary, b, c]",
            "names: [b, b, c]",
            r"labels.particles.origin.names\[1\]: duplicate name 'b'",
        ),
        ("value: cand_origin, ", "", "labels.particles.origin.value: this key is needed"),
        ("value: cand_origin", "value: open(1)", "labels.particles.origin.value: "),
        ("origin:", "a.b:", "labels.particles.a.b: "),
    ],
)
def test_faults_in_the_config(old, new, message):
    text = PF_AND_SV + PARTICLES
    assert old in text
    with pytest.raises(ConfigError, match=message):
        parse(text.replace(old, new))


def test_a_faulty_collection_is_told_once():
    text = (PF_AND_SV + PARTICLES).replace("length: 3", "length: 0")
    with pytest.raises(ConfigError) as raised:
        parse(text)
    assert "labels.particles" not in str(raised.value)


def test_weaver_ignores_them(tmp_path):
    from weaver.utils.data.config import DataConfig as WeaverConfig

    (tmp_path / "c.yaml").write_text(parse(PF_AND_SV + PARTICLES).to_yaml())
    assert "cand_origin" in (tmp_path / "c.yaml").read_text()
    config = WeaverConfig.load(str(tmp_path / "c.yaml"), load_observers=False)
    assert config.label_value == ["is_b", "is_c", "is_light"]
    assert "cand_origin" not in config.train_load_branches


def test_some_of_the_labels():
    config = parse(PF_AND_SV + PARTICLES)
    assert list(config.particle_labels) == ["origin", "real"]
    assert config.with_particle_labels(config.particle_labels) is config
    assert list(config.with_particle_labels(["real"]).particle_labels) == ["real"]
    with pytest.raises(
        ConfigError, match=r"no classes of particles 'orign' in .* \(did you mean 'origin'\?\)"
    ):
        config.with_particle_labels(["orign"])


def test_check_counts_particles_by_class(tmp_path, capsys):
    origin = origins_of(make_jets(80, seed=4))
    files = [
        write_jets(tmp_path / "a.root", 80, seed=4, part_origin=origin),
        write_jets(tmp_path / "b.root", 80, seed=5),
    ]
    (tmp_path / "c.yaml").write_text(config_with_origin().to_yaml())
    command = ["check", str(tmp_path / "c.yaml"), str(files[0])]
    assert main([*command, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["particle_classes"]
    used = np.concatenate([origin.contents[first:last][:128] for first, last in pairwise(origin.offsets)])
    assert found["by_class"] == {"near": int((used == 0).sum()), "far": int((used == 1).sum())}
    assert found["num_unknown"] == (used < 0).sum()
    assert main(command) == 0
    assert "(not known)" in capsys.readouterr().out
    assert main([*command[:2], *map(str, files)]) == 0
    text = "b.root: lacks part_origin: no recipe with tasks.particles.origin can use it"
    assert text in " ".join(capsys.readouterr().out.split())


# --- the loss ---


def batch_of(inputs: JetInputs, seed=0, **labels) -> JetBatch:
    """Return a batch with random weights; `labels`: name -> (collection, class numbers)."""
    numbers = torch.zeros(len(inputs), dtype=torch.int64)
    weights = torch.rand(len(inputs), generator=torch.Generator().manual_seed(seed)) + 0.5
    named = {
        name: ParticleClasses(torch.as_tensor(values), inputs.collections[collection].offsets)
        for name, (collection, values) in labels.items()
    }
    return JetBatch(
        inputs, numbers, weights, numbers, numbers, numbers.bool(), numbers, numbers, particle_labels=named
    )


def objective_for(network, num_classes=3, collection="pf", head=None) -> ParticleClassification:
    torch.manual_seed(5)
    objective = ParticleClassification("origin", collection, num_classes, head)
    objective.prepare(network)
    objective.double()
    for parameter in objective.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return objective


LENGTHS = [4, 0, 7, 1, 9]
NUMBERS = torch.arange(21) % 4 - 1  # a quarter is not known


def by_hand(tokens, objective, batch):
    """Return loss and accuracy, and the gradient of the last layer, particle by particle."""
    norm, head = objective.head[0], objective.head[1].output
    scale, shift, matrix, bias = (
        parameter.detach().numpy() for parameter in (norm.weight, norm.bias, head.weight, head.bias)
    )
    total, correct, num_known, gradient, of_bias = 0.0, 0, 0, np.zeros_like(matrix), np.zeros_like(bias)
    jet_of = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    for token, number, jet in zip(tokens.detach().numpy(), NUMBERS.tolist(), jet_of, strict=True):
        if number < 0:
            continue
        x = (token - token.mean()) / np.sqrt(token.var() + 1e-5) * scale + shift
        odds = np.exp(matrix @ x + bias)
        probabilities = odds / odds.sum()
        weight = float(batch.weights[jet])
        total -= weight * np.log(probabilities[number])
        correct += probabilities.argmax() == number
        num_known += 1
        residual = weight * (probabilities - np.eye(3)[number])
        gradient += np.outer(residual, x)
        of_bias += residual
    return total / num_known, correct / num_known, gradient / num_known, of_bias / num_known


def test_the_loss_is_the_mean_cross_entropy_of_known_particles():
    network, inputs = small_network("pfn"), packed_jets(LENGTHS)
    objective = objective_for(network)
    batch = batch_of(inputs, origin=("pf", NUMBERS))
    tokens = torch.randn(21, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    tokens.requires_grad_()
    found = objective.losses({TOKENS.format("pf"): tokens}, batch)
    found.loss.backward()
    loss, accuracy, gradient, of_bias = by_hand(tokens, objective, batch)
    assert found.loss.item() == pytest.approx(loss, rel=1e-6)
    output = objective.head[1].output
    np.testing.assert_allclose(output.weight.grad, gradient, atol=1e-6)
    np.testing.assert_allclose(output.bias.grad, of_bias, atol=1e-6)
    assert (tokens.grad[NUMBERS < 0] == 0).all()
    assert (tokens.grad[NUMBERS >= 0] != 0).any(dim=1).all()
    sums = {name: float(value) for name, value in found.sums.items()}
    values = objective.training_values(sums, len(batch))
    assert values == pytest.approx({"loss": loss, "origin_accuracy": accuracy}, rel=1e-6)

    weights = batch.weights.double()[torch.arange(5).repeat_interleave(torch.tensor(LENGTHS))][NUMBERS >= 0]
    with torch.inference_mode():
        measured = objective.measurements({TOKENS.format("pf"): tokens}, batch)
    validated = objective.validation_values(measured)
    assert validated["loss"] == pytest.approx(loss * len(weights) / float(weights.sum()), rel=1e-6)


def test_particles_without_a_label_change_nothing():
    network, inputs = small_network("pfn"), packed_jets(LENGTHS)
    objective = objective_for(network)
    batch = batch_of(inputs, origin=("pf", NUMBERS))
    tokens = torch.randn(21, 16, dtype=torch.float64)
    others = torch.where((NUMBERS < 0)[:, None], 100 * torch.randn_like(tokens), tokens)
    losses = [objective.losses({TOKENS.format("pf"): x}, batch).loss.item() for x in (tokens, others)]
    assert losses[0] == losses[1]
    unknown = batch_of(inputs, origin=("pf", torch.full((21,), -1)))
    found = objective.losses({TOKENS.format("pf"): tokens}, unknown)
    found.loss.backward()
    assert found.loss.item() == 0
    assert all((parameter.grad == 0).all() for parameter in objective.parameters())  # processes exchange it
    with torch.inference_mode():
        measured = objective.measurements({TOKENS.format("pf"): tokens}, unknown)
    assert objective.validation_values(measured) == {"loss": None, "origin_accuracy": None}


def test_trimmed_particles_do_not_count():
    network, inputs = small_network(trim=True).train(), packed_jets([3] * 9 + [60])
    objective = objective_for(network)
    batch = batch_of(inputs, origin=("pf", torch.arange(87) % 3))
    numbers = set()
    torch.manual_seed(0)
    for _ in range(10):
        outputs = network.outputs_and_tokens(inputs)
        _, is_trimmed = tokens_of(outputs, "pf")
        known = objective.losses(outputs, batch).sums["known"]
        assert known == 87 - is_trimmed.sum()
        numbers.add(int(known))
    assert min(numbers) < 87


TOKEN_NETWORKS = [name for name in ALL if not name.startswith(("gru", "lstm", "mlp"))]


@pytest.mark.parametrize("name", [name for name in TOKEN_NETWORKS if "," in name or name in SMALL])
def test_scores_follow_their_particles(name):
    """In every collection; and the outputs of the other heads are those without tokens."""
    network, jets = small_network(name).eval(), jets_for(name, LENGTHS)
    with torch.inference_mode():
        outputs = network.outputs_and_tokens(jets)
        assert torch.equal(outputs["classes"], network(jets)["classes"])
        assert torch.equal(tokens_of(outputs, "pf")[0], network.tokens(jets))
        for collection, particles in jets.collections.items():
            objective = objective_for(network, collection=collection)
            jet = np.repeat(np.arange(len(LENGTHS)), particles.lengths)
            order = np.lexsort((np.random.default_rng(1).random(len(jet)), jet))  # other ones in each jet
            mixed = particles.with_rows(lambda rows, order=order: rows[order])
            again = JetInputs({**jets.collections, collection: mixed}, jets.jet_features)
            scores = objective.head(tokens_of(outputs, collection)[0])
            assert scores.shape == (len(jet), 3)
            if "pcnn" not in name:  # which reads the order of the particles
                tokens, _ = tokens_of(network.outputs_and_tokens(again), collection)
                torch.testing.assert_close(objective.head(tokens), scores[order], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["gru", "mlp, jet"])
def test_networks_without_tokens_say_so(name):
    with pytest.raises(
        ConfigError, match="tasks.particles.origin: the network .* has no tokens of particles"
    ):
        objective_for(small_network(name))


# --- recipes and runs ---


def origins_of(jets) -> Jagged:
    """Return a class that the network can see: whether a charged particle is far from the jet's axis."""
    deta, dphi, charge = (jets[f"part_{name}"].contents for name in ("deta", "dphi", "charge"))
    far = (np.hypot(deta, dphi) > 0.35).astype(np.int32)
    return Jagged(np.where(charge == 0, -1, far).astype(np.int32), jets["part_deta"].offsets)


def config_with_origin() -> DataConfig:
    data = yaml.safe_load(load_data_config("jetclass_kin").to_yaml())
    data["labels"]["particles"] = {"origin": {"value": "part_origin", "names": ["near", "far"]}}
    return DataConfig.model_validate(data)


TASKS = {"particles": {"origin": {"weight": 2.0, "head": {"hidden_widths": [8]}}}}
QUICK = {
    "model": {"name": "part", "settings": {**TINY_RECIPE["model"]["settings"], "num_blocks": 1}},
    "optimizer": {"name": "adamw", "lr": 1e-2},
    "schedule": {"name": "constant"},
    "batch_size": 8,
    "epochs": 2,
}


def job_with_origin(file, **changes):
    recipe = tiny_recipe(**{**QUICK, "tasks": TASKS, **changes})
    return open_job(recipe, config_with_origin(), [InputFile("", str(file))], 0.25, seed=7)


@pytest.fixture(scope="module")
def origin_file(tmp_path_factory):
    origin = origins_of(make_jets(300))
    return write_jets(tmp_path_factory.mktemp("jets") / "origin.root", 300, part_origin=origin)


@pytest.fixture(scope="module")
def run(origin_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run_job(job_with_origin(origin_file), folder)
    return folder


def test_the_origin_is_learned(run):
    epochs = read_metrics(run / "metrics.jsonl", "epoch")
    accuracies = [line["validation_origin_accuracy"] for line in epochs]
    assert accuracies[-1] > max(0.85, accuracies[0])  # 0.6 are far
    assert all(0 < line["train_origin_accuracy"] < 1 for line in epochs)
    for part in ("train", "validation"):
        total = epochs[-1][f"{part}_classes_loss"] + 2 * epochs[-1][f"{part}_origin_loss"]
        assert epochs[-1][f"{part}_loss"] == pytest.approx(total)


def test_the_tagger_has_classes_only_and_needs_no_labels(run):
    tagger = load_torch_tagger(run)
    assert tagger.network.head_sizes == {"classes": 10}
    assert [task.name for task in tagger.tasks] == ["classes"]
    assert "part_origin" not in tagger.reference_jets
    jets = variables_of(tagger)
    assert "part_origin" not in jets.branches
    assert np.isfinite(tagger.tag(jets).probabilities).all()


def test_the_run_resumes_exactly(origin_file, run, tmp_path):
    assert run_job(job_with_origin(origin_file), tmp_path, should_stop=stop_after(8)).stopped
    torch.manual_seed(12345)
    assert not run_job(job_with_origin(origin_file), tmp_path, resume=True).stopped
    assert_same_run(tmp_path, run)


def test_fine_tuning_starts_from_such_a_run(run, jet_file, origin_file):
    """With and without the task; the weights that are drawn do not depend on it."""
    tagger = load_torch_tagger(run)
    for file, tasks in ((jet_file, {}), (origin_file, TASKS)):
        job = job_with_origin(file, tasks=tasks)
        initial = weights_to_start_from(run, job.recipe, job.train.config)
        assert initial.heads == "including the last layer"
        learner = make_learner(job, World(), torch.device("cpu"), initial.tensors)
        for name, weight in tagger.network.state_dict().items():
            assert torch.equal(weight, learner.network.state_dict()[name])
    new = [
        make_learner(job_with_origin(origin_file, tasks=tasks), World(), torch.device("cpu")).network
        for tasks in ({}, TASKS)
    ]
    assert all(map(torch.equal, new[0].state_dict().values(), new[1].state_dict().values()))


def test_files_need_labels_only_for_the_task(jet_file):
    assert job_with_origin(jet_file, tasks={}).train.config.particle_labels == {}
    with pytest.raises(DataError, match="lacks branches that the data config needs: part_origin"):
        job_with_origin(jet_file)


def test_a_network_without_tokens_stops_before_the_run(origin_file, tmp_path):
    job = job_with_origin(origin_file, model={"name": "recurrent", "settings": {"width": 8}})
    with pytest.raises(ConfigError, match="recurrent has no tokens of particles; part, particlenet, pfn and"):
        run_job(job, tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_network_from_a_file(origin_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(config_with_origin().to_yaml())
    recipe = {**TINY_RECIPE, "data_config": "c.yaml", "tasks": TASKS, "epochs": 1}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    command = ["train", "recipe.yaml", "--train", str(origin_file), "--val-fraction", "0.2", "--workers", "0"]
    own = write_network(tmp_path, PARTT, "own.py")
    assert main([*command, "--network", str(own), "--threads", "1", "--out", "a"]) == 2
    assert "the network own has no tokens of particles" in capsys.readouterr().err
    with_tokens = PARTT.replace("self.each =", "self.token_width = config.width\n        self.each =")
    write_network(tmp_path, with_tokens, "own.py")
    assert main([*command, "--network", str(own), "--threads", "1", "--out", "b"]) == 0
    header = next(line for line in capsys.readouterr().out.splitlines() if "epoch" in line)
    assert "origin accuracy" in header


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"particles": {"orgin": {}}}, r"no classes of particles 'orgin' .* \(did you mean 'origin'\?\)"),
        (
            {"classification": {"weight": 0.0}, **TASKS},
            "nothing to learn: .* classes of particles are learned",
        ),
    ],
)
def test_tasks_that_do_not_fit_the_data_config(tasks, message):
    with pytest.raises(ConfigError, match=message):
        make_objective(tiny_recipe(tasks=tasks), config_with_origin())


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"particles": {"classes": {}}}, "taken by the classes"),
        ({"particles": {"mass": {}}, "regressions": {"mass": {}}}, "taken by a regression"),
    ],
)
def test_names_of_tasks_are_unique(tasks, message):
    with pytest.raises(ValueError, match=message):
        tiny_recipe(tasks=tasks)


def test_the_shipped_config_names_all_origins():
    from partt.simulation.ancestry import ParticleOrigin

    (labels,) = load_data_config("jetclass_mass").particle_labels.values()
    known = sorted(origin for origin in ParticleOrigin if origin >= 0)
    assert [int(origin) for origin in known] == list(range(len(labels.names)))
    assert labels.value in (ROOT / "docs/reference/simulation.md").read_text()
