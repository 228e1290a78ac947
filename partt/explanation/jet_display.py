"""What is shown of one jet: its particles, scores, subjets, attention and attributions.

Axes: P particles of the main collection, F features, C classes, L blocks, K class blocks, H heads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.explanation.labelled_jets import LabelledJets
from partt.explanation.particle_facts import DISPLACED, KIND_NAMES, ParticleFacts
from partt.jet_inputs import JetInputs, main_collection
from partt.model.inspection import JetInspection
from partt.scores.passing import Floats

MAX_LINKS = 40  # lines between particles, of a head
MIN_LINK = 0.05  # the weakest attention that gets a line


@dataclass(frozen=True, eq=False)
class JetAttention:
    """Attention of one jet among the particles of its main collection."""

    blocks: tuple[str, ...]
    particles: Floats  # (L, H, P, P)
    class_blocks: tuple[str, ...]
    token: Floats  # (K, H, P), adds up to 1 over all particles


@dataclass(frozen=True, eq=False)
class JetDisplay:
    """One jet to look at."""

    reason: str  # why it was chosen
    file: str
    entry: int
    label: str | None
    class_names: tuple[str, ...]
    scores: Floats  # (C,)
    places: Floats  # (P, 2) eta and phi relative to the jet axis
    pt: Floats  # (P,)
    jet_pt: float
    jet_mass: float
    kinds: tuple[str, ...]  # of each particle
    charges: Floats | None
    significances: Floats | None  # |d0| / error
    subjets: npt.NDArray[np.int64] | None  # (P,)
    features: Mapping[str, Floats]  # (P,) each, before standardisation
    attributions: Floats | None  # (P, F), in the order of `features`
    attention: JetAttention | None

    @property
    def displaced(self) -> npt.NDArray[np.bool_]:
        """Which particles are displaced (P,)."""
        if self.significances is None:
            return np.zeros(len(self.pt), dtype=bool)
        return np.nan_to_num(self.significances) > DISPLACED


def attention_of(inspection: JetInspection, jet: JetInputs) -> JetAttention:
    """Return the attention among the particles of the main collection of a jet."""
    main = main_collection(jet.shape)
    first = 0
    for name, collection in jet.collections.items():
        if name == main:
            break
        first += len(collection.features)
    own = slice(first, first + len(jet.main.features))
    particles, token, blocks, class_blocks = [], [], [], []
    for name, terms in inspection.terms.items():
        queries, keys = terms.num_tokens
        weights = terms.weights.double().numpy()[:, :, : keys + inspection.num_particles]
        if weights.shape[1] > queries:
            blocks.append(name)
            particles.append(weights[:, queries:, keys:][:, own, own])
        if queries:
            class_blocks.append(name)
            given = weights[:, 0, keys:]
            token.append((given / given.sum(axis=-1, keepdims=True))[:, own])
    return JetAttention(tuple(blocks), np.stack(particles), tuple(class_blocks), np.stack(token))


def strongest_links(attention: Floats) -> list[tuple[int, int, float]]:
    """Return the strongest pairs of different particles, i < j, of attention (P, P), the weakest first.

    Of the two directions of a pair the stronger counts.
    """
    weights = np.triu(np.maximum(attention, attention.T), 1)
    first, second = np.nonzero(weights > MIN_LINK)
    order = np.argsort(weights[first, second], kind="stable")[-MAX_LINKS:]
    return [(int(first[k]), int(second[k]), float(weights[first[k], second[k]])) for k in order]


def choose_jets(jets: LabelledJets, class_names: Sequence[str], num_wrong: int) -> dict[int, str]:
    """Return jets to show and why: the most certain of each class, and the most wrong of all."""
    chosen: dict[int, str] = {}
    own = jets.probabilities[np.arange(len(jets)), jets.labels]
    for number, name in enumerate(class_names):
        of_class = np.flatnonzero(jets.labels == number)
        if len(of_class):
            chosen[int(of_class[own[of_class].argmax()])] = f"most certain {name}"
    is_wrong = jets.probabilities.argmax(axis=1) != jets.labels
    for jet in np.argsort(own, kind="stable"):
        if num_wrong and is_wrong[jet] and int(jet) not in chosen:
            chosen[int(jet)] = "most wrong"
            num_wrong -= 1
    return chosen


def kinds_of(facts: ParticleFacts, rows: slice) -> tuple[str, ...]:
    """Return the type of each particle; by charge if types are not known."""
    if facts.kinds is not None:
        numbers: list[int] = facts.kinds[rows].tolist()
        return tuple(KIND_NAMES[number] for number in numbers)
    if facts.charges is None:
        return ("particle",) * int(rows.stop - rows.start)
    return tuple("charged" if charge else "neutral" for charge in facts.charges[rows])
