"""How well: tables and sentences of pages on simulation, intervals and networks, of benchmarks' files."""

import math
from statistics import mean, stdev
from typing import Any

from markdown_tables import (
    NotMeasuredError,
    Text,
    count,
    if_measured,
    percent,
    ratio,
    read_csv,
    read_json,
    span,
    table,
)

# ParticleNet on JetClass, with all features: accuracy and AUC of arXiv:2202.03772
PUBLISHED = {"full": ("0.844", "0.9849")}

# --- simulation: benchmarks/simulation_fidelity.py ----------------------------------------------------------


def fidelity_of_networks() -> str:
    """Return how well networks that learned from the real JetClass do on simulated jets."""
    found = read_json("simulation_fidelity")
    names = {"full": "all features", "kin": "kinematics only"}
    rows = []
    for judge, features in names.items():
        title = f"ParticleNet, {features}"
        if judge in PUBLISHED:
            rows.append([title, "the real JetClass (published)", *PUBLISHED[judge]])
        for jets, one in found["judges"][judge].items():
            accuracy = f"{one['accuracy']:.4f} ± {one['accuracy_error']:.4f}"
            rows.append([title, jets, accuracy, f"{one['auc']:.4f}"])
    sizes = span(one["jets"] for one in found["classes"].values())
    return f"{table(['network', 'jets', 'accuracy', 'AUC'], rows)}\n{sizes} simulated jets of each class.\n"


def fidelity_of_classes() -> str:
    """Return particles per jet and mass of simulated and of real jets, class by class."""
    found = read_json("simulation_fidelity")
    judged = found["judges"]["full"]["partt"]
    titles = ["class"]
    for what in ("particles per jet", "median mass (GeV)"):
        titles += [f"{what}: partt", "real", "difference / error"]
    rows = []
    for label, one in found["classes"].items():
        row = [label]
        for key in ("multiplicity", "mass"):
            row += [f"{one[key]:.1f}", f"{one[f'real_{key}']:.1f}", f"{one[f'{key}_pull']:+.1f}"]
        row = [cell.replace("-", "−") for cell in row]
        rows.append([*row, f"{judged[f'found_{label}']:.3f}"])
    averages = []
    for key, what in (("multiplicity", "the number of particles"), ("mass", "the mass")):
        one = found["averages"][key]
        size, signed = (one[f"mean_{kind}"] for kind in ("absolute_deviation", "deviation"))
        averages.append(
            f"{percent(size, 1)} % for {what} (with sign: {100 * signed:+.1f} %)".replace("-", "−")
        )
    sizes = span(one["real_jets"] for one in found["classes"].values())
    return (
        f"{table([*titles, 'correctly classified by ParticleNet'], rows)}\n"
        f"There are {sizes} real jets of each class. "
        f"The average difference over the classes is {' and '.join(averages)}.\n"
    )


def fidelity_of_marks() -> str:
    """Return what else simulated and real jets have in common."""
    found = read_json("simulation_fidelity", "quirks")
    titles = {
        "particles with |deta| > 1 (%)": "particles with abs(deta) > 1, %",
        "particles with dR > 0.8 (%)": "particles with dR > 0.8, %",
        "median jet pT (GeV)": "median jet pT, GeV",
        "median |jet_eta - eta of the constituents|": "median difference of jet_eta and constituents' eta",
    }
    rows = (
        [title, *(f"{jets[key]:.3g}" if key in jets else "" for jets in found.values())]
        for key, title in titles.items()
    )
    return table(["", *found], rows)


# --- intervals: benchmarks/interval_coverage.py -------------------------------------------------------------


def interval_coverage() -> str:
    """Return how often intervals of rejections cover the true one, setting by setting."""
    titles = ["ε_S", "signal jets", "background jets", "of which pass", "coverage", "too low / too high"]
    rows = (
        [
            f"{100 * one['signal_efficiency']:g} %",
            f"{one['signal_jets']:,}",
            f"{one['background_jets']:,}",
            ratio(one["background_jets_expected"]),
            f"{percent(one['coverage'], 1)} %",
            f"{percent(one['true_rejection_above'], 1)} / {percent(one['true_rejection_below'], 1)} %",
            f"{percent(one['coverage_of_bootstrap'], 1)} %",
        ]
        for one in read_json("interval_coverage", "rows")
    )
    return table([*titles, "of a bootstrap"], rows)


