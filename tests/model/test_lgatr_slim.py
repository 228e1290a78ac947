"""L-GATr-slim: sizes as published, equal to lgatr 1.4.4, and the symmetries that it promises."""

import math

import pytest
import torch
from lgatr_oracle import (
    heads_fastest,
    lgatr_inputs,
    lgatr_logits,
    lgatr_twin,
    new_lgatr,
    theirs_by_ours,
)
from torch.nn import functional

from partt.errors import ConfigError
from partt.jet_inputs import CollectionShape, InputShape
from partt.model.lorentz_layers import LorentzBlock, LorentzLinear
from partt.model.registry import build_network, network_config
from partt.training.optimizers import make_optimizer
from partt.training.recipe import OptimizerChoice
from small_networks import logits_of, packed_jets, small_network, with_particles

LENGTHS = (5, 1, 30, 0, 2, 17)


@pytest.mark.parametrize(
    ("name", "num_features", "num_classes", "expected"),
    [
        ("slim_xs", 17, 10, 46_130),
        ("slim_s", 17, 10, 269_530),
        ("slim_m", 17, 10, 1_421_994),
        ("slim_l", 17, 10, 8_489_290),
        ("slim_xs", 7, 1, 45_513),
        ("slim_s", 7, 1, 268_305),
        ("slim_m", 7, 1, 1_419_553),
    ],
)
def test_published_numbers_of_parameters(name, num_features, num_classes, expected):
    shape = InputShape({"pf": CollectionShape(num_features, has_momenta=True)})
    with torch.device("meta"):
        network = build_network(name, network_config(name), shape, {"classes": num_classes})
    assert network.num_parameters == expected


def test_settings_that_do_not_fit():
    with pytest.raises(
        ConfigError, match="^network slim_xs: vector_channels 8 must be a multiple of num_heads 3$"
    ):
        network_config("slim_xs", {"num_heads": 3})
    with pytest.raises(ConfigError, match="^network slim_xs: frame: Input should be 'lab' or 'jet'$"):
        network_config("slim_xs", {"frame": "rest"})
    with pytest.raises(ConfigError, match="scalar_channels 8 must be at least 4 x num_heads"):
        network_config("slim_xs", {"scalar_channels": 8})


# --- lgatr ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:torch.is_autocast_cpu_enabled:DeprecationWarning")  # lgatr's
@pytest.mark.parametrize("case", ["slim_xs", "slim_l"])  # with spurions and without
def test_logits_and_gradients_are_those_of_lgatr(case):
    network, jets = small_network(case), packed_jets(LENGTHS)
    twin = lgatr_twin(network)
    logits, expected = logits_of(network, jets), lgatr_logits(twin, *lgatr_inputs(network, jets))
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
    labels = torch.arange(len(LENGTHS))
    for each in (logits, expected):
        functional.cross_entropy(each, labels).backward()
    ours, theirs = dict(network.named_parameters()), dict(twin.named_parameters())
    for name, their_name in theirs_by_ours(network).items():
        if ours[name].requires_grad:
            gradient = heads_fastest(network, name, ours[name].grad)
            torch.testing.assert_close(gradient, theirs[their_name].grad, rtol=0, atol=1e-12)
        else:
            assert theirs[their_name].grad is None


def test_initial_weights_are_drawn_as_in_lgatr():
    """Every weight and every bias has lgatr's distribution: uniform around 0, with the same bounds."""
    shape = packed_jets([1]).shape
    torch.manual_seed(0)
    network = build_network("slim_m", network_config("slim_m"), shape, {"classes": 10})
    drawn, theirs = dict(network.named_parameters()), dict(new_lgatr(network).named_parameters())
    for name, their_name in theirs_by_ours(network).items():
        expected, found = theirs[their_name], drawn[name]
        rms, their_rms = (weight.detach().square().mean().sqrt().item() for weight in (found, expected))
        tolerance = 5 * math.sqrt(2) * 0.45 / math.sqrt(found.numel())  # standard deviations of a ratio
        assert rms == pytest.approx(their_rms, rel=tolerance), name


# --- symmetries -------------------------------------------------------------------------------------------


def transformed(jets, matrix):
    """Return jets with momenta px, py, pz, E multiplied by a matrix."""
    return with_particles(jets, momenta=jets.main.momenta @ torch.tensor(matrix, dtype=torch.float64).T)


