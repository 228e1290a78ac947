"""Which classes and discriminants figures show where there are more than fit into one."""

from partt.evaluation.summary import ClassificationSummary, DiscriminantSummary

MAX_SHOWN = 12  # classes, discriminants or models in one figure


def shown_discriminants(summary: ClassificationSummary) -> dict[str, DiscriminantSummary]:
    """Return the discriminants with the most signal jets, in their order."""
    ranked = sorted(summary.discriminants, key=lambda name: -summary.discriminants[name].num_signal)
    chosen = set(ranked[:MAX_SHOWN])
    return {name: one for name, one in summary.discriminants.items() if name in chosen}


def shown_classes(summary: ClassificationSummary) -> list[int]:
    """Return classes, by position: those of shown discriminants, then those with the most jets."""
    names = summary.class_names
    if len(names) <= MAX_SHOWN:
        return list(range(len(names)))
    shown = list(shown_discriminants(summary).values())
    backgrounds = [name for one in shown for name in one.discriminant.backgrounds]
    signals = sorted((one.discriminant.signal for one in shown), key=lambda name: -summary.num_jets[name])
    others = sorted(names, key=lambda name: -summary.num_jets[name])
    chosen = list(dict.fromkeys([*backgrounds, *signals, *others]))[:MAX_SHOWN]
    return sorted(map(names.index, chosen))