def interval_coverage_in_short() -> str:
    """Return the sentences on the coverage of partt's intervals and of a bootstrap's."""
    found = read_json("interval_coverage")
    usual = [
        one["coverage"]
        for one in found["rows"]
        if one["background_jets_expected"] >= 10 and one["true_rejection_below"] > 0
    ]
    bootstrap = (one["coverage_of_bootstrap"] for one in found["rows"])
    return (
        f"Each line of the table is {found['toys']:,} toy experiments (Gaussian log-odds). "
        f"The intervals cover the true rejection in {span(usual, percent)} % of the cases where ten "
        "background jets or more pass and the threshold has two ends, and in more where fewer pass, "
        "since numbers of jets are whole. "
        f"A bootstrap of all jets covers {span(bootstrap, percent)} %: "
        "it never draws a signal jet below the lowest one.\n"
    )


# --- explanation: benchmarks/bench_explain.py ---------------------------------------------------------------


def explained_tagger() -> str:
    """Return the sentences on what an explanation of the tagger in the box says."""
    found = read_json("explain")

    def leptons(kind: str) -> str:
        shares = [
            f"{value:.2f} ({low:.2f} to {high:.2f}) in {label} jets"
            for label in ("Hqql", "Tbl")
            for value, low, high in [found["attended_types"][label][kind]]
        ]
        return " and ".join(shares)

    error = (found[f"completeness_error_{which}"] for which in ("mean", "largest"))
    average, largest = (percent(value, 2) for value in error)
    charge, low, high = (f"{value:.5f}".replace("-", "−") for value in found["importances"]["part_charge"])
    return (
        f"In units of the uniform share, electrons get {leptons('electron')}, muons {leptons('muon')}. "
        "The completeness error is "
        f"{average} % on average and {largest} % at most; {found['heads_off'] or 'none'} of the heads can be "
        f"switched off within the errors; and shuffling the charge costs {charge} ({low} to {high}) of AUC.\n"
    )


# --- networks: accuracy_per_second.py, fine_tuning.py, mass_regression.sh, tasks_beside_classes.sh ----------


def accuracy_per_second() -> str:
    """Return the networks of benchmarks/accuracy_per_second.json, the fastest first."""
    measured = read_json("accuracy_per_second")
    rows = []
    for name, found in measured["networks"].items():
        if "jets_per_second" not in found:
            continue
        seeds = found.get("seeds", [])
        values = {key: [seed[key] for seed in seeds] for key in ("accuracy", "mean_rejection")}
        cells = ["", ""]
        if seeds:
            errors = {key: seeds[0][f"{key}_error"] for key in values}
            spread = {key: stdev(some) if len(some) > 1 else 0.0 for key, some in values.items()}
            cells = [
                f"{mean(values[key]):.{digits}f} ± {math.hypot(errors[key], spread[key]):.{digits}f}"
                for key, digits in (("accuracy", 4), ("mean_rejection", 0))
            ]
        speeds = [found["jets_per_second"][size] for size in ("400", "1")]
        numbers = [*cells, *map(count, speeds), measured["published"].get(name, "")]
        rows.append((-speeds[0], [name, str(len(seeds) or ""), *map(str, numbers)]))
    titles = ["", "seeds", "accuracy", "mean rejection", "jets/s, batch 400", "jets/s, jet by jet"]
    return table([*titles, "published"], (row for _, row in sorted(rows)))


def accuracy_differences() -> str:
    """Return paired differences of accuracies between networks of benchmarks/accuracy_per_second.json."""
    found = read_json("accuracy_per_second", "differences")
    rows = (
        [pair.replace(" - ", " − "), _signed(one["accuracy"]),
         f"± {one['error_of_seeds']:.4f}" if one["error_of_seeds"] else "one each",
         f"± {one['error_of_test_jets']:.4f}"]
        for pair, one in found.items()
    )  # fmt: skip
    return table(["difference", "accuracy", "seeds", "test jets"], rows)


def _signed(number: float) -> str:
    return f"{number:+.4f}".replace("-", "−")


