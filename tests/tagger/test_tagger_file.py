"""Tagger files load as they were saved; damaged, foreign and newer files are clear errors."""

import json
import pickle
import struct
from dataclasses import replace

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
import yaml
from weaver.nn.model.ParticleTransformer import ParticleTransformer, ParticleTransformerTagger

import partt
from conftest import FIXTURES
from partt.cli.main import main
from partt.data.config.data_config import load_data_config
from partt.data.made_up_jets import LENGTHS, made_up_jets
from partt.data.packing import pack
from partt.data.variables import Variables
from partt.errors import DataError
from partt.model.registry import build_network
from partt.model.weaver_weights import (
    export_particle_transformer,
    import_particle_transformer,
    read_weaver_file,
)
from partt.tagger.loading import load_tagger
from partt.tagger.tagger_file import reference_outputs, save_tagger, tagger_bytes
from small_networks import SMALL, make_tagger


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tagger.safetensors"
    save_tagger(path, make_tagger())
    return path


@pytest.mark.parametrize("config", ["jetclass_kin", "jetclass_full"])
@pytest.mark.parametrize("name", SMALL)
def test_a_tagger_comes_back_as_it_was(name, config, tmp_path):
    tagger = make_tagger(name, config)
    sha256 = save_tagger(tmp_path / "t.safetensors", tagger)
    state_of_random_numbers = torch.get_rng_state()
    loaded = partt.load_tagger(tmp_path / "t.safetensors")
    assert torch.equal(torch.get_rng_state(), state_of_random_numbers)
    assert loaded.sha256 == sha256
    assert loaded.network_name == SMALL[name][0]
    assert loaded.network.config == tagger.network.config
    assert loaded.data_config == tagger.data_config
    assert loaded.class_names == tagger.class_names
    assert loaded.versions["partt"] == partt.__version__
    assert not loaded.network.training
    for key, tensor in tagger.network.state_dict().items():
        assert torch.equal(loaded.network.state_dict()[key], tensor)
    assert torch.equal(reference_outputs(loaded)["classes"], reference_outputs(tagger)["classes"])


def test_all_heads_come_back(tmp_path):
    tagger = make_tagger()
    network, shape = tagger.network, tagger.data_config.input_shape
    network = build_network(network.name, network.config, shape, {"classes": 10, "mass": 1}).eval()
    save_tagger(tmp_path / "t.safetensors", replace(tagger, network=network))
    loaded = load_tagger(tmp_path / "t.safetensors")
    assert loaded.network.head_sizes == {"classes": 10, "mass": 1}
    assert torch.equal(
        reference_outputs(loaded)["mass"], reference_outputs(replace(tagger, network=network))["mass"]
    )


def test_logits_of_a_batch(path):
    tagger = load_tagger(path)
    variables = Variables(made_up_jets(), tagger.data_config.formulas, "made up", np.arange(len(LENGTHS)))
    with torch.inference_mode():
        logits = tagger.network(pack(tagger.data_config, variables).inputs)["classes"]
    np.testing.assert_allclose(logits, reference_outputs(tagger)["classes"], rtol=1e-3, atol=1e-3)


def test_saving_twice_gives_the_same_sha256(tmp_path):
    first, second = (save_tagger(tmp_path / name, make_tagger()) for name in "ab")
    assert first == second
    assert len({tagger_bytes(make_tagger())[0] for _ in range(8)}) == 1  # byte by byte


