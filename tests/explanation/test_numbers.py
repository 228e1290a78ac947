"""The numbers of explanations against hand-made networks, attention and scores."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from jets import make_jets
from partt.config import Record
from partt.data.column_meanings import meaning_of
from partt.data.jagged import Jagged
from partt.data.jet_batch import take_inputs
from partt.data.packing import pack
from partt.data.variables import Variables
from partt.evaluation.jets import scores_from_arrays
from partt.evaluation.metrics import mean_area, pair_areas
from partt.explanation.attended_particles import Categories, relative_attention, subjet_attention
from partt.explanation.attention_statistics import STATISTICS, StatisticsSum
from partt.explanation.embedding_map import map_embeddings
from partt.explanation.feature_groups import columns_by_group
from partt.explanation.integrated_gradients import TOLERANCE, attribute, log_ratio, mean_baseline
from partt.explanation.jet_display import strongest_links
from partt.explanation.labelled_jets import read_jets, slices
from partt.explanation.permutation_importance import InputChange, importances, shuffled, without_soft
from partt.explanation.score_losses import ScoreComparison
from partt.model.attention_layer import AttentionTerms
from partt.model.grouping import jet_of_row
from partt.model.inspection import attention_layers, inspect_jets, switched_off
from partt.model.network import Backbone, Embeddings, Network
from partt.sample import sample_files
from partt.scores.presets import choose_discriminants
from partt.tagger.loading import load_torch_tagger
from small_networks import jets_for, logits_of, make_tagger, packed_jets, small_network, variables_of

CLASSES = ("QCD", "A", "B")


class LinearBackbone(Backbone):
    """The sum of the features of a jet's particles."""

    def forward(self, inputs, *, with_tokens=False):
        particles = inputs.main
        sums = particles.features.new_zeros(len(inputs), self.width)
        return Embeddings(sums.index_add(0, jet_of_row(particles.offsets), particles.features))


# --- integrated gradients ---------------------------------------------------------------------------------


def test_gradients_of_a_linear_network_are_weights_times_differences():
    jets = packed_jets([3, 5, 1, 8, 6], num_features=4)
    network = Network("linear", LinearBackbone(Record(), 4), jets.shape, {"classes": 3}).double().eval()
    labels = np.array([1, 2, 0, 1, 0])
    background = take_inputs(jets, np.flatnonzero(labels == 0))
    found = attribute(log_ratio(network, labels, [0]), jets, mean_baseline(background))
    weights = network.heads["classes"].output.weight.detach().numpy()
    rows = jet_of_row(jets.main.offsets).numpy()
    start = mean_baseline(background).of(jets).main.features.numpy()
    for jet in (0, 1, 3):  # of background jets the function is not linear
        own = rows == jet
        expected = (weights[labels[jet]] - weights[0]) * (jets.main.features.numpy() - start)[own]
        np.testing.assert_allclose(found.features["pf"][own], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.errors[[0, 1, 3]], 0, atol=1e-12)


def test_the_baseline_has_mean_features_and_the_momenta_of_the_jet():
    jets = packed_jets([4] * 6, num_features=3)
    start = mean_baseline(jets).of(jets).main
    np.testing.assert_allclose(start.features, jets.main.features.mean(0).expand(24, 3), atol=1e-12)
    assert torch.equal(start.momenta, jets.main.momenta)


@pytest.fixture(scope="module")
def tagger():
    return load_torch_tagger("jetclass-small")


def test_gradients_of_the_shipped_tagger_are_complete(tagger):
    """5 % is asked of every jet; of 300 sample jets the largest error was 4.4 %, the mean 0.28 %."""
    files = [str(path) for path in sample_files() if path.name.startswith(("TTBar_", "ZJets", "HToBB"))]
    jets = read_jets(tagger, files, max_jets=12, further=lambda info: ())
    inputs = pack(tagger.data_config, jets.variables).inputs
    background = take_inputs(inputs, np.flatnonzero(jets.labels == 0))
    found = attribute(log_ratio(tagger.network, jets.labels, [0]), inputs, mean_baseline(background))
    assert len(found.errors) == 12
    assert found.errors.max() < TOLERANCE
    assert np.abs(found.values - found.baseline_values).max() > 3  # there is something to add up to


# --- permutation importance -------------------------------------------------------------------------------


