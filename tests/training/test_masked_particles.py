"""Learning without labels: masks, targets, loss, probe; runs on files without labels; fine-tuning from them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import uproot
import yaml
from test_distributed import assert_two_processes_resume_exactly
from test_fit import assert_same_run, metrics_of, tensors_of

import partt
from conftest import FIXTURES
from jets import CLASSES, make_jets
from partt.cli.main import main
from partt.config import parse_record
from partt.data.config.data_config import DataConfig, load_data_config
from partt.data.files.lists import InputFile
from partt.data.files.tables import read_columns, write_table
from partt.data.jagged import to_awkward
from partt.data.jet_batch import JetBatch
from partt.data.reading.batches import ordered_batches
from partt.errors import ConfigError, DataError
from partt.jet_inputs import JetInputs, Layout
from partt.jobs.metrics_file import read_metrics
from partt.tagger.loading import load_tagger, load_torch_tagger
from partt.training.distributed import World
from partt.training.job import ReadingOptions, open_job
from partt.training.learner import make_learner
from partt.training.objectives.jet_observables import num_observables
from partt.training.objectives.linear_probe import linear_layer, probe_accuracy
from partt.training.objectives.masked_flow import NOISE, MaskedFlow
from partt.training.objectives.masked_particles import OBSERVABLES, ROWS, TYPES, VALUES, MaskedParticles
from partt.training.objectives.masking import draw_rows, masked_jets
from partt.training.objectives.particle_targets import fitted_scales, particle_targets
from partt.training.recipe import MaskedParticlesChoice
from small_networks import jets_for, make_tagger, packed_jets, small_network, with_particles
from training_jobs import run_job, stop_after, tiny_recipe

LENGTHS = [4, 0, 7, 1, 30, 10]
LABELS = [f"label_{name}" for name in CLASSES]
CHOICE = {"decoder": {"width": 8, "num_blocks": 1, "num_heads": 2}}


def generator(seed=0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch_of(inputs: JetInputs, labels=None, weights=None) -> JetBatch:
    zeros = torch.zeros(len(inputs), dtype=torch.int64)
    weights = torch.ones(len(inputs)) if weights is None else weights
    return JetBatch(inputs, labels, weights, zeros, torch.arange(len(inputs)), zeros.bool(), zeros, zeros)


def unlabelled(name: str) -> DataConfig:
    data = yaml.safe_load(load_data_config(name).to_yaml())
    return DataConfig.model_validate({**data, "labels": None})


def mask_of(rows, num_rows: int) -> torch.Tensor:
    mask = torch.zeros(num_rows, dtype=torch.bool)
    mask[rows] = True
    return mask


# --- masks ---


@pytest.mark.parametrize(("fraction", "expected"), [(0.3, [1, 0, 2, 0, 9, 3]), (0.9, [3, 0, 6, 0, 27, 9])])
def test_a_fraction_of_each_jet_is_masked(fraction, expected):
    layout = packed_jets(LENGTHS).main.layout
    drawn = [draw_rows(layout, fraction, generator(seed)) for seed in (0, 0, 1)]
    for rows in drawn:
        mask = mask_of(rows, sum(LENGTHS))
        assert [int(part.sum()) for part in mask.split(LENGTHS)] == expected
        assert torch.equal(mask.nonzero()[:, 0], rows)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    ten = Layout.of_offsets(torch.tensor([0, 10]))
    counts = torch.cat([draw_rows(ten, 0.3, generator(seed)) for seed in range(300)]).bincount(minlength=10)
    assert counts.sum() == 900  # 0.3 x 10 is three, whatever the rounding
    assert (counts - 90).abs().max() < 41  # five standard deviations


def test_ranks_are_by_pt_among_the_masked_of_a_jet():
    inputs = packed_jets(LENGTHS)
    rows = draw_rows(inputs.main.layout, 0.5, generator())
    masked = masked_jets(inputs, rows)
    pt = inputs.main.momenta[:, :2].norm(dim=1)
    jets = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    assert masked.rows.tolist() == rows.tolist()
    assert sorted([*rows.tolist(), *masked.left.tolist()]) == list(range(sum(LENGTHS)))
    assert masked.jets.tolist() == jets[masked.rows].tolist()
    for row, rank in zip(masked.rows.tolist(), masked.ranks.tolist(), strict=True):
        same_jet = [other for other in masked.rows.tolist() if jets[other] == jets[row]]
        assert rank == sum(bool(pt[other] > pt[row]) for other in same_jet)
    in_order = masked_jets(with_particles(inputs, momenta=None), rows)  # no momenta: as in the file
    assert in_order.ranks.tolist() == [n for size in (2, 3, 0, 15, 5) for n in range(size)]


def test_all_input_groups_of_masked_particles_are_cut():
    inputs = jets_for("part, pf sv jet", LENGTHS)
    others = {"more": torch.arange(sum(LENGTHS))[:, None].double()}
    inputs = JetInputs({**inputs.collections, "pf": replace(inputs.main, others=others)}, inputs.jet_features)
    drawn = draw_rows(inputs.main.layout, 0.3, generator())
    visible = masked_jets(inputs, drawn).visible(inputs)
    mask = mask_of(drawn, sum(LENGTHS))
    assert visible.main.lengths.tolist() == [3, 0, 5, 1, 21, 7]
    assert visible.main.groups.keys() == {"features", "momenta", "points", "more"}
    for name, rows in visible.main.groups.items():
        assert torch.equal(rows, inputs.main.groups[name][~mask])
    assert visible.collections["sv"] is inputs.collections["sv"]
    assert list(visible.collections) == list(inputs.collections)
    assert visible.jet_features is inputs.jet_features


# --- targets ---


def test_types_from_flags_and_charge():
    targets = particle_targets(load_data_config("jetclass_full"))
    names = [variable.name for variable in load_data_config("jetclass_full").particles.variables]
    assert targets.num_types == 18
    flags = [name for name in names if name.startswith("part_is")]
    assert not set(targets.names) & {"part_charge", *flags}
    assert len(targets.names) == len(names) - 6
    features = torch.zeros(5, len(names))
    features[0, names.index("part_isPhoton")] = 1
    features[1, [names.index("part_isMuon"), names.index("part_charge")]] = torch.tensor([1.0, -1.0])
    features[2, [names.index("part_isChargedHadron"), names.index("part_charge")]] = 1.0
    features[3, names.index("part_charge")] = -1
    photon, muon = (flags.index(name) for name in ("part_isPhoton", "part_isMuon"))
    assert targets.types(features).tolist() == [3 * photon + 1, 3 * muon, 2, 15, 16]
    counts = targets.counts(features)
    of_tracks = [name in {"part_d0", "part_d0err", "part_dz", "part_dzerr"} for name in targets.names]
    assert sum(of_tracks) == 4
    for row, is_charged in zip(counts.tolist(), [False, True, True, True, False], strict=True):
        assert row == [is_charged or not of_track for of_track in of_tracks]


def test_flags_may_be_standardised_and_missing():
    data = yaml.safe_load(load_data_config("jetclass_kinpid").to_yaml())
    variables = data["inputs"]["pf_features"]["vars"]
    data["inputs"]["pf_features"]["vars"] = [
        [name, 0.5, 2.0] if name.startswith(("part_is", "part_charge")) else [name, *numbers]
        for name, *numbers in variables
    ]
    raw, scaled = load_data_config("jetclass_kinpid"), DataConfig.model_validate(data)
    random = torch.randint(-1, 2, (50, len(variables)), generator=generator()).float()
    expected = particle_targets(raw).types(random)
    assert len(set(expected.tolist())) > 5
    assert torch.equal(particle_targets(scaled).types((random - 0.5) * 2), expected)
    kinematic = particle_targets(load_data_config("jetclass_kin"))
    assert kinematic.num_types == 0
    assert kinematic.counts(torch.zeros(3, 7)).all()


def test_scales_are_widths_of_what_counts():
    config = load_data_config("jetclass_full")
    targets = particle_targets(config)
    names = [variable.name for variable in config.particles.variables]
    features = torch.randn(1000, len(names), generator=generator())
    features[:, names.index("part_charge")] = (torch.arange(1000) % 2).float()
    features[::2, names.index("part_d0")] = 100.0  # neutral
    features[:, names.index("part_deta")] = 3.0
    scales = fitted_scales(targets, features)
    assert scales["part_d0"] == pytest.approx(float(features[1::2, names.index("part_d0")].std()), rel=1e-4)
    assert scales["part_deta"] == 1.0
    scaled = particle_targets(config, scales).values(features)
    np.testing.assert_allclose(scaled[:, 0], features[:, 0] / scales["part_pt_log"], rtol=1e-5)
    with pytest.raises(ConfigError, match="no feature 'part_isMuon' is learned"):
        particle_targets(config, {"part_isMuon": 1.0})


# --- the network sees what is left, and the loss ---


def objective_for(network, config="jetclass_full", **choice) -> MaskedParticles:
    torch.manual_seed(5)
    chosen = MaskedParticlesChoice.model_validate({**CHOICE, **choice})
    config = load_data_config(config)
    scales = {"part_deltaR": 0.5, "part_dphi": 2.0}
    objective = MaskedParticles(particle_targets(config, scales), chosen, config.main.length)
    objective.prepare(network)
    return objective.double()


CASES = ["part", "part_s", "slim_xs", "part, pf sv jet", "part_plain"]


@pytest.mark.parametrize("case", CASES)
def test_masked_particles_never_reach_the_network(case):
    """Answers depend on all visible particles of a jet, and on nothing of the masked ones; all weights learn."""
    network, inputs = small_network(case), jets_for(case, LENGTHS)
    objective = objective_for(network)
    features, momenta = (
        rows.clone().requires_grad_() for rows in (inputs.main.features, inputs.main.momenta)
    )
    inputs = with_particles(inputs, features=features, momenta=momenta)
    outputs = objective.eval().run(network.eval(), batch_of(inputs))
    mask = mask_of(outputs[ROWS], sum(LENGTHS))
    assert int(mask.sum()) == 15
    (outputs[VALUES].square().sum() + outputs[TYPES].square().sum()).backward()
    is_masked_jet = torch.tensor([True, True, False, True, True]).repeat_interleave(
        torch.tensor([4, 7, 1, 30, 10])
    )
    for rows in (features.grad, momenta.grad):
        if rows is None:
            assert case == "part_plain"
            continue
        assert (rows[mask] == 0).all()
        assert (rows[~mask & is_masked_jet] != 0).any(dim=1).all()
        assert (rows[~is_masked_jet] == 0).all()
    trained = [parameter for parameter in network.backbone.parameters() if parameter.requires_grad]
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in trained)
    changed = torch.where(mask[:, None], 7.0, inputs.main.features.detach())
    again = objective.run(network, batch_of(with_particles(inputs, features=changed)))
    assert torch.equal(again[VALUES], outputs[VALUES])


def test_the_question_is_the_rank():
    """The order of particles in the file means nothing, and masked particles of a jet get different answers."""
    network, inputs = small_network().eval(), packed_jets([12, 9])
    objective = objective_for(network).eval()
    with torch.no_grad():
        first = objective.run(network, batch_of(inputs))
    by_hand = []
    for order in (torch.arange(21), torch.cat((torch.arange(12).flip(0), 12 + torch.arange(9).flip(0)))):
        rows = {name: getattr(inputs.main, name)[order] for name in ("features", "momenta", "points")}
        masked = masked_jets(with_particles(inputs, **rows), mask_of(first[ROWS], 21)[order].nonzero()[:, 0])
        embeddings = network.backbone(masked.visible(with_particles(inputs, **rows)), with_tokens=True)
        answers = objective.decoder(embeddings, objective.ask(masked.ranks), masked)
        places = order[masked.rows].argsort()
        by_hand.append(objective.answer(answers)[places])
    torch.testing.assert_close(by_hand[0], by_hand[1])
    torch.testing.assert_close(by_hand[0][:, : len(objective.targets.names)].float(), first[VALUES])
    assert len({round(float(row[0]), 6) for row in first[VALUES]}) == 5


def losses_by_hand(objective, outputs, batch) -> dict[str, float]:
    """Return the metrics of a batch, particle by particle."""
    config = load_data_config("jetclass_full")
    names = [variable.name for variable in config.particles.variables]
    features = batch.inputs.main.features.numpy()[outputs[ROWS].numpy()]
    jets = np.repeat(np.arange(len(LENGTHS)), LENGTHS)[outputs[ROWS].numpy()]
    flags = [name for name in names if name.startswith("part_is")]
    learned = [name for name in names if name not in {*flags, "part_charge"}]
    scales = {"part_deltaR": 0.5, "part_dphi": 2.0}
    distance = numbers = entropy = correct = total = 0.0
    for number, (row, jet) in enumerate(zip(features, jets, strict=True)):
        values = dict(zip(names, row, strict=True))
        weight = float(batch.weights[jet])
        for name, answer in zip(learned, outputs[VALUES][number].tolist(), strict=True):
            if values["part_charge"] == 0 and name in {"part_d0", "part_d0err", "part_dz", "part_dzerr"}:
                continue
            distance += weight * abs(answer - values[name] / scales.get(name, 1.0))
            numbers += weight
        kind = next((place for place, name in enumerate(flags) if values[name] > 0), len(flags))
        label = 3 * kind + int(np.sign(values["part_charge"])) + 1
        logits = outputs[TYPES][number].numpy()
        entropy += weight * (np.log(np.exp(logits).sum()) - logits[label])
        correct += weight * (logits.argmax() == label)
        total += weight
    return {
        "loss": distance / numbers + 0.3 * entropy / total,
        "feature_loss": distance / numbers,
        "type_accuracy": correct / total,
    }


def test_the_loss_by_hand():
    network, inputs = small_network(), packed_jets(LENGTHS, dtype=torch.float32)
    features = inputs.main.features
    features[:, 5:11] = torch.randint(-1, 2, (len(features), 6), generator=generator()).float()
    assert (features[:, 5] == 0).any()
    weights = torch.tensor([0.5, 1.0, 2.0, 1.0, 1.5, 0.7])
    batch = batch_of(inputs, weights=weights)
    objective = objective_for(network)
    outputs = {
        ROWS: draw_rows(inputs.main.layout, 0.3, generator(3)),
        VALUES: torch.randn(15, 11, generator=generator(1)),
        TYPES: torch.randn(15, 18, generator=generator(2)),
    }
    expected = losses_by_hand(objective, outputs, batch)
    found = objective.losses(outputs, batch)
    assert found.loss.item() == pytest.approx(expected["loss"], rel=1e-5)
    sums = {name: float(value) for name, value in found.sums.items()}
    assert objective.training_values(sums, 6) == pytest.approx(expected, rel=1e-5)
    validated = objective.validation_values(objective.measurements(outputs, batch))
    assert validated.pop("probe_accuracy") is None
    assert validated == pytest.approx(expected, rel=1e-5)


def objective_with_observables(network, kind=MaskedParticles, **choice) -> MaskedParticles:
    torch.manual_seed(5)
    config = load_data_config("jetclass_full")
    chosen = MaskedParticlesChoice.model_validate({**CHOICE, **choice})
    count = num_observables(packed_jets([1]).shape.collections["pf"])
    objective = kind(particle_targets(config), chosen, config.main.length, count)
    objective.prepare(network)
    return objective


@pytest.mark.parametrize("kind", [MaskedParticles, MaskedFlow])
def test_the_loss_of_observables_is_added(kind):
    network = small_network().float()
    inputs = packed_jets(LENGTHS, dtype=torch.float32)
    weights = torch.tensor([0.5, 1.0, 2.0, 1.0, 1.5, 0.7])
    batch = batch_of(inputs, weights=weights)
    without = objective_with_observables(network, kind, observables_weight=0.0)
    assert without.observe is None
    objective = objective_with_observables(network, kind, observables_weight=3.0)
    outputs = objective.run(network, batch)
    of_particles = without.losses({name: outputs[name] for name in outputs if name != OBSERVABLES}, batch)
    distances = outputs[OBSERVABLES].detach()
    counted = [0, 2, 3, 4, 5]  # with particles
    of_jets = float((distances * weights)[counted].sum() / weights[counted].sum())
    found = objective.losses(outputs, batch)
    assert found.loss.item() == pytest.approx(of_particles.loss.item() + 3 * of_jets, rel=1e-5)
    values = objective.training_values({name: float(total) for name, total in found.sums.items()}, 6)
    assert values["observables_loss"] == pytest.approx(of_jets, rel=1e-5)
    assert "observables_loss" in {metric.name for metric in objective.validation_metrics}


def test_masked_particles_reach_the_loss_as_targets_only():
    """Embeddings that give the observables depend on nothing of the masked particles."""
    network, inputs = small_network().float(), packed_jets(LENGTHS, dtype=torch.float32)
    objective = objective_with_observables(network)
    features = inputs.main.features.clone().requires_grad_()
    outputs = objective.eval().run(network.eval(), batch_of(with_particles(inputs, features=features)))
    outputs[OBSERVABLES].sum().backward()
    mask = mask_of(outputs[ROWS], sum(LENGTHS))
    assert (features.grad[mask] == 0).all()
    assert (features.grad[~mask] != 0).any(dim=1).all()
    changed = torch.where(mask[:, None], inputs.main.features + 1, inputs.main.features)
    again = objective.run(network, batch_of(with_particles(inputs, features=changed)))
    assert not torch.equal(again[OBSERVABLES], outputs[OBSERVABLES])


@pytest.mark.parametrize("lengths", [[1, 1, 0], [0, 0], [3, 1]])
def test_jets_with_too_few_particles_add_nothing(lengths):
    network, inputs = small_network().train(), packed_jets(lengths)
    objective = objective_for(network).train()
    found = objective(network, batch_of(inputs))
    found.loss.backward()
    assert found.loss.item() == 0
    parameters = [*objective.parameters(), *network.backbone.class_blocks.parameters()]
    if any(lengths):  # processes exchange all gradients
        assert all((parameter.grad == 0).all() for parameter in parameters)
    with (
        torch.inference_mode(),
        pytest.raises(DataError, match="0.3 masks no particle of the validation jets"),
    ):
        objective.validation_values(objective.eval().measure(network.eval(), batch_of(inputs)))


@pytest.mark.parametrize("lengths", [[0, 0], [0, 1, 0]])
def test_observables_of_jets_with_too_few_particles(lengths):
    """A batch without particles changes no statistics; one of a single particle is all that they know."""
    network, inputs = small_network().float().train(), packed_jets(lengths, dtype=torch.float32)
    objective = objective_with_observables(network).train()
    objective(network, batch_of(packed_jets([5, 1, 30], dtype=torch.float32)))
    before = {name: buffer.clone() for name, buffer in objective.observe.named_buffers()}
    found = objective(network, batch_of(inputs))
    found.loss.backward()
    assert found.loss.isfinite()
    assert (found.loss.item() == 0) == (not any(lengths))
    gradients = [parameter.grad for parameter in objective.observe.parameters()]
    assert all(gradient.isfinite().all() for gradient in gradients)  # processes exchange all gradients
    assert float(objective.observe.num_jets) == 3 + sum(lengths)
    for name, buffer in objective.observe.named_buffers():
        assert buffer.isfinite().all(), name
        assert any(lengths) or torch.allclose(buffer, before[name], rtol=1e-6), name


def test_masks_depend_on_seed_batch_and_jets():
    network, inputs = small_network(), packed_jets(LENGTHS)
    objective = objective_for(network).train()
    batch = batch_of(inputs)
    masks = [objective.run(network, batch)[ROWS] for _ in range(3)]
    assert not torch.equal(masks[0], masks[1])
    again = objective_for(network).train()
    assert [torch.equal(again.run(network, batch)[ROWS], mask) for mask in masks] == [True] * 3
    again.seed += 1
    again.num_batches = 0
    assert not torch.equal(again.run(network, batch)[ROWS], masks[0])
    validated = [objective.eval().run(network, batch)[ROWS] for _ in range(2)]
    assert torch.equal(validated[0], validated[1])
    other_jets = replace(batch, source_entry=batch.source_entry + 1)
    assert not torch.equal(objective.run(network, other_jets)[ROWS], validated[0])


# --- flow matching ---


def flow_for(network) -> MaskedFlow:
    torch.manual_seed(5)
    config = load_data_config("jetclass_full")
    choice = MaskedParticlesChoice.model_validate({"objective": "flow_matching", **CHOICE})
    objective = MaskedFlow(particle_targets(config, {"part_deltaR": 0.5}), choice, config.main.length)
    objective.prepare(network)
    return objective.double()


def test_noise_and_velocity_lead_back_to_the_particle():
    """x - t v = x0, jet by jet with one t; what does not count is noise."""
    network, inputs = small_network().eval(), packed_jets([40, 40])
    inputs.main.features[:, 5:11] = torch.randint(-1, 2, (80, 6), generator=generator()).double()
    flow = flow_for(network).eval()
    asked = []
    flow.ask.register_forward_hook(lambda _module, arguments, _output: asked.extend(arguments))
    seen = []
    network.backbone.register_forward_hook(lambda _module, arguments, _output: seen.append(arguments[0]))
    with torch.no_grad():
        outputs = flow.run(network, batch_of(inputs))
    mixed, time = asked
    features = inputs.main.features[outputs[ROWS]]
    assert torch.equal(seen[0].main.features, inputs.main.features[~mask_of(outputs[ROWS], 80)])
    assert len(set(time[:12].tolist())) == len(set(time[12:].tolist())) == 1
    assert 0 < time[0] != time[12] < 1
    noise = outputs[NOISE]
    assert abs(float(noise.mean())) < 0.15
    assert float(noise.std()) == pytest.approx(1, abs=0.1)
    names = [variable.name for variable in load_data_config("jetclass_full").particles.variables]
    flags = [name for name in names if name.startswith("part_is")]
    learned = [name for name in names if name not in {*flags, "part_charge"}]
    for row, x, t, x1 in zip(features.numpy(), mixed.numpy(), time.tolist(), noise.numpy(), strict=True):
        values = dict(zip(names, row, strict=True))
        kind = next((place for place, name in enumerate(flags) if values[name] > 0), len(flags))
        x0 = [values[name] / (0.5 if name == "part_deltaR" else 1) for name in learned]
        x0 += np.eye(18)[3 * kind + int(np.sign(values["part_charge"])) + 1].tolist()
        for place, name in enumerate(learned):
            if values["part_charge"] == 0 and name in {"part_d0", "part_d0err", "part_dz", "part_dzerr"}:
                x0[place] = x1[place]
        np.testing.assert_allclose(x - t * (x1 - x0), x0, atol=1e-12)


def test_the_loss_of_a_velocity_by_hand():
    network, inputs = small_network(), packed_jets([10], dtype=torch.float32)
    features, rows = inputs.main.features, torch.tensor([4])
    features[4, 5:11] = torch.tensor([0.0, 0, 0, 1, 0, 0])  # a photon: no charge, type 7
    flow, batch = flow_for(network), batch_of(inputs)
    noise = torch.randn(1, 29, generator=generator())
    values = torch.cat((features[4, :5], features[4, 11:])) / torch.tensor([1, 1, 1, 1, 0.5, *[1] * 6])
    velocity = noise - torch.cat((values, torch.eye(18)[7]))[None]
    outputs = {ROWS: rows, NOISE: noise, VALUES: velocity[:, :11], TYPES: velocity[:, 11:]}
    assert flow.losses(outputs, batch).loss.item() == pytest.approx(0, abs=1e-10)
    outputs[VALUES] = velocity[:, :11] + torch.arange(11.0)  # the numbers 5 to 8 are displacements
    outputs[TYPES] = velocity[:, 11:] + 2.0
    by_hand = sum(n**2 for n in (0, 1, 2, 3, 4, 9, 10)) / 7 + 0.3 * 18 * 2.0**2
    found = flow.losses(outputs, batch)
    assert found.loss.item() == pytest.approx(by_hand, rel=1e-5)
    sums = {name: float(value) for name, value in found.sums.items()}
    assert flow.training_values(sums, 1) == {"loss": pytest.approx(by_hand, rel=1e-5)}


def test_a_run_with_flow_matching_resumes_exactly(unlabelled_file, tmp_path):
    choice = {"masked_particles": {"objective": "flow_matching", **CHOICE}, "jets_per_epoch": 64, "ema": {}}
    job = masked_job(unlabelled_file, data_config="jetclass_kin", **choice)  # no types, no charge
    run_job(job, tmp_path / "whole")
    assert run_job(job, tmp_path / "parts", should_stop=stop_after(3)).stopped
    run_job(job, tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


# --- the probe ---


def test_the_probe_finds_what_is_linear():
    """Two classes one standard deviation apart: the best accuracy is Φ(1/2) = 0.6915."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 20_000)
    mixing = np.linalg.qr(random.normal(size=(6, 6))).Q * [1, 2, 3, 4, 5, 6]
    embeddings = (random.normal(size=(20_000, 6)) + labels[:, None] * np.eye(6)[0]) @ mixing
    assert probe_accuracy(embeddings, labels) == pytest.approx(0.6915, abs=0.012)
    weight, bias = linear_layer(embeddings, labels, np.arange(2))
    direction = mixing @ (weight[1] - weight[0])
    np.testing.assert_allclose(direction, np.eye(6)[0], atol=0.05)
    assert bias.shape == (2,)
    doubled = np.concatenate([embeddings, embeddings, np.ones((20_000, 1))], axis=1)  # no inverse
    assert probe_accuracy(doubled, labels) == pytest.approx(probe_accuracy(embeddings, labels), abs=1e-3)