def refused(path, message):
    with pytest.raises(DataError, match=message) as caught:
        load_tagger(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fraction", [0.0, 0.01, 0.5, 0.999])
def test_a_truncated_file(path, fraction):
    contents = path.read_bytes()
    path.write_bytes(contents[: int(fraction * len(contents))])
    refused(path, "not a tagger file, or incomplete")


def test_every_kind_of_flipped_bit(path):
    contents = bytearray(path.read_bytes())
    (header_size,) = struct.unpack("<Q", contents[:8])
    random = np.random.default_rng(0)
    places = [*random.integers(0, 8 + header_size, 30), *random.integers(8 + header_size, len(contents), 30)]
    for place in places:
        flipped = bytearray(contents)
        flipped[place] ^= 1 << int(random.integers(8))
        path.write_bytes(flipped)
        with pytest.raises(DataError):
            load_tagger(path)


def rewritten(path, change):
    """Write the file anew, with a changed header or changed tensors, and the sha256 that belongs to them."""
    from partt.tagger import tagger_file

    with safetensors.safe_open(path, framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = json.loads(metadata["partt"])
    change(header, tensors)
    text = json.dumps(header)
    metadata = {"partt": text, "sha256": tagger_file.tensors_sha256(text, tensors)}
    path.write_bytes(safetensors.torch.save(tensors, metadata))


def test_a_missing_weight(path):
    rewritten(path, lambda _, tensors: tensors.pop("weights.heads.classes.output.bias"))
    refused(path, r"heads.classes.output.bias: expected \[10\], found nothing")


def test_a_surplus_weight(path):
    rewritten(path, lambda _, tensors: tensors.update({"weights.more": torch.ones(3)}))
    refused(path, r"more: expected nothing, found \[3\]")


def test_a_weight_of_another_shape(path):
    rewritten(path, lambda _, tensors: tensors.update({"weights.heads.classes.output.bias": torch.ones(3)}))
    refused(path, r"heads.classes.output.bias: expected \[10\], found \[3\]")


def test_other_weights_than_those_of_the_reference_logits(path):
    rewritten(path, lambda _, tensors: tensors["weights.heads.classes.output.bias"].add_(1e-3))
    refused(path, "gives other outputs than when it was saved")


def test_not_a_number_in_the_weights(path):
    rewritten(path, lambda _, tensors: tensors["weights.heads.classes.output.bias"].fill_(float("nan")))
    refused(path, "gives other outputs than when it was saved")


@pytest.mark.parametrize("name", ["reference.outputs.classes", "reference.contents.part_px"])
def test_missing_reference(path, name):
    rewritten(path, lambda _, tensors: tensors.pop(name))
    with pytest.raises(partt.errors.ParttError):
        load_tagger(path)


def test_a_newer_format(path):
    rewritten(path, lambda header, _: header.update(format_version=3))
    refused(path, "format version 3.*newer partt is needed")


@pytest.mark.parametrize("key", ["network", "network_config", "class_names", "data_config", "format_version"])
def test_a_header_without_a_key(path, key):
    rewritten(path, lambda header, _: header.pop(key))
    with pytest.raises(DataError, match="header"):
        load_tagger(path)


def test_other_class_names(path):
    rewritten(path, lambda header, _: header["class_names"].reverse())
    refused(path, "classes of its header and of its data config differ")


def test_a_network_that_would_not_fit_into_memory(path):
    """Shapes are compared before memory is allocated."""
    rewritten(path, lambda header, _: header["network_config"].update(width=10**6, feed_forward_width=10**6))
    refused(path, "less than or equal to 65536")


def test_a_shape_of_a_terabyte(tmp_path):
    path = tmp_path / "t.safetensors"
    header = json.dumps(
        {"weights.a": {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}}
    ).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(100))
    refused(path, "not a tagger file, or incomplete")


def test_an_unknown_network(path):
    rewritten(path, lambda header, _: header.update(network="mine"))
    refused(path, "no network 'mine'.*install the package that has it")


def test_foreign_files(tmp_path):
    path = tmp_path / "t.safetensors"
    refused(path, "cannot read|not a tagger file")
    safetensors.torch.save_file({"a": torch.ones(3)}, path)
    refused(path, "not a tagger file of partt")
    path.write_text("<html>")
    refused(path, "not a tagger file")
    torch.save({"a": torch.ones(3)}, path)
    refused(path, "not a tagger file")


def test_an_error_while_saving_leaves_no_file(tmp_path):
    tagger = replace(make_tagger(), reference_jets={"jet_pt": np.ones(3)})
    with pytest.raises(Exception, match="part_"):
        save_tagger(tmp_path / "t.safetensors", tagger)
    assert list(tmp_path.iterdir()) == []


# --- partt import-weaver, partt export-weaver ---------------------------------------------------------------


def small_pt(dialect):
    return FIXTURES / f"part_small_weaver{dialect.replace('.', '')}.pt"


def run_import(source, out, *options):
    return main(
        ["import-weaver", str(source), "--arch", "part", "--features", "full", "--out", str(out), *options]
    )


@pytest.mark.parametrize("dialect", ["0.4", "0.5"])
def test_import_and_export_give_the_weights_back(dialect, tmp_path, capsys):
    tagger, back = tmp_path / "tagger.safetensors", tmp_path / "back.pt"
    assert run_import(small_pt(dialect), tagger, "--dialect", dialect) == 0
    assert "4 pair features, 10 classes, 58,194 parameters" in capsys.readouterr().out
    assert main(["export-weaver", str(tagger), "--dialect", dialect, "--out", str(back)]) == 0
    expected, found = read_weaver_file(small_pt(dialect)), read_weaver_file(back)
    assert found.keys() == expected.keys()
    if dialect == "0.5":
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    else:  # the head scales are folded into the weights
        again = [import_particle_transformer(state, dialect)[1] for state in (expected, found)]
        for name, tensor in again[0].items():
            torch.testing.assert_close(again[1][name], tensor)


def test_export_to_the_other_dialect_and_back():
    config, state = import_particle_transformer(read_weaver_file(small_pt("0.5")), "0.5")
    _, back = import_particle_transformer(export_particle_transformer(state, config, "0.4"))
    name = "backbone.blocks.1.attention.out_proj.weight"
    scale = state["backbone.blocks.1.attention.head_scale"].repeat_interleave(8)[:, None]
    torch.testing.assert_close(back[name], state[name] * scale)


def test_particlenet_comes_in_and_goes_out(reference, tmp_path):
    tagger, back = tmp_path / "tagger.safetensors", tmp_path / "back.pt"
    source = reference / "ParticleNet_kin.pt"
    words = ["--arch", "particlenet", "--features", "kin", "--out", str(tagger)]
    assert main(["import-weaver", str(source), *words]) == 0
    assert main(["export-weaver", str(tagger), "--out", str(back)]) == 0
    expected, found = read_weaver_file(source), read_weaver_file(back)
    assert all(torch.equal(found[name.removeprefix("mod.")], tensor) for name, tensor in expected.items())


def test_the_dialect_must_be_said_where_the_names_do_not_tell(tmp_path, capsys):
    assert run_import(small_pt("0.5"), tmp_path / "t") == 3
    assert "--dialect 0.5" in capsys.readouterr().err
    assert run_import(small_pt("0.4"), tmp_path / "t") == 0
    assert run_import(small_pt("0.4"), tmp_path / "t", "--dialect", "0.5") == 3


def test_prefixes_are_removed(tmp_path):
    state = read_weaver_file(small_pt("0.4"))
    torch.save({f"module.mod.{name}": tensor for name, tensor in state.items()}, tmp_path / "w.pt")
    assert run_import(tmp_path / "w.pt", tmp_path / "t") == 0


SMALL_WEAVER = {"embed_dims": (16, 16), "pair_embed_dims": (8,), "num_heads": 4, "num_layers": 1}
SMALL_WEAVER |= {"num_cls_layers": 1, "use_pre_activation_pair": False, "trim": False}


def config_file(path, num_classes=10, **groups):
    """Write a data config of JetClass with another number of classes and further inputs; return its path."""
    data = yaml.safe_load(load_data_config("jetclass_kin").to_yaml())
    data["labels"]["value"] = [f"label_{number}" for number in range(num_classes)]
    data["inputs"] |= groups
    data["new_variables"] |= {"displaced": "np.abs(part_deta) > 0.2"}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def import_as(state, folder, config, *options):
    torch.save(state, folder / "w.pt")
    out = folder / "t.safetensors"
    words = ["import-weaver", str(folder / "w.pt"), "--data-config", str(config), "--out", str(out)]
    return main([*words, *options]), out


@pytest.mark.parametrize("prefix", ["mod.", "module._orig_mod.mod."])
def test_a_head_with_hidden_layers_and_188_classes_comes_in(prefix, tmp_path, capsys):
    """Like Sophon's: 188 classes, one hidden layer."""
    weaver = ParticleTransformer(7, 188, fc_params=[(32, 0.1)], **SMALL_WEAVER)
    state = {f"{prefix}{name}": tensor for name, tensor in weaver.state_dict().items()}
    head = "head={hidden_widths: [32], dropout: 0.2}"
    status, out = import_as(
        state, tmp_path, config_file(tmp_path / "c.yaml", 188), "--dialect", "0.5", "--set", head
    )
    assert status == 0
    assert (
        "7 features, 4 pair features, head with hidden layers of 32, 188 classes" in capsys.readouterr().out
    )
    tagger = load_tagger(out)
    jets = pack(
        tagger.data_config, Variables(made_up_jets(), tagger.data_config.formulas, "", np.arange(5))
    ).inputs
    particles = jets.padded().main
    with torch.inference_mode():
        logits = tagger.network.double()(jets.to(torch.float64))["classes"]
        inputs = [values.double().transpose(1, 2) for values in (particles.features, particles.momenta)]
        expected = weaver.double().eval()(*inputs, particles.mask[:, None])
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-8)
    assert tagger.network.config.head.dropout == 0.2


