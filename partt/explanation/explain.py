"""`partt explain` as a function: a tagger and labelled jets -> what matters, and a page if asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from partt.data.jet_batch import Positions, take_inputs
from partt.data.packing import pack
from partt.explanation.ablation import AblationStudy, num_ablations, study_ablations
from partt.explanation.attended_particles import categories_of, relative_attention, subjet_attention
from partt.explanation.attention_statistics import StatisticsSum
from partt.explanation.displayed_jets import display_jets
from partt.explanation.embedding_map import map_embeddings
from partt.explanation.explanation_results import (
    AttentionSummary,
    EmbeddingSummary,
    Explanation,
    GradientSummary,
)
from partt.explanation.feature_groups import columns_by_group, single_features
from partt.explanation.integrated_gradients import (
    TOLERANCE,
    Attributions,
    attribute,
    log_ratio,
    mean_baseline,
)
from partt.explanation.jet_display import attention_of, choose_jets
from partt.explanation.labelled_jets import LabelledJets, read_jets, tagger_to_explain
from partt.explanation.particle_facts import ParticleFacts, fact_columns, particle_facts
from partt.explanation.permutation_importance import importances, input_changes
from partt.explanation.score_losses import ScoreComparison
from partt.explanation.subjets import NUMBERS, find_subjets, has_fastjet
from partt.jobs.progress import Progress
from partt.model.inspection import has_attention, inspect_jets
from partt.scores.passing import Floats
from partt.scores.presets import choose_discriminants
from partt.tagger.inference import Each, sharing_threads
from partt.tagger.tagger import Tagger
from partt.tagger.tagger_file import TorchTagger

MAX_JETS = 5000
GRADIENT_JETS = 300
ATTENTION_JETS = 1000
ABLATION_JETS = 2000
NUM_WRONG = 4  # of the most wrong jets that are shown
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ExplainLimits:
    """How many jets each part uses; enough for its purpose, few enough for minutes on two cores."""

    jets: int = MAX_JETS
    gradients: int = GRADIENT_JETS
    attention: int = ATTENTION_JETS
    ablation: int = ABLATION_JETS


def explain(
    tagger: str | Path | Tagger,
    files: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    selection: str | None = None,
    limits: ExplainLimits | None = None,
    network_file: str | Path | None = None,
    num_threads: int | None = None,
    command: str = "",
    overwrite: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> Explanation:
    """Find out which inputs of a tagger matter and where its network looks; write a page to the folder `out`.

    `files` are labelled jets. `groups`: names of further groups of inputs -> columns that are shuffled
    together. `selection`: a formula; only jets that pass are used. See docs/reference/explain.md.
    """
    limits = limits or ExplainLimits()
    if out is not None:
        from partt.explanation.explanation_page import (  # noqa: PLC0415 - matplotlib, only for pages
            refuse_foreign_files,
            write_explanation,
        )

        refuse_foreign_files(Path(out), overwrite=overwrite)  # before long computations
    title = "" if isinstance(tagger, Tagger) else Path(tagger).stem
    found = tagger_to_explain(tagger, network_file)
    config = found.data_config
    all_groups = columns_by_group(config, found.input_columns, groups)
    with sharing_threads(num_threads) as each:
        jets = read_jets(
            found,
            _texts(files),
            max_jets=limits.jets,
            further=lambda info: fact_columns(config, info),
            selection=selection,
            each=each,
        )
        explanation = _explain(found, jets, limits, all_groups, each=each, progress=progress)
    explanation = replace(explanation, tagger=title or explanation.network)
    if out is not None:
        write_explanation(explanation, Path(out), command=command, overwrite=overwrite)
    return explanation


def _texts(files: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(files)] if isinstance(files, str | Path) else [str(file) for file in files]


def _explain(
    tagger: Tagger,
    jets: LabelledJets,
    limits: ExplainLimits,
    groups: Mapping[str, tuple[str, ...]],
    *,
    each: Each,
    progress: Progress,
) -> Explanation:
    config, class_names = tagger.data_config, tagger.class_names
    facts = particle_facts(config, jets.variables)
    discriminants = choose_discriminants(class_names)
    # scored again, all together, as the changed jets are: then no rounding differs
    jets = replace(jets, probabilities=tagger.tag(jets.variables, each=each).probabilities)
    comparison = ScoreComparison(jets.probabilities, jets.labels, class_names, discriminants)
    changes = input_changes(
        single_features(config, tagger.input_columns),
        groups,
        has_momenta=facts is not None and facts.momenta is not None,
    )
    torch_tagger = tagger if isinstance(tagger, TorchTagger) else None
    attends = torch_tagger is not None and has_attention(torch_tagger.network)
    left_out: dict[str, str] = {}
    tracker = _Tracker(
        len(changes) + (num_ablations(torch_tagger) if torch_tagger and attends else 0) + 4, progress
    )

    found = tuple(importances(tagger, jets.variables, comparison, changes, each=each, step=tracker.step))
    background = [class_names.index(name) for name in discriminants[0].backgrounds]
    shown = choose_jets(jets, class_names, NUM_WRONG)
    gradients = attention = ablations = embedding = None
    of_shown: Attributions | None = None
    ablation_jets = jets.take(spread(jets.labels, limits.ablation))
    if torch_tagger is None:
        why = "an exported tagger gives scores only; explain the tagger file for this"
        left_out |= dict.fromkeys(("integrated gradients", "attention", "ablation", "embedding"), why)
    else:
        explainer = _NetworkExplainer(torch_tagger, jets, facts, each)
        if np.isin(jets.labels, background).any():
            gradients, of_shown = explainer.gradients(limits.gradients, background, np.array(list(shown)))
        else:
            names = ", ".join(class_names[number] for number in background)
            left_out["integrated gradients"] = f"no jets of {names}, which the baseline is made of"
        tracker.step()
        if attends:
            attention = explainer.attention(limits.attention)
            if attention is None:
                left_out["attention"] = "no jet has two particles"
            elif not attention.subjets:
                missing = "fastjet is not installed (pip install 'partt[simulate]')"
                left_out["attention inside subjets"] = (
                    missing if not has_fastjet() else "the data config has no four-momenta"
                )
            tracker.step()
            ablations = _ablations(torch_tagger, ablation_jets, comparison, each, tracker.step)
        else:
            left_out["attention, ablation of heads and blocks"] = (
                f"a {tagger.network_name} does not give its attention"
            )
        if torch_tagger.network.has_embeddings:
            embedding = explainer.embedding()
        else:
            left_out["embedding"] = "a network from a weaver network file has none"
        tracker.step()
    displays = display_jets(tagger, jets, shown, of_shown)
    if not displays:
        left_out["jet displays"] = "the data config has no four-momenta, so particles have no place"
    tracker.finish()
    return Explanation(
        tagger="",
        network=tagger.network_name,
        sha256=tagger.with_hash().sha256,
        class_names=class_names,
        num_jets={name: int((jets.labels == number).sum()) for number, name in enumerate(class_names)},
        files=jets.files,
        accuracy=float((jets.probabilities.argmax(axis=1) == jets.labels).mean()),
        area=found[0].losses.area.before if found else float("nan"),
        efficiencies=comparison.efficiencies,
        titles={name: one.title for name, one in comparison.discriminants.items()},
        importances=found,
        gradients=gradients,
        attention=attention,
        ablations=ablations,
        num_ablation_jets=len(ablation_jets) if ablations else 0,
        embedding=embedding,
        displays=displays,
        left_out=left_out,
    )


class _Tracker:
    def __init__(self, total: int, progress: Progress) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def step(self) -> None:
        self._done = min(self._done + 1, self._total)
        self._progress(self._done, self._total)

    def finish(self) -> None:
        self._progress(self._total, self._total)


def spread(labels: Numbers, max_jets: int) -> Positions:
    """Return up to `max_jets` jets, as many of each class as possible, in their order."""
    order = np.argsort(labels, kind="stable")
    number_in_class = np.empty(len(labels), dtype=np.int64)
    counts = np.bincount(labels)
    starts = np.cumsum(counts) - counts
    number_in_class[order] = np.arange(len(labels)) - starts[labels[order]]
    return np.sort(np.argsort(number_in_class, kind="stable")[:max_jets])


def _ablations(
    tagger: TorchTagger, jets: LabelledJets, whole: ScoreComparison, each: Each, step: Callable[[], None]
) -> AblationStudy:
    before = tagger.tag(jets.variables, each=each).probabilities
    comparison = ScoreComparison(before, jets.labels, whole.class_names, tuple(whole.discriminants.values()))
    return study_ablations(tagger, jets.variables, comparison, each=each, step=step)


class _NetworkExplainer:
    """What needs the network itself, not only its scores."""

    def __init__(
        self, tagger: TorchTagger, jets: LabelledJets, facts: ParticleFacts | None, each: Each
    ) -> None:
        self.tagger, self.jets, self.facts, self.each = tagger, jets, facts, each
        self.inputs = pack(tagger.data_config, jets.variables).inputs

    def gradients(
        self, max_jets: int, background: Sequence[int], shown: Positions
    ) -> tuple[GradientSummary, Attributions]:
        """Return the integrated gradients by class, and those of the jets that are shown."""
        labels = self.jets.labels
        baseline = mean_baseline(take_inputs(self.inputs, np.flatnonzero(np.isin(labels, background))))
        chosen = spread(labels, max_jets)
        everyone = np.unique(np.concatenate([chosen, shown]))
        some = take_inputs(self.inputs, everyone)
        function = log_ratio(self.tagger.network, labels[everyone], background)
        found = attribute(function, some, baseline, self.each)
        names, sizes = _named_attributions(self.tagger, found)
        in_chosen = np.isin(everyone, chosen)
        complete = found.errors <= TOLERANCE
        means, errors = (np.full((len(self.tagger.class_names), len(names)), np.nan) for _ in range(2))
        counts = np.zeros(len(means), dtype=np.int64)
        for number in range(len(means)):
            own = sizes[in_chosen & complete & (labels[everyone] == number)]
            counts[number] = len(own)
            if len(own):
                means[number] = own.mean(axis=0)
                errors[number] = own.std(axis=0) / np.sqrt(max(len(own) - 1, 1))
        summary = GradientSummary(
            names,
            means,
            errors,
            counts,
            tuple(self.tagger.class_names[number] for number in background),
            found.errors[in_chosen],
            int((in_chosen & ~complete).sum()),
            found.num_steps[in_chosen],
        )
        return summary, found.take(np.searchsorted(everyone, shown))

    def attention(self, max_jets: int) -> AttentionSummary | None:
        """Return the attention of some jets: how sparse it is, and who gets it; None if none has two."""
        lengths = self.inputs.main.lengths.numpy()
        chosen = spread(self.jets.labels, max_jets)
        chosen = chosen[lengths[chosen] >= 2]
        if not len(chosen):
            return None
        jets, labels = self.jets.take(chosen), self.jets.labels[chosen]
        facts = particle_facts(self.tagger.data_config, jets.variables)
        inputs, total = take_inputs(self.inputs, chosen), StatisticsSum()
        token: list[Floats] = []
        particles: list[Floats] = []
        for position, inspection in enumerate(inspect_jets(self.tagger.network, inputs)):
            total.add(inspection.terms, inspection.num_particles)
            found = attention_of(inspection, take_inputs(inputs, np.array([position])))
            token.append(_normalised(found.token.mean(axis=(0, 1))))
            particles.append(found.particles.mean(axis=(0, 1)))
        num_classes = len(self.tagger.class_names)
        attended, subjets = [], []
        if facts is not None:
            attended = [
                relative_attention(np.concatenate(token), categories, facts.jets, labels, num_classes)
                for categories in categories_of(facts)
            ]
        if facts is not None and facts.momenta is not None and has_fastjet():
            subjets = [
                subjet_attention(
                    f"{number} subjets", particles, find_subjets(facts, number), labels, num_classes
                )
                for number in NUMBERS
            ]
        return AttentionSummary(total.result(), tuple(attended), tuple(subjets), len(chosen))

    def embedding(self) -> EmbeddingSummary:
        """Return the map of the embeddings of all jets."""
        tagged = self.tagger.tag(self.jets.variables, with_embeddings=True, each=self.each)
        colours, observables = self._observables()
        embeddings = np.asarray(tagged.embeddings, dtype=np.float64)
        return EmbeddingSummary(map_embeddings(embeddings, observables), self.jets.labels, colours)

    def _observables(self) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return what points are coloured by, and what is fitted."""
        fitted: dict[str, Floats] = {"number of particles": self.inputs.lengths.numpy().astype(np.float64)}
        colours: dict[str, Floats] = {}
        facts = self.facts
        if facts is not None and facts.masses is not None and facts.axes is not None:
            colours = {"mass [GeV]": facts.masses, "pT [GeV]": np.hypot(*facts.axes[:, :2].T)}
            fitted |= {"mass": colours["mass [GeV]"], "pT": colours["pT [GeV]"]}
        of_jets = {name: self.jets.per_jet(name) for name in self.jets.variables.branches}
        known = {name: values.astype(float) for name, values in of_jets.items() if values is not None}
        taus = {number: _ending(known, f"tau{number}") for number in range(1, 5)}
        soft_drop = _ending(known, "sdmass")
        if soft_drop is not None:
            fitted["soft-drop mass"] = soft_drop
        for number in (2, 3, 4):
            above, below = taus[number], taus[number - 1]
            if above is not None and below is not None:
                ratio = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
                fitted[f"τ{number}{number - 1}"] = ratio
        return colours, fitted


def _ending(columns: Mapping[str, Floats], end: str) -> Floats | None:
    return next((values for name, values in columns.items() if name.lower().endswith(end)), None)


def _normalised(values: Floats) -> Floats:
    total = values.sum()
    return values / total if total > 0 else values


def _named_attributions(tagger: Tagger, found: Attributions) -> tuple[tuple[str, ...], Floats]:
    """Return the names of all features, and the sum of |attribution| of each jet and feature (B, F)."""
    config = tagger.data_config
    names: list[str] = []
    parts: list[Floats] = []
    for name in found.features:
        names += [variable.name for variable in config.collections[name].features.variables]
        parts.append(found.of_jets(name))
    for name, group in found.jet_features.items():
        names += [variable.name for variable in config.jet_groups[name].variables]
        parts.append(np.abs(group))
    return tuple(names), np.concatenate(parts, axis=1)