def test_a_probe_needs_two_classes():
    embeddings = np.random.default_rng(0).normal(size=(20, 3))
    assert probe_accuracy(embeddings, np.zeros(20, dtype=np.int64)) is None
    assert probe_accuracy(embeddings, np.repeat([0, 1], [19, 1])) is None
    assert probe_accuracy(embeddings[:0], np.zeros(0, dtype=np.int64)) is None


# --- runs ---

QUICK = {
    "data_config": "jetclass_full",
    "masked_particles": CHOICE,
    "optimizer": {"name": "adamw", "lr": 1e-2, "weight_decay": 0.1, "betas": [0.9, 0.95]},
    "schedule": {"name": "constant"},
    "clip_norm": 1.0,
    "epochs": 2,
    "batch_size": 32,
}


def masked_job(file, config=None, reading=None, teacher=None, **changes):
    recipe = tiny_recipe(**{**QUICK, **changes})
    config = config or load_data_config(recipe.data_config)
    files = [InputFile("", str(file))]
    return open_job(recipe, config, files, 0.25, seed=7, reading=reading, teacher=teacher)


def without_labels(jets):
    return {name: column for name, column in jets.items() if name not in LABELS}


@pytest.fixture(scope="module")
def unlabelled_file(tmp_path_factory):
    """Return the jets of `jet_file` without their labels."""
    path = tmp_path_factory.mktemp("jets") / "jets.root"
    write_table(path, without_labels(make_jets(300)))
    return path


