"""Which classes and discriminants figures show where there are more than fit into one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from partt.evaluation.summary import ClassificationSummary, DiscriminantSummary, Summary

MAX_SHOWN = 12  # classes, discriminants or models in one figure


def shown_discriminants(summary: ClassificationSummary) -> dict[str, DiscriminantSummary]:
    """Return the discriminants with the most signal jets, in their order.

    Of many classes, they are numbered anew: the number of a class chooses its colour, and colours repeat.
    """
    known = summary.discriminants
    chosen = sorted(known, key=lambda name: -known[name].num_signal)[:MAX_SHOWN]
    shown = [name for name in known if name in chosen]
    if len(summary.class_names) <= MAX_SHOWN:
        return {name: known[name] for name in shown}
    signals = list(dict.fromkeys(known[name].discriminant.signal for name in shown))
    return {
        name: replace(known[name], class_number=signals.index(known[name].discriminant.signal))
        for name in shown
    }


def shown_curves(models: Mapping[str, Sequence[Summary]]) -> dict[str, dict[str, DiscriminantSummary]]:
    """Return the discriminants of each model, of its first seed, that the first model shows."""
    main = next(iter(models.values()))[0]
    shown = shown_discriminants(main.classification) if main.classification else {}
    found = {}
    for model, seeds in list(models.items())[:MAX_SHOWN]:
        known = seeds[0].discriminants
        found[model] = {
            name: replace(known[name], class_number=one.class_number)
            for name, one in shown.items()
            if name in known
        }
    return {model: curves for model, curves in found.items() if curves}


def class_colours(summary: ClassificationSummary) -> dict[str, int]:
    """Return the number of each class, which chooses its colour; of many classes, numbers of those shown."""
    names = summary.class_names
    if len(names) <= MAX_SHOWN:
        return {name: number for number, name in enumerate(names)}
    shown = [one.discriminant.signal for one in shown_discriminants(summary).values()]
    ordered = dict.fromkeys([*shown, *(names[number] for number in shown_classes(summary))])
    return {name: number for number, name in enumerate(ordered)}


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