# --- few labels: benchmarks/few_labels.py -------------------------------------------------------------------

STARTS = (
    "from scratch",
    "from scratch, three times the passes",
    "frozen",
    "fine-tuned",
    "from other classes",
)


def few_labels(part: str, metric: str) -> str:
    """Return accuracies or AUCs against the number of labels, from each start."""
    runs = [row for row in read_json("few_labels", "rows") if row["part"] == part]
    if not runs:
        raise NotMeasuredError(f"few_labels.json: {part}")
    sizes = sorted({row["labels"] for row in runs})
    rows = []
    for start in STARTS:
        row = [start]
        for size in sizes:
            values = [one[metric] for one in runs if (one["method"], one["labels"]) == (start, size)]
            row.append(f"{mean(values):.3f} ± {stdev(values):.3f}" if len(values) > 1 else "")
        if any(row[1:]):
            rows.append(row)
    rows.append(["fine-tuned − from scratch", *(_gain(runs, metric, size) for size in sizes)])
    draws = len({row["draw"] for row in runs})
    head = [{"accuracy": "accuracy", "auc": "AUC"}[metric], *(f"{size:,} labels" for size in sizes)]
    return (
        f"{table(head, rows)}\n± is the spread (standard deviation) of {draws} draws of jets with labels; "
        "differences are taken draw by draw.\n"
    )


def _gain(runs: list[dict[str, Any]], metric: str, size: int) -> str:
    """Return the mean and the spread of what fine-tuning gains in each draw."""
    tuned, scratch = (
        {one["draw"]: one[metric] for one in runs if (one["method"], one["labels"]) == (start, size)}
        for start in ("fine-tuned", "from scratch")
    )
    gains = [tuned[draw] - scratch[draw] for draw in tuned.keys() & scratch.keys()]
    return f"{mean(gains):+.3f} ± {stdev(gains):.3f}".replace("-", "−") if len(gains) > 1 else ""


def probes() -> str:
    """Return the accuracy of a linear probe on embeddings, and on what they are compared with."""
    found = read_json("few_labels", "rows")
    jets = {row["name"]: row["num_jets"] for row in found if row["part"] == "pretrain"}
    epochs = {row["name"]: str(row["epochs"]) for row in found if row["part"] == "pretrain"}
    titles = {
        "random": "new weights, BatchNorms as built",
        "new weights": "new weights, BatchNorms that have seen jets",
        "observables of jets": "the observables themselves, no network",
        "all_classes": "regression (the recipe)",
        "flow matching": "flow matching",
        "regression, particles only": "regression, without observables",
        "flow matching, particles only": "flow matching, without observables",
    }
    rows = (
        [titles.get(name := row["name"], name), f"{jets.get(name, 0):,}", epochs.get(name, "0"),
         f"{row['accuracy']:.4f}"]
        for row in found
        if row["part"] == "probe"
    )  # fmt: skip
    return table(["", "jets without labels", "passes", "accuracy of the probe, ten classes"], rows)


def fine_tuning() -> str:
    """Return what fine-tuning gives, beside training from random weights."""
    found = read_json("fine_tuning")
    titles = {
        "accuracy": "accuracy",
        "AUC": "AUC",
        "rejection at 50 %": "QCD rejection at 50 % top efficiency",
    }
    names = {"from scratch": "from random weights"}
    rows = []
    for kind, runs in found.items():
        row = [names.get(kind, kind)]
        for metric, digits in zip(titles, (4, 4, 0), strict=True):
            values = [run[metric] for run in runs]
            row.append(f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}")
        rows.append(row)
    num = span(len(runs) for runs in found.values())
    head = ["top against QCD", *titles.values()]
    return f"{table(head, rows)}\n± is the spread (standard deviation) of {num} draws.\n"


# what a mass is of: column of the CSV file -> title
PREDICTORS = {"mass_factor": "part_s", "jet_mass": "jet mass", "jet_sdmass": "soft drop"}


