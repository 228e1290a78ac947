"""How fast, and with how much memory: the tables and sentences of pages, made of the benchmarks' JSON files.

What the numbers mean is in the docstrings of the benchmarks that write the files.
"""

import re
from functools import partial
from statistics import mean, median
from typing import Any

from markdown_tables import (
    NotMeasuredError,
    Text,
    count,
    if_measured,
    medians,
    percent,
    ratio,
    read_json,
    span,
    table,
)

BEFORE = "partt 0.1.0"  # the tree that `--before` of the benchmarks measures in the same turns
LIMIT = "limit"
EPOCHS = ("first epoch", "second epoch")
CLOCKS = {"cpu": "CPU time", "wall": "by the clock"}

# --- the network alone: benchmarks/bench_model.py -----------------------------------------------------------


def network_speed(part: str, *, ranges: bool = False) -> str:
    """Return jets/s of partt and others, and how much faster partt is, for each number of threads."""
    by_threads = _rates_of_network(part)
    names = sorted(next(iter(by_threads.values())), key=_place_in_table)
    titles = [""]
    for threads in by_threads:
        titles += [f"{_threads(threads)}, jets/s", "partt / this"]
    rows = []
    for name in names:
        row = [_name_in_table(name)]
        for measured in by_threads.values():
            rates = medians(measured)
            text = count(rates[name]) + (f" ({span(measured[name])})" if ranges else "")
            row += [f"**{text}**" if name in _best(rates) else text]
            row += ["" if name.startswith("partt") else ratio(_ours(rates) / rates[name])]
        rows.append(row)
    num = span(len(values) for measured in by_threads.values() for values in measured.values())
    notes = [f"Medians of {num} measurements, in turns", *["with their ranges"] * ranges]
    if any(_best(medians(measured)) for measured in by_threads.values()):
        notes.append("the best batch size of others is bold")
    return f"{table(titles, rows)}\n{'; '.join(notes)}.\n"


def training_memory() -> str:
    """Return the sentence on the memory of a training step."""
    title = re.compile(r"memory, 1 thread, training step, batch (\d+), GB")
    for key, measured in read_json("model").items():
        if match := title.fullmatch(key):
            peaks = (
                f"{_name_in_table(name)} {gigabytes:.1f} GB" for name, gigabytes in medians(measured).items()
            )
            jets = int(match[1])
            return (
                f"Peak memory of a training step of {jets:,} jets, "
                f"above what the process had before: {', '.join(peaks)}.\n"
            )
    raise NotMeasuredError("model.json: memory")


def network_scaling() -> str:
    """Return how partt's rate grows with the particles of a jet, and with the jets of a call."""
    tables = []
    for title, pattern in (("particles of a jet", r"(\d+) particles a jet"), ("jets", r"batch (\d+)")):
        columns: dict[str, list[str]] = {}
        for measured in (by_threads := _rates_of_network("scaling")).values():
            for name, rate in medians(measured).items():
                if match := re.fullmatch(pattern, name):
                    columns.setdefault(f"{int(match[1]):,}", []).append(count(rate))
        rates = zip(*columns.values(), strict=True)
        rows = ([f"{_threads(n)}, jets/s", *row] for n, row in zip(by_threads, rates, strict=True))
        tables.append(table([title, *columns], rows))
    return "\n".join(tables)


def _rates_of_network(part: str) -> dict[int, dict[str, list[float]]]:
    """Return the measured jets/s: number of threads -> name -> of each measurement."""
    title = re.compile(rf"{part}, (\d+) threads?, jets/s")
    matches = ((title.fullmatch(key), rates) for key, rates in read_json("model").items())
    found = {int(match[1]): rates for match, rates in matches if match}
    if not found:
        raise NotMeasuredError(f"model.json: {part}")
    return found


def _ours(rates: dict[str, float]) -> float:
    return next(rate for name, rate in rates.items() if name.startswith("partt"))