def test_permuting_an_unused_feature_costs_nothing():
    tagger = make_tagger("part", "jetclass_full")
    norm = tagger.network.backbone.particle_embedding.input_norm
    names = [variable.name for variable in tagger.data_config.particles.variables]
    with torch.no_grad():
        for parameter in (norm.weight, norm.bias):
            parameter[names.index("part_charge")] = 0
    variables = variables_of(tagger, 120)
    scores = tagger.tag(variables).probabilities
    finite = np.isfinite(scores).all(axis=1)
    variables, scores = variables.take(np.flatnonzero(finite)), scores[finite]
    comparison = ScoreComparison(scores, scores.argmax(axis=1), tagger.class_names, ())
    changes = [InputChange(name, "feature", (name,)) for name in ("part_charge", "part_deta")]
    unused, used = importances(tagger, _independent(tagger, variables), comparison, changes)
    assert unused.losses.area.low <= 0 <= unused.losses.area.high
    assert abs(unused.losses.area.loss) < 1e-6
    assert unused.losses.accuracy.loss == 0
    assert used.losses.accuracy.low > 0


def _independent(tagger, variables):
    columns = {name: variables[name] for name in tagger.data_config.input_names}
    return Variables({**variables.branches, **columns}, variables.formulas, "test", variables.entries)


def test_shuffled_columns_keep_their_values_and_stay_together():
    jets = make_jets(40)
    variables = Variables(jets, {}, "test", np.arange(40))
    new = shuffled(variables, ["part_px", "part_py", "jet_pt"], np.random.default_rng(0))
    old_pairs, pairs = (
        sorted(zip(table["part_px"].contents, table["part_py"].contents, strict=True))
        for table in (jets, new)
    )
    assert old_pairs == pairs
    assert not np.array_equal(new["part_px"].contents, jets["part_px"].contents)
    np.testing.assert_array_equal(new["part_px"].lengths, jets["part_px"].lengths)
    np.testing.assert_array_equal(np.sort(new["jet_pt"]), np.sort(jets["jet_pt"]))
    np.testing.assert_array_equal(new["part_pz"].contents, jets["part_pz"].contents)


def test_soft_particles_are_left_out_of_all_columns():
    tagger = make_tagger("pfn", "jetclass_full")
    variables = variables_of(tagger)
    new = without_soft(tagger.data_config, variables, 5.0)
    pt = np.hypot(variables["part_px"].contents, variables["part_py"].contents)
    assert len(new["part_charge"].contents) == (pt >= 5).sum() < len(pt)
    assert np.hypot(new["part_px"].contents, new["part_py"].contents).min() >= 5
    assert isinstance(new["part_d0val"], Jagged)
    assert new["part_d0val"].offsets[-1] == (pt >= 5).sum()


def test_columns_are_known_by_their_names():
    tagger = make_tagger("part", "jetclass_full")
    groups = columns_by_group(
        tagger.data_config, tagger.input_columns, {"angles": ["part_deta", "part_dphi"]}
    )
    assert set(groups["displacements"]) == {"part_d0", "part_d0err", "part_dz", "part_dzerr"}
    assert len(groups["particle types"]) == 6
    assert groups["angles"] == ("part_deta", "part_dphi")
    assert set(groups["kinematics"]) | {"part_px"} <= set(groups["kinematics and four-momenta"])
    names = {"pfcand_dxysig": "displacements", "pfcand_isEl": "particle types", "pfcand_etarel": "kinematics"}
    assert {name: meaning_of(name) for name in names} == names
    assert meaning_of("pfcand_quality") is None


# --- losses and their intervals ---------------------------------------------------------------------------


def _scores(num_jets, noise=0.0):
    random = np.random.default_rng(4)
    labels = random.integers(0, 3, num_jets)
    logits = random.normal(0, 1, (num_jets, 3)) + 1.5 * np.eye(3)[labels]
    logits += noise * np.random.default_rng(5).normal(0, 1, logits.shape)
    odds = np.exp(logits)
    return odds / odds.sum(axis=1, keepdims=True), labels