C, S = math.cos(0.7), math.sin(0.7)
ROTATION_ABOUT_BEAM = [[C, -S, 0, 0], [S, C, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
BOOST_ALONG_BEAM = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1.25, 0.75], [0, 0, 0.75, 1.25]]
BOOST_ALONG_X = [[1.25, 0, 0, 0.75], [0, 1, 0, 0], [0, 0, 1, 0], [0.75, 0, 0, 1.25]]
HALF = (0.5 * torch.eye(4)).tolist()
ROTATION_ABOUT_X = [[1, 0, 0, 0], [0, C, -S, 0], [0, S, C, 0], [0, 0, 0, 1]]


def largest_change(network, jets, *matrices):
    moved = jets
    for matrix in matrices:
        moved = transformed(moved, matrix)
    with torch.inference_mode():
        dtype = next(network.parameters()).dtype
        change = logits_of(network, moved.to(dtype)) - logits_of(network, jets.to(dtype))
    return float(change.abs().max())


def test_without_spurions_no_lorentz_transformation_changes_invariant_jets():
    jets = packed_jets(LENGTHS)
    invariant = with_particles(jets, features=torch.zeros_like(jets.main.features))
    for frame in ("lab", "jet"):
        network = small_network("slim_xs", spurions=False, frame=frame).eval()
        every = (BOOST_ALONG_X, ROTATION_ABOUT_X, BOOST_ALONG_BEAM, ROTATION_ABOUT_BEAM)
        assert largest_change(network, invariant, *every) < 1e-10
        assert largest_change(network.float(), invariant, *every) < 1e-4
        assert largest_change(network, invariant, HALF) > 1e-3


def test_spurions_leave_rotations_about_the_beam_and_in_the_jets_frame_boosts_along_it():
    jets = packed_jets(LENGTHS)
    lab, jet = (small_network("slim_xs", frame=frame).eval() for frame in ("lab", "jet"))
    assert largest_change(lab, jets, ROTATION_ABOUT_BEAM) < 1e-10
    assert largest_change(lab, jets, BOOST_ALONG_BEAM) > 1e-4
    assert largest_change(jet, jets, ROTATION_ABOUT_BEAM, BOOST_ALONG_BEAM) < 1e-10
    for network in (lab, jet):
        assert largest_change(network, jets, ROTATION_ABOUT_X) > 1e-4
        assert largest_change(network, jets, BOOST_ALONG_X) > 1e-4


# --- training ---------------------------------------------------------------------------------------------


def test_every_trained_parameter_has_a_gradient():
    """Else training by several processes would stop; the frozen ones are the last vectors, which nothing uses."""
    network, jets = small_network("slim_xs"), packed_jets(LENGTHS)
    logits_of(network, jets).square().sum().backward()
    frozen = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    assert frozen == {
        f"backbone.last_block.feed_forward.linear_{way}.vectors.weight" for way in ("in", "out")
    }
    assert all(p.grad is not None and p.grad.any() for p in network.parameters() if p.requires_grad)


def test_the_weights_of_the_guide_decay():
    """arXiv:2608.02735: those with two axes or more longer than 1, so not the first ones of the vectors, (V, 1)."""
    network = build_network("slim_xs", network_config("slim_xs"), packed_jets([1]).shape, {"classes": 10})
    optimizer = make_optimizer(network, OptimizerChoice(name="adamw", lr=1e-3, weight_decay=0.1))
    decaying = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    for name, parameter in network.named_parameters():
        expected = parameter.requires_grad and parameter.squeeze().ndim > 1
        assert (id(parameter) in decaying) == expected, name


def test_vectors_keep_full_precision_in_mixed_precision():
    network, jets = small_network("slim_xs").float().eval(), packed_jets(LENGTHS).to(torch.float32)
    dtypes = []
    for module in network.modules():
        if isinstance(module, LorentzBlock | LorentzLinear):
            module.register_forward_hook(lambda _, __, out: dtypes.extend(part.dtype for part in out))
    layer, vectors = network.backbone.blocks[0].attention.linear_in, torch.randn(4, 7, 8)
    with torch.inference_mode():
        expected, exact = logits_of(network, jets), layer.mix_vectors(vectors)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits, mixed = logits_of(network, jets), layer.mix_vectors(vectors)
    assert set(dtypes) == {torch.float32}
    assert torch.equal(mixed, exact)
    difference = float((logits.float() - expected).abs().max())
    assert 1e-4 < difference < 0.1  # scalars are multiplied in bfloat16