def _best(rates: dict[str, float]) -> set[str]:
    """Return the fastest of each competitor's ways, where it has several."""
    ways: dict[str, dict[str, float]] = {}
    for name, rate in rates.items():
        if not name.startswith(("partt", "before", LIMIT)):
            ways.setdefault(name.partition(",")[0], {})[name] = rate
    return {max(some, key=lambda name: some[name]) for some in ways.values() if len(some) > 1}


def _place_in_table(name: str) -> int:
    """Return where a name comes: partt, partt before, others as measured, the limit."""
    places = {"partt": 0, "before": 1, LIMIT: 3}
    return next((place for start, place in places.items() if name.startswith(start)), 2)


def _name_in_table(name: str) -> str:
    return name.replace("before: partt", BEFORE).replace("sorted,", "sorted by length,")


def _threads(number: int) -> str:
    return f"{number} thread{'s' * (number > 1)}"


# --- training: benchmarks/bench_training.py, bench_memory.py ------------------------------------------------


def training_speed(name: str, *clocks: str) -> str:
    """Return jets/s of epochs, of partt and of others."""
    found = read_json(name)
    seconds = found["seconds"]
    others = {who: BEFORE if who == "before" else who for who in seconds if who != "partt"}
    titles = ["jets/s", "partt"]
    for other in others.values():
        titles += [other, f"partt / {other}"]
    rows = []
    for clock in clocks:
        for number, epoch in enumerate(EPOCHS):
            rates = {
                who: found["jets"] / median(run[clock][number] for run in runs)
                for who, runs in seconds.items()
            }
            row = [f"{epoch}, {CLOCKS[clock]}", count(rates["partt"])]
            for other in others:
                row += [count(rates[other]), ratio(rates["partt"] / rates[other])]
            rows.append(row)
    return f"{table(titles, rows)}\n{_settings_of_training(found)}\n"


def several_cores(name: str) -> str:
    """Return the speed-ups of the ways to use several cores."""
    found = read_json(name)
    seconds = found["seconds"]

    def second_epoch(way: str, clock: str) -> float:
        return float(median(run[clock][1] for run in seconds[way]))

    rows = []
    for way in seconds:
        by_clock = second_epoch("1 thread", "wall") / second_epoch(way, "wall")
        by_cpu = int(way.split()[0]) * second_epoch("1 thread", "cpu") / second_epoch(way, "cpu")
        rate = found["jets"] / second_epoch(way, "wall")
        rows.append([way, count(rate), ratio(by_clock), ratio(by_cpu)])
    titles = ["second epoch", "jets/s", "speed-up", "by CPU time"]
    return f"{table(titles, rows)}\n{_settings_of_training(found)}\n"


def _settings_of_training(found: dict[str, Any]) -> str:
    """Return the sentence on what was trained, and where, as far as the file knows."""
    parts = [f"{found['jets']:,} jets"]
    if "batch" in found:
        parts.append(f"batch size {found['batch']:,}")
    rounds = span(len(runs) for runs in found["seconds"].values())
    parts.append("one round" if rounds == "1" else f"medians of {rounds} rounds")
    if "cores" in found:
        load = span(found["load"], "{:.1f}".format)
        parts.append(f"{found['cores']} cores with a load of {load}, these processes included")
    return f"{', '.join(parts)}."


def memory_of_steps() -> str:
    """Return the memory of a long training, step by step."""
    found = read_json("memory")
    later = [point["resident"] for point in found["curve"] if point["step"] >= found["warm_up"]]
    shown = [
        point for point in found["curve"] if point["step"] in {50, 250, 500} or point["step"] % 1000 == 0
    ]
    rows = [
        [title, *(count(point[key]) for point in shown)]
        for title, key in (("resident, MB", "resident"), ("in use by tensors and objects, MB", "in_use"))
    ]
    return (
        f"{table(['step', *(count(point['step']) for point in shown)], rows)}\n"
        f"Recipe `{found['recipe']}`, batch size {found['batch_size']}, {_threads(found['threads'])}. "
        f"From step {found['warm_up']} on the resident memory is {span(later)} MB: "
        f"the highest is {percent(found['spread'], 1)} % above the lowest.\n"
    )