def test_losses_equal_those_of_the_evaluation_and_their_errors_those_of_a_bootstrap():
    (before, labels), (after, _) = _scores(900), _scores(900, noise=1.0)
    comparison = ScoreComparison(before, labels, CLASSES, choose_discriminants(CLASSES))
    found = comparison.with_scores(after)
    areas = [mean_area(pair_areas(scores_from_arrays(CLASSES, scores, labels))) for scores in (before, after)]
    assert found.area.before == pytest.approx(areas[0], abs=1e-6)
    assert found.area.after == pytest.approx(areas[1], abs=1e-6)
    random, losses = np.random.default_rng(0), []
    for _ in range(80):  # jets drawn again, class by class
        drawn = np.concatenate(
            [random.choice(np.flatnonzero(labels == k), (labels == k).sum()) for k in range(3)]
        )
        again = ScoreComparison(before[drawn], labels[drawn], CLASSES, ()).with_scores(after[drawn])
        losses.append([again.area.loss, again.accuracy.loss])
    spread = np.std(losses, axis=0)
    assert (found.area.high - found.area.low) / 2 == pytest.approx(spread[0], rel=0.3)
    assert (found.accuracy.high - found.accuracy.low) / 2 == pytest.approx(spread[1], rel=0.3)
    same = comparison.with_scores(before)
    assert same.is_within_errors
    assert all(loss.loss == 0 for loss in (same.area, same.accuracy, *same.rejections.values()))
    rejection = found.rejections["A_vs_QCD"]
    assert rejection.loss == pytest.approx(1 - rejection.after / rejection.before)
    assert rejection.low < rejection.loss < rejection.high
    assert not found.is_within_errors


# --- attention --------------------------------------------------------------------------------------------


def test_statistics_of_hand_made_attention_are_exact():
    n, one_hot = 5, torch.full((1, 5, 5), -1e4, dtype=torch.float64)
    one_hot[0, torch.arange(n), (torch.arange(n) + 1) % n] = 0  # each attends to its neighbour only
    flat = torch.zeros(1, n, n, dtype=torch.float64)
    halves = torch.full((1, n, n), -1e4, dtype=torch.float64)
    halves[0, :, :2] = 0  # two particles share all attention
    total = StatisticsSum()
    for _ in range(3):
        total.add({"block 1": AttentionTerms(torch.cat([one_hot, flat, halves]))}, n)
    found = total.result()
    values = dict(zip(STATISTICS, np.moveaxis(found.means[0, :, 0], -1, 0), strict=True))
    np.testing.assert_allclose(values["largest weight"], [1, 1 / n, 0.5])
    np.testing.assert_allclose(values["effective number"], [1, n, 2])
    np.testing.assert_allclose(values["entropy"], [0, 1, np.log(2) / np.log(n)], atol=1e-12)
    np.testing.assert_allclose(values["near-binary rows"], [1, 0, 0])
    assert np.isnan(found.means[0, :, 2]).all()  # no pair bias
    assert found.histograms[0, 0, -1] == 1
    random = torch.randn(2, n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    total = StatisticsSum()
    total.add({"block 1": AttentionTerms(random, 7 - 2 * random)}, n)
    both = total.result()
    np.testing.assert_allclose(both.correlations, -1)
    np.testing.assert_allclose(both.variances[..., 1] / both.variances[..., 0], 4)


def test_relative_attention_of_hand_made_attention_is_exact():
    jets, labels = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 1])
    numbers = np.array([0, 1, 1, -1, 0, 1])
    attention = np.array([0.7, 0.1, 0.1, 0.1, 0.5, 0.5])
    categories = Categories("type", ("lepton", "hadron"), np.tile(numbers, 10))
    many = np.concatenate([jets + 2 * k for k in range(10)])
    found = relative_attention(np.tile(attention, 10), categories, many, np.tile(labels, 10), 2)
    np.testing.assert_allclose(found.values, [[0.7 * 4, 0.2 / 0.5], [1, 1]])
    np.testing.assert_allclose(found.low, found.values)  # all jets of a class are alike
    np.testing.assert_allclose(found.high, found.values)
    inside = subjet_attention(
        "2 subjets", [np.eye(4)] * 3, [np.array([0, 0, 1, 1])] * 3, np.zeros(3, dtype=int), 1
    )
    np.testing.assert_allclose(inside.values, [[2, 0]])


def test_links_are_the_strongest_pairs():
    attention = np.array([[0.5, 0.4, 0.1], [0.02, 0.9, 0.08], [0.01, 0.03, 0.96]])
    assert strongest_links(attention) == [(1, 2, 0.08), (0, 2, 0.1), (0, 1, 0.4)]