@pytest.fixture(scope="module")
def run(unlabelled_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    run_job(masked_job(unlabelled_file), folder)
    return folder


def test_a_run_learns_from_files_without_labels(run, unlabelled_file):
    epochs = read_metrics(run / "metrics.jsonl", "epoch")
    assert epochs[-1]["validation_loss"] < epochs[0]["validation_loss"]
    assert epochs[0]["validation_probe_accuracy"] is None
    job = masked_job(unlabelled_file)
    assert job.notices == ["the validation jets have no labels of two classes: there is no probe accuracy"]
    scales = job.recipe.masked_particles.scales
    assert len(scales) == 11
    assert 0.2 < scales["part_d0"] < 0.4  # tanh of a normal distribution of width 0.3


def test_the_probe_changes_nothing(run, jet_file, tmp_path):
    """The same jets with labels: another metric, and the same network, decoder and optimizer to the bit."""
    run_job(masked_job(jet_file), tmp_path)
    mine, theirs = tensors_of(tmp_path), tensors_of(run)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())
    epochs = read_metrics(tmp_path / "metrics.jsonl", "epoch")
    assert all(0 <= line["validation_probe_accuracy"] < 0.5 for line in epochs)  # random jets of ten classes
    assert {line["validation_loss"] for line in epochs} == {
        line["validation_loss"] for line in read_metrics(run / "metrics.jsonl", "epoch")
    }


