"""What a head, a block or the pair bias is worth: scores without it, on the same jets.

Axes: N jets, C classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from partt.data.variables import Variables
from partt.explanation.score_losses import ScoreComparison, ScoreLosses
from partt.model.inspection import attention_layers, switched_off
from partt.scores.passing import Floats
from partt.tagger.inference import Each
from partt.tagger.tagger_file import TorchTagger

TINY = 1e-12
Head = tuple[str, int]  # block and number


@dataclass(frozen=True, eq=False)
class Ablation:
    """What switching off a part of the network costs."""

    name: str
    heads: tuple[Head, ...]  # that are off
    losses: ScoreLosses
    entropy: float  # increase of the cross entropy


@dataclass(frozen=True, eq=False)
class AblationStudy:
    """All parts of a network, one by one, and the heads that can be switched off together."""

    pair_bias: Ablation | None
    blocks: tuple[Ablation, ...]
    heads: tuple[Ablation, ...]  # each alone
    together: Ablation | None  # the most heads that cost nothing within the errors; None: no head
    num_heads: int


class _Scorer:
    def __init__(
        self, tagger: TorchTagger, variables: Variables, comparison: ScoreComparison, each: Each
    ) -> None:
        self.tagger, self.variables, self.comparison, self.each = tagger, variables, comparison, each
        self.entropy = cross_entropy(comparison.probabilities, comparison)

    def without(
        self, name: str, *, heads: Sequence[Head] = (), blocks: Sequence[str] = (), pair_bias: bool = False
    ) -> Ablation:
        network = switched_off(self.tagger.network, heads=heads, blocks=blocks, pair_bias=pair_bias)
        changed = replace(self.tagger, network=network)
        scores = changed.tag(self.variables, each=self.each).probabilities
        increase = cross_entropy(scores, self.comparison) - self.entropy
        return Ablation(name, tuple(heads), self.comparison.with_scores(scores), increase)


def num_ablations(tagger: TorchTagger) -> int:
    """Return how often the jets are scored, at most."""
    layers = attention_layers(tagger.network)
    num_heads = sum(layer.num_heads for layer in layers.values())
    return 1 + len(layers) + num_heads + num_heads.bit_length()


def study_ablations(
    tagger: TorchTagger,
    variables: Variables,
    comparison: ScoreComparison,
    *,
    each: Each = map,
    step: Callable[[], None] = lambda: None,
) -> AblationStudy:
    """Switch off the pair bias, every block and every head, and as many heads as possible together.

    Heads are switched off together in the order of what each costs alone, in cross entropy; the largest
    number of them that costs no accuracy, AUC or rejection beyond its 68 % interval is found by bisection.
    """
    scorer = _Scorer(tagger, variables, comparison, each)

    def counted(found: Ablation) -> Ablation:
        step()
        return found

    layers = attention_layers(tagger.network)
    pair_bias = None
    if tagger.network.backbone.pair_bias is not None:
        pair_bias = counted(scorer.without("pair bias", pair_bias=True))
    blocks = [counted(scorer.without(name, blocks=[name])) for name in layers]
    all_heads = [(name, head) for name, layer in layers.items() for head in range(layer.num_heads)]
    heads = [
        counted(scorer.without(f"{name}, head {head + 1}", heads=[(name, head)])) for name, head in all_heads
    ]
    cheapest = [all_heads[place] for place in np.argsort([one.entropy for one in heads], kind="stable")]
    together, least, most = None, 0, len(cheapest)
    while least < most:  # the answer is in least ... most
        middle = (least + most + 1) // 2
        found = counted(scorer.without(f"{middle} heads", heads=cheapest[:middle]))
        if found.losses.is_within_errors:
            together, least = found, middle
        else:
            most = middle - 1
    return AblationStudy(pair_bias, tuple(blocks), tuple(heads), together, len(all_heads))


def cross_entropy(probabilities: Floats, comparison: ScoreComparison) -> float:
    """Return the mean of -ln of the score of the true class."""
    own = probabilities[np.arange(len(probabilities)), comparison.labels]
    return float(-np.log(np.maximum(own, TINY)).mean())
