"""`partt predict` as a function: tagger + files -> outputs with scores, and predict.json."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from partt.data.config.input_map import InputMap, asked_input_map
from partt.data.files.lists import expand_files
from partt.data.files.tables import AuthenticationError
from partt.data.jet_files import count_jets
from partt.data.reading.jet_source import BadFile, BadFilePolicy, check_losses
from partt.data.training_domain import Domain, Excess, add_up, warnings_of
from partt.errors import ConfigError, DataError, ParttError, without_secrets
from partt.jobs.notebook_bar import notebook_progress
from partt.jobs.output_folder import writing_to
from partt.jobs.progress import Progress
from partt.jobs.stop_signals import StoppedError
from partt.model.tasks import Task
from partt.prediction.chunks import ChunkTasks
from partt.prediction.engines import Results, score_here, score_on_cluster
from partt.prediction.opened_files import OpenedFile, open_inputs
from partt.prediction.options import Options
from partt.prediction.outputs import SUFFIXES, is_file_name, output_paths
from partt.prediction.predict_json import (
    BadInput,
    OutputEntry,
    PredictSummary,
    check_summary,
    versions,
    write_summary,
)
from partt.prediction.provenance import finished_output, origin_of
from partt.prediction.writing import write_output
from partt.scores.discriminants import parse_discriminant
from partt.scores.origin import Balance, Origin, Provenance, sum_of
from partt.scores.scores import Scores
from partt.tagger.loading import load_tagger
from partt.tagger.tagger import Tagger

Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Output:
    """The scores of one input."""

    path: Path
    input: str
    rows: int
    balance: Balance
    was_complete: bool  # before this run


@dataclass(frozen=True)
class PredictResult:
    """Outputs and bookkeeping of a prediction."""

    folder: Path  # of predict.json
    outputs: tuple[Output, ...]
    bad_files: tuple[BadFile, ...]
    left_out: tuple[str, ...]  # columns that could not be copied, and why
    regressions: tuple[Task, ...]  # of the tagger
    seconds: float
    stopped: bool  # before the end
    outside: tuple[str, ...] = ()  # variables of this run's jets that leave the training domain, with numbers

    def __repr__(self) -> str:
        """Return what a prompt shows: how many jets have scores, and where these are."""
        balance = self.balance
        notes = [
            f"{balance.scored:,} of {balance.entries:,} jets scored",
            f"{len(self.outputs)} outputs in {self.folder}",
            *([f"{len(self.bad_files)} files skipped"] if self.bad_files else []),
            *(["stopped early"] if self.stopped else []),
        ]
        return f"<PredictResult: {', '.join(notes)}>"

    @property
    def balance(self) -> Balance:
        """Where the entries of all inputs went."""
        return sum_of([output.balance for output in self.outputs])

    @property
    def jets_per_second(self) -> float | None:
        """Entries per second of this run, reading and writing included; None if there was nothing to do."""
        done = sum(output.balance.entries for output in self.outputs if not output.was_complete)
        return done / self.seconds if done else None


def predict(
    tagger: Tagger | Paths,
    files: Paths,
    out: str | Path,
    *,
    discriminants: Sequence[str] = (),
    keep: Sequence[str] = (),
    input: InputMap | str | None = None,  # noqa: A002
    tree: str | None = None,
    embeddings: bool = False,
    apply_selection: bool = False,
    overwrite: bool = False,
    format: Literal["root", "parquet"] | None = None,  # noqa: A002
    on_bad_file: Literal["error", "skip"] = "error",
    max_bad_fraction: float = 0.05,
    num_threads: int | None = None,
    num_workers: int | None = None,
    scheduler: str | None = None,
    opening: Progress | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> PredictResult:
    """Write the scores of every entry of `files`, in order: one output per file, and predict.json.

    Several taggers are an ensemble. `out` is a folder, or a .root or .parquet file for a single input.
    Complete outputs of the same input, tagger and options are kept; any other file is replaced only with
    `overwrite`. Jets that are not selected, or bad, get NaN. `input`: an input map, its name or path, for
    files of events, whose outputs have a row per event and lists of scores; "none": the files have one jet
    per entry (default: as in the tagger's data config). `tree`: that of files not given as FILE.root:TREE.
    `apply_selection` leaves out those that are not selected. A tagger file runs in torch, an exported one
    (.onnx) in onnxruntime. The network runs on the device that holds it, on `num_threads` threads (default:
    as many as torch uses), or on a dask cluster: that of `scheduler`, or `num_workers` processes on this
    machine.
    """
    tagger = (tagger if isinstance(tagger, Tagger) else load_tagger(tagger)).with_hash()
    options = Options(
        tuple(parse_discriminant(text, tagger.class_names) for text in discriminants),
        tuple(keep),
        embeddings,
        apply_selection,
        _format(out := Path(out), format),
        asked_input_map(input),
    )
    if embeddings:
        tagger.require_embeddings()  # before anything is read
    else:
        tagger.require_predictions()
    policy = BadFilePolicy(on_bad_file == "skip", max_bad_fraction)
    inputs = expand_files([str(file) for file in ([files] if isinstance(files, str | Path) else files)], tree)
    opened = open_inputs(inputs, tagger, options, policy, opening)
    paths = output_paths([file.info.url for file in opened.files], out, SUFFIXES[options.format])
    folder = out.parent if is_file_name(out) else out

    started = time.monotonic()
    with writing_to(folder, paths):
        check_summary(folder, overwrite=overwrite)
        todo, outputs = _missing_and_complete(tagger, options, opened.files, paths, overwrite=overwrite)
        made_with = versions(tagger.library)
        bad_files = list(opened.bad_files)
        tasks = ChunkTasks([item.file for item in todo])
        engine = _engine(num_threads, num_workers, scheduler)
        results = engine(
            tagger,
            options,
            tasks,
            count=_counter(
                sum(count_jets(item.file.info) for item in todo),
                progress or notebook_progress("predicting", "jets"),
            ),
            should_stop=should_stop,
        )
        stopped = False
        watch = _DomainWatch(tagger.domain)
        with closing(results):
            for number, item in enumerate(todo):
                try:
                    scores = _scores_of(number, len(item.file.chunks), results)
                    provenance = write_output(
                        item.path,
                        item.file,
                        item.origin,
                        options,
                        watch.passing(scores),
                        tasks=tagger.tasks,
                        network=tagger.network_name,
                        tagger_name=tagger.name,
                        versions=made_with,
                    )
                except StoppedError:
                    stopped = True
                    break
                except AuthenticationError:
                    raise
                except DataError as error:
                    if not policy.skip:
                        raise
                    tasks.drop_file(number)
                    bad_files.append(BadFile(item.file.info.url, str(error)))
                    bad_urls = {file.url for file in bad_files}
                    good = [
                        (file.sample, file.info) for file in opened.files if file.info.url not in bad_urls
                    ]
                    check_losses(inputs, good, bad_files, policy)
                else:
                    outputs.append(_output(item, provenance, was_complete=False))
    seconds = time.monotonic() - started
    position = {path: number for number, path in enumerate(paths)}
    in_order = sorted(outputs, key=lambda output: position[output.path])
    result = PredictResult(
        folder,
        tuple(in_order),
        tuple(bad_files),
        opened.left_out,
        tagger.regressions,
        seconds,
        stopped,
        watch.warnings(),
    )
    if not stopped:
        write_summary(folder, _summary(result, tagger, options))
    return result


@dataclass(frozen=True)
class _Todo:
    file: OpenedFile
    path: Path
    origin: Origin


def _missing_and_complete(
    tagger: Tagger,
    options: Options,
    files: Sequence[OpenedFile],
    paths: Sequence[Path],
    *,
    overwrite: bool,
) -> tuple[list[_Todo], list[Output]]:
    """Return the outputs that must be made, and those that are complete."""
    todo: list[_Todo] = []
    complete: list[Output] = []
    for file, path in zip(files, paths, strict=True):
        item = _Todo(file, path, origin_of(file, tagger, options))
        provenance = finished_output(path, item.origin, tagger.network_name, overwrite=overwrite)
        if provenance is None:
            todo.append(item)
        else:
            complete.append(_output(item, provenance, was_complete=True))
    return todo, complete


def _output(item: _Todo, provenance: Provenance, *, was_complete: bool) -> Output:
    return Output(item.path, item.file.info.url, provenance.rows, provenance.balance, was_complete)


def _scores_of(number: int, num_chunks: int, results: Results) -> Iterator[Scores]:
    """Yield the scores of one file; remaining results of dropped files before it are skipped."""
    for _ in range(num_chunks):
        task, result = next(results)
        while task.number < number:
            task, result = next(results)
        if isinstance(result, ParttError):
            raise result
        yield result


class _DomainWatch:
    """Adds up how many values of the jets that pass are outside of the training domain."""

    def __init__(self, domain: Domain | None) -> None:
        self.domain = domain
        self.outside: dict[str, Excess] = {}

    def passing(self, chunks: Iterator[Scores]) -> Iterator[Scores]:
        for scores in chunks:
            self.outside = add_up(self.outside, scores.outside)
            yield scores

    def warnings(self) -> tuple[str, ...]:
        return () if self.domain is None else tuple(warnings_of(self.domain, self.outside))


def _engine(
    num_threads: int | None, num_workers: int | None, scheduler: str | None
) -> Callable[..., Results]:
    if scheduler is None and num_workers is None:
        return partial(score_here, num_threads=num_threads or torch.get_num_threads())
    if scheduler is not None and num_workers is not None:
        raise ConfigError("give either a dask scheduler or a number of workers on this machine, not both")
    return partial(score_on_cluster, scheduler=scheduler, num_workers=num_workers or 1)


def _counter(total: int, progress: Progress) -> Callable[[float], None]:
    """Return a function that adds up the entries done and reports them; it is thread-safe."""
    done = 0.0
    lock = threading.Lock()

    def count(num_entries: float) -> None:
        nonlocal done
        with lock:
            done += num_entries
            progress(min(round(done), total), total)

    return count


def _format(out: Path, asked: Literal["root", "parquet"] | None) -> Literal["root", "parquet"]:
    if not is_file_name(out):
        return asked or "root"
    named: Literal["root", "parquet"] = "root" if out.suffix == SUFFIXES["root"] else "parquet"
    if asked not in {None, named}:
        raise ConfigError(f"--out {out} is not the name of a {asked} file")
    return named


def _summary(result: PredictResult, tagger: Tagger, options: Options) -> PredictSummary:
    return PredictSummary(
        tagger_sha256=tagger.sha256,
        network=tagger.network_name,
        class_names=list(tagger.class_names),
        regressions=tagger.regressions,
        options=options.describe(),
        versions=versions(tagger.library),
        balance=result.balance,
        jets_per_second=result.jets_per_second,
        outputs=[
            OutputEntry(
                output=os.path.relpath(output.path, result.folder),
                input=without_secrets(output.input),
                rows=output.rows,
                balance=output.balance,
            )
            for output in result.outputs
        ],
        bad_files=[
            BadInput(input=without_secrets(file.url), reason=without_secrets(file.reason))
            for file in result.bad_files
        ],
        left_out=list(result.left_out),
    )