def test_the_run_resumes_exactly(unlabelled_file, run, tmp_path):
    assert run_job(masked_job(unlabelled_file), tmp_path, should_stop=stop_after(4)).stopped
    torch.manual_seed(12345)
    assert not run_job(masked_job(unlabelled_file), tmp_path, resume=True).stopped
    assert_same_run(tmp_path, run)


def test_two_processes_resume_exactly(unlabelled_file, tmp_path):
    """Also from the end of an epoch, where both then validate with the statistics of the first one."""
    job = masked_job(unlabelled_file, epochs=1, jets_per_epoch=128)
    assert_two_processes_resume_exactly(job, tmp_path, stops=[2, 4])


def test_a_jet_that_is_not_finite_never_gets_in(tmp_path):
    jets = without_labels(make_jets(60, seed=3))
    jets["part_px"].contents[jets["part_px"].offsets[20]] = np.nan
    write_table(tmp_path / "bad.root", jets)
    with pytest.raises(DataError, match=r"bad.root, entry 20: .* a momentum is NaN"):
        run_job(masked_job(tmp_path / "bad.root", epochs=1, jets_per_epoch=64), tmp_path / "error")
    reading = ReadingOptions(on_bad_jet="drop")
    job = masked_job(tmp_path / "bad.root", reading=reading, epochs=1, jets_per_epoch=64)
    run_job(job, tmp_path / "run")
    assert all(tensor.isfinite().all() for tensor in tensors_of(tmp_path / "run").values())