def test_a_tagger_of_two_collections_comes_in_and_goes_out(tmp_path, capsys):
    vectors = [[f"part_{name}", None] for name in ("px", "py", "pz", "energy")]
    groups = {
        "sv_features": {"length": 5, "vars": [["part_deta", None], ["part_dphi", None]]},
        "sv_vectors": {"length": 5, "vars": vectors},
        "sv_mask": {"length": 5, "vars": [["displaced", None]]},
    }
    weaver = ParticleTransformerTagger(7, 2, 10, remove_self_pair=True, **SMALL_WEAVER)
    config = config_file(tmp_path / "c.yaml", **groups)
    status, out = import_as(
        weaver.state_dict(), tmp_path, config, "--dialect", "0.5", "--set", "self_pairs=false"
    )
    assert status == 0
    assert "(part), 7 + 2 features, 4 pair features, 10 classes" in capsys.readouterr().out
    assert not load_tagger(out).network.config.self_pairs
    assert main(["export-weaver", str(out), "--out", str(tmp_path / "back.pt")]) == 0
    back = read_weaver_file(tmp_path / "back.pt")
    assert all(torch.equal(back[name], tensor) for name, tensor in weaver.state_dict().items())


def test_a_file_is_described_and_a_config_that_fits_is_named(tmp_path, capsys):
    assert main(["import-weaver", str(small_pt("0.5"))]) == 0
    said = capsys.readouterr().out
    assert (
        "Particle Transformer (part), 17 features, 4 pair features, 10 classes; shipped data configs" in said
    )
    assert "that fit: jetclass_full, jetclass_mass" in said
    torch.save(ParticleTransformer(7, 3, version=3, **SMALL_WEAVER).state_dict(), tmp_path / "w.pt")
    assert (
        main(["import-weaver", str(tmp_path / "w.pt"), "--features", "kin", "--out", str(tmp_path / "t")])
        == 3
    )
    said = capsys.readouterr().err
    assert "Particle Transformer (part_v3), 7 features, 4 pair features, 3 classes: the data config" in said
    assert "with 7 features and 10 classes; shipped data configs that fit: none" in said