# --- prediction: benchmarks/bench_predict.py ----------------------------------------------------------------


def prediction_speed() -> str:
    """Return jets/s of `partt predict` and of `weaver --predict`."""
    rates = read_json("predict", "weaver")
    walls = {name: clocks["wall"] for name, clocks in rates.items()}
    rows = []
    for name, clocks in rates.items():
        rate = count(clocks["wall"])
        ours = name == "partt"
        factor = "" if ours else ratio(walls["partt"] / walls[name])
        program, _, batch = name.partition(", ")
        title = f"`{program} {'' if ours else '--'}predict`{', ' * bool(batch)}{batch}"
        rows.append([title, f"**{rate}**" if name in _best(walls) else rate, factor, count(clocks["cpu"])])
    return table(["", "jets/s", "partt / this", "jets per second of CPU time"], rows)


def prediction_beside_network() -> str:
    """Return the rates from file to file and of the network alone."""
    rows = []
    for name, found in read_json("predict", "rate").items():
        alone, files = found["network"]["cpu"], found["file to file"]["cpu"]
        rows.append([f"`{name}`", count(alone), count(files), ratio(files / alone)])
    return table(["", "network alone, jets/s", "file to file, jets/s", "ratio"], rows)


def prediction_memory() -> str:
    """Return the memory of predictions of more and more jets."""
    rows = (
        [f"{int(jets):,}", *(count(found[key]) for key in ("peak MB", "jets/s", "jets/s of CPU time"))]
        for jets, found in read_json("predict", "memory").items()
    )
    return table(["jets in the file", "peak memory, MB", "jets/s", "jets per second of CPU time"], rows)


def gain_over_weaver() -> str:
    """Return by what partt is faster than weaver-core, in short."""
    alone = medians(_rates_of_network("inference")[1])
    best = max((name for name in _best(alone) if name.startswith("weaver")), key=lambda name: alone[name])
    files = {name: clocks["wall"] for name, clocks in read_json("predict", "weaver").items()}
    (best_files,) = _best(files)
    runs = read_json("training", "seconds")
    second_epoch = {who: median(run["cpu"][1] for run in runs[who]) for who in ("partt", "weaver")}
    read = medians(read_json("reading"))
    size, size_of_files = (name.rpartition(" ")[2] for name in (best, best_files))
    factors = {
        "inference of `part`, one thread, batch of 400 jets": _ours(alone) / alone["weaver, batch 400"],
        f"against weaver's best batch size ({size})": _ours(alone) / alone[best],
        "training, from files to new weights, one thread": second_epoch["weaver"] / second_epoch["partt"],
        f"prediction, file to file, against its best batch size ({size_of_files})": files["partt"]
        / files[best_files],
        "reading a first time, cold": read["partt, cold"] / read["weaver, cold"],
    }
    return table(["", "faster by"], ([title, ratio(factor)] for title, factor in factors.items()))


# --- reading: benchmarks/bench_reading.py, bench_scale.py ---------------------------------------------------

READERS = {
    "uproot": "uproot reads the same branches",
    "weaver, cold": "weaver-core's loader, cold",
    "weaver, second epoch": "weaver-core's loader, second epoch",
    "partt, first pass, writing the cache": "partt, first pass that writes the cache",
}


def reading_speed() -> str:
    """Return jets/s of readers, and their ratios."""
    measured = read_json("reading")
    others = {"uproot": "/ raw uproot", "weaver, second epoch": "/ weaver, second epoch"}
    others["weaver, cold"] = "/ weaver, cold"
    rates = medians(measured)
    rows = (
        [READERS.get(name, name), count(rate), *(ratio(rate / rates[other]) for other in others)]
        for name, rate in rates.items()
    )
    num = span(len(some) for some in measured.values())
    return f"{table(['', 'jets/s', *others.values()], rows)}\nMedians of {num} rounds.\n"


