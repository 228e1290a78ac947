"""Chosen jets -> displays; `partt show` as a function.

Axes: P particles of the main collection of a jet, T of all jets.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from partt.data.config.data_config import DataConfig
from partt.data.jagged import Jagged
from partt.data.packing import pack, packed_rows
from partt.data.variables import Variables
from partt.errors import ConfigError
from partt.explanation.integrated_gradients import Attributions
from partt.explanation.jet_display import JetAttention, JetDisplay, attention_of, kinds_of
from partt.explanation.labelled_jets import LabelledJets, read_entries, tagger_to_explain
from partt.explanation.particle_facts import fact_columns, particle_facts
from partt.explanation.subjets import find_subjets, has_fastjet
from partt.model.inspection import has_attention, inspect_jets, single_jets
from partt.scores.passing import Floats
from partt.tagger.inference import sharing_threads
from partt.tagger.tagger import Tagger
from partt.tagger.tagger_file import TorchTagger

SHOWN_SUBJETS = 3


def show(
    tagger: str | Path | Tagger,
    file: str | Path,
    entries: Sequence[int] = (),
    *,
    out: str | Path = ".",
    selection: str | None = None,
    network_file: str | Path | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Draw jets of a file as PNG and PDF: those of some entries, or the first one that passes a selection.

    Returns the paths of the pictures, which go to the folder `out`.
    """
    from partt.explanation.figures.jet_picture import write_pictures  # noqa: PLC0415 - matplotlib

    if bool(entries) == (selection is not None):
        raise ConfigError("give either --entry or --selection")
    found = tagger_to_explain(tagger, network_file)
    config = found.data_config
    if config.momenta is None:
        raise ConfigError("the data config has no four-momenta, so the particles cannot be drawn")
    with sharing_threads() as each:
        jets = read_entries(
            found,
            str(file),
            entries,
            further=lambda info: fact_columns(config, info),
            selection=selection,
            each=each,
        )
        displays = display_jets(found, jets, dict.fromkeys(range(len(jets)), ""))
    return write_pictures(displays, Path(out), overwrite=overwrite)


def display_jets(
    tagger: Tagger, jets: LabelledJets, chosen: Mapping[int, str], attributions: Attributions | None = None
) -> tuple[JetDisplay, ...]:
    """Return what is shown of jets, each with the reason for its choice; none without four-momenta.

    `attributions` are those of the chosen jets, in their order, if there are any.
    """
    config = tagger.data_config
    some = jets.take(np.array(list(chosen), dtype=np.int64))
    facts = particle_facts(config, some.variables)
    if facts is None or facts.pt is None or facts.places is None or facts.axes is None:
        return ()
    masses = facts.masses
    subjets = find_subjets(facts, SHOWN_SUBJETS) if has_fastjet() else [None] * len(some)
    attention = _attention(tagger, some)
    features = _features(config, some.variables)
    displays = []
    for number, reason in enumerate(chosen.values()):
        rows = slice(int(facts.offsets[number]), int(facts.offsets[number + 1]))
        label = int(some.labels[number])
        displays.append(
            JetDisplay(
                reason=reason,
                file=some.files[some.file_of_jet[number]],
                entry=int(some.entries[number]),
                label=None if label < 0 else tagger.class_names[label],
                class_names=tagger.class_names,
                scores=some.probabilities[number],
                places=facts.places[rows],
                pt=facts.pt[rows],
                jet_pt=float(np.hypot(*facts.axes[number, :2])),
                jet_mass=0.0 if masses is None else float(masses[number]),
                kinds=kinds_of(facts, rows),
                charges=None if facts.charges is None else facts.charges[rows],
                significances=None if facts.significances is None else facts.significances[rows],
                subjets=subjets[number],
                features={name: values[rows] for name, values in features.items()},
                attributions=None if attributions is None else attributions.features[config.main.name][rows],
                attention=attention[number],
            )
        )
    return tuple(displays)


def _attention(tagger: Tagger, jets: LabelledJets) -> list[JetAttention | None]:
    if not isinstance(tagger, TorchTagger) or not has_attention(tagger.network):
        return [None] * len(jets)
    inputs = pack(tagger.data_config, jets.variables).inputs
    pairs = zip(inspect_jets(tagger.network, inputs), single_jets(inputs), strict=True)
    return [attention_of(inspection, jet) if inspection.num_particles else None for inspection, jet in pairs]


def _features(config: DataConfig, variables: Variables) -> dict[str, Floats]:
    """Return the features of the particles of the main collection (T,), before standardisation."""
    rows, _ = packed_rows(config, variables, config.main.name)
    columns = {variable.name: variables[variable.name] for variable in config.particles.variables}
    return {
        name: column.contents[rows].astype(np.float64)
        for name, column in columns.items()
        if isinstance(column, Jagged)
    }