def test_what_weights_do_not_show_must_be_said(tmp_path, capsys):
    state = ParticleTransformer(7, 10, pair_input_type="ee", **SMALL_WEAVER).state_dict()
    assert import_as(state, tmp_path, "jetclass_kin", "--dialect", "0.5")[0] == 3
    assert "--set pair_features=NAME; known with 6: pp_jet, ee" in capsys.readouterr().err
    assert import_as(state, tmp_path, "jetclass_kin", "--dialect", "0.5", "--set", "pair_features=ee")[0] == 0
    experimental = ParticleTransformer(7, 10, version=3.5, **SMALL_WEAVER).state_dict()
    assert import_as(experimental, tmp_path, "jetclass_kin")[0] == 3
    assert "experimental versions 3.5 and 3.6" in capsys.readouterr().err


def test_jets_for_other_branches_come_from_a_file(tmp_path, capsys, jet_file):
    state = ParticleTransformer(7, 10, **SMALL_WEAVER).state_dict()
    config = tmp_path / "c.yaml"
    text = load_data_config("jetclass_kin").to_yaml().replace("part_deta", "part_charge")
    config.write_text(text.replace("part_charge, part_dphi", "part_d0val, jet_tau1 + part_dphi"))
    options = ["--dialect", "0.5", "--overwrite"]
    assert import_as(state, tmp_path, config, *options)[0] == 2
    assert "needs branches that JetClass does not have (jet_tau1): give a file" in capsys.readouterr().err
    status, out = import_as(state, tmp_path, config, *options, "--jets", str(jet_file))
    assert status == 0
    assert "jet_tau1" in load_tagger(out).reference_jets