def mass_widths() -> str:
    """Return the sentence on the widths of the response for all jets."""
    found = _responses("", "")
    network, jet_mass, soft_drop = (_with_error(found["width", name][0]) for name in PREDICTORS)
    jets = int(found["width", "mass_factor"][0]["jets"])
    return (
        f"For {jets:,} test jets the width of the response, half the central 68 %, is {network}, "
        f"that of the jet mass {jet_mass}, of the soft-drop mass {soft_drop}.\n"
    )


def mass_in_bins(observer: str, title: str) -> str:
    """Return widths and biases in bins of an observer."""
    found = _responses("", observer)
    rows = []
    for number, one in enumerate(found["width", "mass_factor"]):
        edges = "–".join(f"{float(one[end]):g}" for end in ("bin_low", "bin_high"))
        cells = (
            _with_error(found[metric, name][number]) for metric in ("width", "bias") for name in PREDICTORS
        )
        rows.append([edges, f"{int(one['jets']):,}", *cells])
    names = list(PREDICTORS.values())
    titles = [title, "jets", f"width, {names[0]}", *names[1:], f"bias, {names[0]}", *names[1:]]
    return table(titles, rows)


def mass_in_short() -> str:
    """Return the sentences on jets that lose a neutrino, and on the predicted quantiles."""
    lossy = _responses("Hqql", "")
    after, before = (
        {metric: float(lossy[metric, name][0]["value"]) for metric in ("width", "bias")}
        for name in ("mass_factor", "jet_mass")
    )
    (inside,) = _responses("", "")["inside", "mass_factor"]
    text = (
        f"The jets of H → WW → ℓνqq, which lose a neutrino, have a width of {after['width']:.3f} after the "
        f"correction and {before['width']:.3f} before, but a bias of {after['bias']:.3f} instead of "
        f"{before['bias']:.3f}. "
        f"{percent(float(inside['value']), 1)} % of the true values are between the predicted quantiles of "
        "16 % and 84 %.\n"
    )
    return text.replace(" -", " −")


def _responses(label: str, observer: str) -> dict[tuple[str, str], list[dict[str, str]]]:
    """Return rows of a class, "" for all, and an observer, "" for no bins, by metric and predictor."""
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in read_csv("mass_regression"):
        if (row["class"], row["observer"]) == (label, observer):
            found.setdefault((row["metric"], row["predictor"]), []).append(row)
    return found


def _with_error(row: dict[str, str]) -> str:
    value, low, high = (float(row[name]) for name in ("value", "low", "high"))
    return f"{value:.3f} ± {(high - low) / 2:.3f}".replace("-", "−")


def cost_of_more_tasks() -> str:
    """Return the sentence on the accuracy with and without regressions beside the classes."""
    rows = [row for row in read_csv("tasks_beside_classes") if row["metric"] == "accuracy"]
    found = {row["model"]: f"{float(row['value']):.3f} ± {float(row['spread']):.3f}" for row in rows}
    seeds, jets = ({int(row[name]) for row in rows}.pop() for name in ("seeds", "jets"))
    return (
        f"Classes alone have an accuracy of {found['classes']} (± is the spread of {seeds} seeds; "
        f"{count(jets)} test jets), classes, mass and pT together {found['classes, mass, pT']}.\n"
    )


MADE: dict[str, Text] = {
    "fidelity of simulated jets": fidelity_of_networks,
    "simulated and real classes": fidelity_of_classes,
    "simulated and real jets": fidelity_of_marks,
    "interval coverage": interval_coverage,
    "interval coverage in short": interval_coverage_in_short,
    "explained tagger": explained_tagger,
    "accuracy per second": accuracy_per_second,
    "accuracy differences": accuracy_differences,
    "few labels": lambda: few_labels("curve", "accuracy"),
    "few labels, AUC": lambda: few_labels("curve", "auc"),
    "few labels of an unseen class": lambda: few_labels("unseen", "accuracy"),
    "probes": probes,
    "fine-tuning": fine_tuning,
    "mass widths": mass_widths,
    "mass in bins of pT": lambda: mass_in_bins("jet_pt", "jet pT [GeV]"),
    "mass in bins of the true mass": lambda: mass_in_bins("true_mass", "true mass [GeV]"),
    "mass in short": mass_in_short,
    "cost of more tasks": cost_of_more_tasks,
}
TEXTS = {name: if_measured(text) for name, text in MADE.items()}