@pytest.mark.parametrize("layout", ["rntuple", "vector"])
def test_other_layouts_and_configs_without_labels(layout, tmp_path):
    path = FIXTURES / "jetclass_vector_layout.root"
    if layout == "rntuple":
        path = tmp_path / "jets.root"
        arrays = {name: to_awkward(column) for name, column in without_labels(make_jets(60)).items()}
        with uproot.recreate(path) as file:
            file.mkrntuple("tree", arrays)
    job = masked_job(path, unlabelled("jetclass_full"), epochs=1, jets_per_epoch=None, batch_size=8)
    assert not job.train.has_labels
    run_job(job, tmp_path / "run")
    assert metrics_of(tmp_path / "run")[-1]["validation_loss"] > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": {"classification": {"weight": 0.5}}}, "not with masked_particles"),
        ({"label_smoothing": 0.1}, "not with masked_particles"),
        ({"distillation": {}}, "not with masked_particles"),
        ({"masked_particles": {"mask_fraction": 1.0}}, "mask_fraction"),
        ({"masked_particles": {"decoder": {"width": 10, "num_heads": 4}}}, "must be a multiple of num_heads"),
    ],
)
def test_keys_that_do_not_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny_recipe(**{**QUICK, **changes})


def test_a_teacher_has_nothing_to_say(unlabelled_file):
    teacher = make_tagger("pfn", "jetclass_full")
    with pytest.raises(ConfigError, match="--teacher: masked_particles learns from the jets alone"):
        masked_job(unlabelled_file, teacher=teacher)