def reading_vertices() -> str:
    """Return jets/s of readers of two collections: of simulated and of made-up jets."""
    samples = {"simulated": "reading_simulated_vertices", "made-up": "reading_vertices"}
    measured = {title: read_json(name) for title, name in samples.items()}
    titles, rows, rounds = [""], [], []
    for title, found in measured.items():
        titles += [f"{title}: jets/s", "/ raw uproot", "/ weaver, second epoch"]
        firsts = zip(found["partt, first pass"], found["uproot"], strict=True)
        num, factors = len(found["uproot"]), span((ours / theirs for ours, theirs in firsts), ratio)
        rounds.append(f"{title}: medians of {num} rounds, in which the first pass was {factors} of uproot")
    for name in next(iter(measured.values())):
        row = [READERS.get(name, name)]
        for found in measured.values():
            rates = medians(found)
            row.append(count(rates[name]))
            row += [ratio(rates[name] / rates[other]) for other in ("uproot", "weaver, second epoch")]
        rows.append(row)
    text = "; ".join(rounds)
    return f"{table(titles, rows)}\n{text[0].upper()}{text[1:]}.\n"


def large_sample() -> str:
    """Return time and memory to open, index and read a sample of JetClass's size."""
    found = read_json("scale", "scale")
    rate = found["streaming"]["jets"] / found["streaming"]["seconds"]
    names = {
        "open": f"open {found['files']:,} files",
        "index": f"index {found['jets']:,} jets",
        "reader is ahead": "the reader is one unit ahead, and waits",
        "streaming": f"read {found['streaming']['jets']:,} jets ({count(rate)} jets/s)",
        "jets for the tagger file": "jets for the tagger file, before the first step",
    }
    rows = []
    for name, values in found.items():
        if isinstance(values, dict):
            memory = values["memory_mb"]
            cells = f"{values['cpu_seconds']:.1f}", count(values["seconds"])
            shown = span(memory if isinstance(memory, list) else [memory])
            rows.append([names.get(name, name), *cells, shown])
    load = ", ".join(count(value) for value in read_json("scale", "load"))
    return (
        f"{table(['', 'CPU seconds', 'seconds', 'memory, MB'], rows)}\n"
        f"Load averages of the machine at the end (1, 5 and 15 minutes): {load}.\n"
    )


def whole_passes() -> str:
    """Return the memory of whole passes, from files and from the cache."""
    from_files, cached = read_json("scale", "passes"), read_json("scale", "cached passes")
    num = sum(name.startswith("pass ") for name in from_files)
    num_cached = sum(name.startswith("pass ") for name in cached)
    rows = []
    for title, found, first, last in (
        ("from files", from_files, 1, num),
        ("from the cache, which the first one writes", cached, 1, num),
        ("from the cache", cached, num + 1, num_cached),
    ):
        memory = [mb for number in range(first, last + 1) for mb in found[f"pass {number}"]["memory_mb"]]
        rows.append([f"{title}: pass {first} to {last}", span(memory)])
    head = f"{from_files['files']:,} files, {from_files['jets']:,} jets"
    return table([head, "memory, MB"], rows)


# --- simulation, evaluation, explanation, ONNX files --------------------------------------------------------


def simulation_speed() -> str:
    """Return the speed of simulation, class by class."""
    found = read_json("simulate")
    stages = {"detector": "detector", "jets": "jets", "labels and branches": "labels", "file": "file"}
    titles = ["class", "Pythia alone, events/s", "partt, events/s", "ratio", "jets/s", "events dropped early"]
    titles += ["jets lost with them", *(f"{title}, ms" for title in stages.values())]
    rows = []
    for label, one in found.items():
        rate = 1000 / one["whole chain"]
        rows.append(
            [
                label,
                count(1000 / one["Pythia alone"]),
                count(rate),
                ratio(one["ratio"]),
                f"{rate * one['jets per event']:.1f}",
                f"{percent(one['events dropped early'])} %",
                f"{one['of them dropped early']} of {one['events with a jet']}",
                *(f"{one[stage]:.2f}" for stage in stages),
            ]
        )
    extras = []
    for extra in ("vertices", "generator"):
        added = span((one[f"--extra {extra}, fraction"] for one in found.values()), percent)
        extras.append(f"`--extra {extra}` adds {added} %")
    return (
        f"{table(titles, rows)}\nThe ratio is {mean(one['ratio'] for one in found.values()):.2f} on average. "
        f"Depending on the class, {' and '.join(extras)} of the CPU time.\n"
    )


