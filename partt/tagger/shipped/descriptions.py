"""Descriptions of the shipped taggers, from their files and measured results."""

from dataclasses import dataclass

from partt.tagger.loading import load_torch_tagger
from partt.tagger.shipped import Facts, shipped_taggers, tagger_facts


@dataclass(frozen=True)
class TaggerDescription:
    """A shipped tagger: network, classes, features and measured results."""

    name: str
    network_name: str
    num_parameters: int
    class_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    facts: Facts


def describe_shipped() -> list[TaggerDescription]:
    """Describe all shipped taggers; each is loaded, which verifies it."""
    return [_describe(name) for name in shipped_taggers()]


def _describe(name: str) -> TaggerDescription:
    tagger = load_torch_tagger(name)
    return TaggerDescription(
        name=name,
        network_name=tagger.network_name,
        num_parameters=tagger.network.num_parameters,
        class_names=tuple(tagger.class_names),
        feature_names=tuple(variable.name for variable in tagger.data_config.particles.variables),
        facts=tagger_facts(name),
    )