def test_the_probe_chooses_the_epoch_only_where_there_is_one(unlabelled_file, jet_file):
    with pytest.raises(ConfigError, match="metric: probe_accuracy needs validation jets with labels of two"):
        masked_job(unlabelled_file, metric="probe_accuracy")
    assert masked_job(jet_file, metric="probe_accuracy").metric.name == "probe_accuracy"


def test_a_network_without_tokens_stops_before_the_run(unlabelled_file, tmp_path):
    job = masked_job(unlabelled_file, model={"name": "recurrent", "settings": {"width": 8}})
    with pytest.raises(ConfigError, match="masked_particles: the network recurrent has no tokens"):
        run_job(job, tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_config_without_labels(unlabelled_file, tmp_path, capsys):
    config = unlabelled("jetclass_kin")
    assert config.class_names == config.target_names == ()
    assert parse_record(config.to_yaml(), DataConfig, "c.yaml") == config
    data = yaml.safe_load(config.to_yaml())
    data.pop("labels")
    text = yaml.safe_dump(data)
    assert parse_record(text, DataConfig, "c.yaml") == config
    with pytest.raises(ConfigError, match="c.yaml:.*labels.type: this key is needed"):
        parse_record(text + "\nlabels: {value: [is_a, is_b]}\n", DataConfig, "c.yaml")
    (tmp_path / "c.yaml").write_text(text)
    assert main(["check", str(tmp_path / "c.yaml"), str(unlabelled_file)]) == 0
    command = ["train", "quick", "--set", f"data_config={tmp_path / 'c.yaml'}", "--train"]
    command += [str(unlabelled_file), "--val-fraction", "0.2", "--out", str(tmp_path / "run")]
    capsys.readouterr()
    assert main(command) == 2
    assert (
        "the data config has no labels; only `masked_particles` learns without them"
        in capsys.readouterr().err
    )
    assert main([*command, "--set", "class_names=[a, b]"]) == 2
    assert "class_names: " in capsys.readouterr().err


# --- the tagger, and what follows ---


def test_the_tagger_has_embeddings_only(run, unlabelled_file, tmp_path):
    tagger = load_torch_tagger(run)
    assert (tagger.tasks, tagger.class_names, tagger.network.head_sizes) == ((), (), {})
    assert "embeddings only" in repr(tagger)
    partt.predict(tagger, unlabelled_file, tmp_path / "out", embeddings=True)
    found = read_columns(str(tmp_path / "out" / "jets.root"), ["embedding", "bad"])
    job = masked_job(unlabelled_file)
    batches = list(ordered_batches(job.train, job.train_index, batch_size=500))
    places = np.concatenate([batch.source_entry.numpy() for batch in batches])
    with torch.inference_mode():
        expected = torch.cat([tagger.network.embed(batch.inputs) for batch in batches])
    embeddings = found["embedding"].contents.reshape(300, 16)
    np.testing.assert_allclose(embeddings[places], expected, atol=1e-5)
    assert not found["bad"].any()


def test_others_say_that_it_has_no_scores(run, unlabelled_file, jet_file, tmp_path, capsys):
    message = "was trained without labels, and has no scores: `partt train --init-from` starts"
    commands = [
        ["predict", "--tagger", str(run), str(unlabelled_file), "--out", str(tmp_path / "scores")],
        ["predict", "--tagger", str(run), str(run), str(unlabelled_file), "--out", str(tmp_path / "scores")],
        ["export", str(run), "--out", str(tmp_path / "x.onnx")],
        ["explain", str(run), str(jet_file), "--out", str(tmp_path / "explained")],
        ["export-weaver", str(run), "--out", str(tmp_path / "x.pt")],
    ]
    for command in commands:
        assert main(command) == 2, command
        assert message in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ConfigError, match="has no scores"):
        load_tagger(run)({})
    with pytest.raises(ConfigError, match="has no scores"):
        partt.train("quick", jet_file, validation=0.2, teacher=run, out=tmp_path / "student")
    partt.predict(run, unlabelled_file, tmp_path / "out", embeddings=True)
    assert main(["evaluate", str(tmp_path / "out" / "jets.root"), "--out", str(tmp_path / "report")]) != 0
    assert "score" in capsys.readouterr().err