def evaluation_cost() -> str:
    """Return the sentence on time and memory of a large evaluation."""
    found = read_json("evaluate")
    scores = 4 * found["jets"] * found["classes"] / 1e6
    return (
        f"{found['jets']:,} jets of {found['classes']} classes with three observers take "
        f"{count(found['cpu_seconds'])} s of CPU time ({count(found['seconds'])} s by the clock) and "
        f"{count(found['peak_megabytes'])} MB at peak, report included. "
        f"Scores are kept as float32, 4 bytes each: {count(scores)} MB of them.\n"
    )


def explanation_cost() -> str:
    """Return the sentence on time and memory of an explanation."""
    found = read_json("explain")
    return (
        f"{found['jets']:,} jets with `{found['tagger']}` take {count(found['wall_seconds'])} s by the clock "
        f"({count(found['cpu_seconds'])} s of CPU time; "
        f"{found['cores']} cores with a load of {found['load_average'][0]:.1f}, this process included) and"
        f" {found['peak_memory_mb'] / 1000:.1f} GB of memory, page and figures included; the page has "
        f"{found['page_mb']:.1f} MB. {len(found['importances'])} changes of the inputs were scored.\n"
    )


def export_speed() -> str:
    """Return jets/s of exported files, by batch size."""
    measured = read_json("export")
    largest = measured.pop("largest difference")
    rates: dict[str, dict[str, float]] = {}
    for key, rate in medians(measured).items():
        name, _, batch = key.rpartition(", ")
        rates.setdefault(name, {})[batch] = rate
    names = {
        "partt, raw": "raw",
        "partt, standardised": "standardised",
        "partt, standardised, all pairs": "standardised, every pair computed twice",
        "weaver-core": "weaver-core",
    }
    rows = [[title, *(count(rate) for rate in rates[name].values())] for name, title in names.items()]
    factors = (rates["partt, raw"][batch] / theirs for batch, theirs in rates["weaver-core"].items())
    rows.append(["raw / weaver-core", *(ratio(factor) for factor in factors)])
    num = span(len(values) for values in measured.values())
    return (
        f"{table(['jets/s', *rates['weaver-core']], rows)}\n"
        f"Medians of {num} measurements, in turns; scores agree within {largest:.0e}.\n"
    )


MADE: dict[str, Text] = {
    "inference speed": partial(network_speed, "inference"),
    "training step speed": partial(network_speed, "training", ranges=True),
    "inference speed with vertices": partial(network_speed, "vertices_inference"),
    "training step speed with vertices": partial(network_speed, "vertices_training", ranges=True),
    "inference speed of slim_s": partial(network_speed, "slim_inference"),
    "memory of a training step": training_memory,
    "inference speed by size": network_scaling,
    "training speed": partial(training_speed, "training", "cpu", "wall"),
    "training speed with two threads": partial(training_speed, "training_two_threads", "wall"),
    "several cores": partial(several_cores, "training_processes"),
    "several cores, smaller batches": partial(several_cores, "training_processes_128"),
    "memory of a training": memory_of_steps,
    "prediction speed": prediction_speed,
    "prediction beside the network": prediction_beside_network,
    "prediction memory": prediction_memory,
    "gain over weaver": gain_over_weaver,
    "reading speed": reading_speed,
    "reading speed with vertices": reading_vertices,
    "reading a large sample": large_sample,
    "whole passes": whole_passes,
    "simulation speed": simulation_speed,
    "evaluation cost": evaluation_cost,
    "explanation cost": explanation_cost,
    "export speed": export_speed,
}
TEXTS = {name: if_measured(text) for name, text in MADE.items()}