@pytest.mark.parametrize("case", ["part", "part_v3, sv pf lt"])
def test_parts_that_are_switched_off_do_nothing(case):
    network, jets = small_network(case).eval(), jets_for(case, (5, 9, 1))
    with torch.inference_mode():
        before = logits_of(network, jets)
        bare = switched_off(network)
        bare.backbone.pair_embedding = None
        torch.testing.assert_close(
            logits_of(switched_off(network, pair_bias=True), jets), logits_of(bare, jets)
        )
        shorter = switched_off(network)
        del shorter.backbone.blocks[1]
        torch.testing.assert_close(
            logits_of(switched_off(network, blocks=["block 2"]), jets), logits_of(shorter, jets)
        )
        silent = switched_off(network, heads=[("block 1", 2)])
        layer, mixed = attention_layers(silent)["block 1"], torch.randn(7, 16, dtype=torch.float64)
        kept = mixed.clone()
        kept[:, 8:12] = 0  # channels of the third of four heads
        expected = attention_layers(network)["block 1"].project_out(kept)
        torch.testing.assert_close(layer.project_out(mixed), expected)
        assert not torch.allclose(logits_of(silent, jets), before)
        assert torch.equal(logits_of(network, jets), before)


def test_leptons_stand_out_in_leptonic_jets(tagger):
    """Electrons and muons together, relative to uniform attention; 30 sample jets of each class."""
    from partt.explanation.jet_display import attention_of
    from partt.explanation.particle_facts import KIND_NAMES, fact_columns, particle_facts
    from partt.model.inspection import single_jets

    config = tagger.data_config
    files = [str(path) for path in sample_files() if path.name.startswith(("TTBarLep", "HToWW2Q1L"))]
    jets = read_jets(tagger, files, max_jets=60, further=lambda info: fact_columns(config, info))
    facts = particle_facts(config, jets.variables)
    inputs = pack(config, jets.variables).inputs
    pairs = zip(inspect_jets(tagger.network, inputs), single_jets(inputs), strict=True)
    token = [attention_of(inspection, jet).token.mean(axis=(0, 1)) for inspection, jet in pairs]
    is_lepton = np.isin(facts.kinds, [KIND_NAMES.index("electron"), KIND_NAMES.index("muon")])
    categories = Categories("type", ("lepton",), np.where(is_lepton, 0, -1))
    found = relative_attention(np.concatenate(token), categories, facts.jets, jets.labels, 10)
    for name in ("Tbl", "Hqql"):
        number = tagger.class_names.index(name)
        assert found.values[number, 0] > 2
        assert found.low[number, 0] > 1.5


# --- embeddings, reading ----------------------------------------------------------------------------------


def test_the_map_finds_directions_and_linear_observables():
    random = np.random.default_rng(0)
    hidden = random.normal(0, [5, 2, 0.1, 0.1], (600, 4))
    turned = hidden @ np.linalg.qr(random.normal(size=(4, 4)))[0]
    found = map_embeddings(turned, {"linear": 3 * hidden[:, 1] + 1, "noise": random.normal(size=600)})
    assert abs(np.corrcoef(found.components[:, 0], hidden[:, 0])[0, 1]) > 0.99
    np.testing.assert_allclose(found.variances, [25 / 29.02, 4 / 29.02], atol=0.02)
    assert found.fits["linear"] > 0.999
    assert abs(found.fits["noise"]) < 0.1


@pytest.mark.parametrize(("entries", "share"), [(100, 100), (100, 17), (5, 3), (1000, 8), (7, 1)])
def test_slices_are_spread_over_a_file(entries, share):
    ranges = slices(entries, share)
    assert sum(stop - start for start, stop in ranges) == share
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
    assert ranges[-1][1] <= entries


@pytest.mark.parametrize("shape", [(1, 5), (7, 1)])
def test_a_map_of_one_jet_or_of_one_number(shape):
    """`explain --jets 1` ended with a TypeError of matplotlib."""
    found = map_embeddings(np.random.default_rng(0).normal(size=shape), {})
    assert found.components.shape == (shape[0], 2)
    assert found.variances.shape == (2,)
    assert not found.components[:, 1].any()