def test_a_damaged_tagger_without_heads_is_found(run, tmp_path):
    import safetensors.torch
    from safetensors import safe_open

    from partt.tagger.tagger_file import tensors_sha256

    path = run / "best.safetensors"
    tensors = safetensors.torch.load_file(path)
    assert tensors["reference.outputs.embeddings"].shape[1] == 16
    tensors["weights.backbone.class_token"] += 0.1
    with safe_open(path, "pt") as file:
        header = file.metadata()["partt"]
    metadata = {"partt": header, "sha256": tensors_sha256(header, tensors)}
    safetensors.torch.save_file(tensors, tmp_path / "x.safetensors", metadata)
    with pytest.raises(DataError, match="gives other outputs than when it was saved"):
        load_torch_tagger(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    "fine_tuning",
    [{"freeze": ["backbone.*"]}, {"freeze_steps": 1, "catch_up_steps": 1}, {}],
    ids=["frozen", "gradual", "full"],
)
def test_fine_tuning(run, jet_file, tmp_path, fine_tuning):
    recipe = tiny_recipe(**{**QUICK, "masked_particles": None, "fine_tuning": fine_tuning, "epochs": 1})
    notices = []
    result = partt.train(
        recipe,
        jet_file,
        validation=0.25,
        init_from=run,
        out=tmp_path / "run",
        num_workers=0,
        num_threads=1,
        report=lambda event: notices.append(str(event)),
    )
    assert any("with a new last layer" in text for text in notices)
    before, after = (
        load_torch_tagger(path).network.backbone.state_dict() for path in (run, result.run_folder)
    )
    is_same = all(torch.equal(before[name], tensor) for name, tensor in after.items())
    assert is_same == bool(fine_tuning.get("freeze"))
    assert load_torch_tagger(tmp_path / "run").class_names == CLASSES