class Exploit:
    def __reduce__(self):
        return (exec, ("import pathlib; pathlib.Path('exploited').touch()",))


def test_a_pickle_with_an_exploit_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Exploit()}, "zip.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps({"a": Exploit()}))
    for name in ("zip.pt", "plain.pt"):
        assert run_import(tmp_path / name, tmp_path / "t") == 3
        assert "more than tensors" in capsys.readouterr().err
        assert main(["export-weaver", name, "--out", "back.pt"]) == 3
    assert not (tmp_path / "exploited").exists()


@pytest.mark.parametrize(
    "contents",
    [{"a": 3}, [torch.ones(2)], {"a": torch.ones(2)}, {}],
    ids=["number", "list", "other names", "empty"],
)
def test_something_else_is_named(contents, tmp_path, capsys):
    torch.save(contents, tmp_path / "w.pt")
    assert run_import(tmp_path / "w.pt", tmp_path / "t") == 3
    assert "w.pt" in capsys.readouterr().err


@pytest.mark.parametrize("arch", ["part", "particlenet"])
def test_the_wrong_arch_or_features_are_named(arch, tmp_path, capsys):
    words = ["--arch", arch, "--features", "kin", "--out", str(tmp_path / "t")]
    assert main(["import-weaver", str(small_pt("0.4")), *words]) == 3
    error = capsys.readouterr().err
    assert ("with 7 features" if arch == "part" else "is --arch correct?") in error


def test_a_truncated_or_missing_state_dict(tmp_path, capsys):
    (tmp_path / "w.pt").write_bytes(small_pt("0.4").read_bytes()[:1000])
    assert run_import(tmp_path / "w.pt", tmp_path / "t") == 3
    assert run_import(tmp_path / "none.pt", tmp_path / "t") == 3
    assert "no such file" in capsys.readouterr().err


def test_a_small_size_has_no_counterpart_in_weaver(tmp_path, capsys):
    for name in ("part_xs", "pfn"):
        save_tagger(tmp_path / "t.safetensors", make_tagger(name))
        assert main(["export-weaver", str(tmp_path / "t.safetensors"), "--out", str(tmp_path / "w.pt")]) == 3
        expected = "weaver-core has no such network: only part, part_plain, part_v2, part_v3 and particlenet"
        assert expected in capsys.readouterr().err