def test_pre_training_may_start_from_a_tagger(run, unlabelled_file, tmp_path):
    """From one with classes, whose head is left out, and from one without."""
    from partt.training.fine_tuning import weights_to_start_from

    job = masked_job(unlabelled_file)
    initial = weights_to_start_from(run, job.recipe, job.train.config)
    assert initial.heads == "without heads"
    learner = make_learner(job, World(), torch.device("cpu"), initial.tensors)
    for name, weight in load_torch_tagger(run).network.state_dict().items():
        assert torch.equal(weight, learner.network.state_dict()[name])


def test_the_command(jet_file, tmp_path, capsys):
    small = "model={name: part_xs, settings: {num_blocks: 1, width: 16, feed_forward_width: 16}}"
    command = ["train", "masked_particles", "--train", str(jet_file), "--val-fraction", "0.5", "--set", small]
    command += [
        "--set",
        "epochs=1",
        "--set",
        "batch_size=64",
        "--out",
        str(tmp_path / "run"),
        "--workers",
        "0",
    ]
    assert main([*command, "--set", "metric=probe_accuracy", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    header = next(line for line in printed.splitlines() if "epoch" in line and "jets/s" in line)
    for title in ("loss", "feature loss", "type accuracy", "probe accuracy"):
        assert title in header
    assert "best: epoch 1, validation probe_accuracy 0." in printed
