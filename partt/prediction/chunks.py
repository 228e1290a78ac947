"""A range of entries of a file -> Scores: what every engine computes."""

import numpy as np
import numpy.typing as npt

from partt.data.config.data_config import DataConfig
from partt.data.files.access import without_secrets
from partt.data.files.tables import read_columns
from partt.data.jagged import Column, Jagged, Table, take
from partt.data.variables import Variables, labels_of, names_for_index, passes_selection, read_variables
from partt.errors import ParttError
from partt.prediction.job import ChunkTask, InputPlan, Options
from partt.scores.scores import Scores
from partt.tagger.any_tagger import AnyTagger
from partt.tagger.inference import Each


def score_chunk(tagger: AnyTagger, options: Options, task: ChunkTask, each: Each = map) -> Scores:
    """Read and score the entries of a chunk; `each` computes batches like `map`."""
    config, plan = tagger.data_config, task.plan
    variables = read_variables(config, _names(config, plan), plan.file, task.start, task.stop)
    kept = _read_kept(config, plan, variables, task)
    num_removed = 0
    if options.apply_selection:
        passes = passes_selection(config, variables, "predict")
        num_removed, passed = int(np.count_nonzero(~passes)), np.flatnonzero(passes)
        variables = variables.take(passed)
        kept = {name: take(column, passed) for name, column in kept.items()}
    tagged = tagger.tag(variables, with_embeddings=options.embeddings, each=each)
    carried = {name: _per_entry(variables[name], variables.num_jets) for name in plan.observers}
    return Scores(
        class_names=config.class_names,
        probabilities=tagged.probabilities,
        labels=labels_of(config, variables, strict=False) if plan.has_labels else None,
        weights=_weights(plan, variables),
        observers={**carried, **kept},
        selected=tagged.selected,
        bad=tagged.bad,
        source_file=without_secrets(plan.file.url),
        source_entry=variables.entries,
        tagger_hash=tagger.sha256,
        embeddings=tagged.embeddings,
        num_removed=num_removed,
    )


def attempt_chunk(
    tagger: AnyTagger, options: Options, task: ChunkTask, each: Each = map
) -> Scores | ParttError:
    """Score a chunk; an error is returned, not raised: what to do about a bad file is decided elsewhere."""
    try:
        return score_chunk(tagger, options, task, each)
    except ParttError as error:
        return error


def _names(config: DataConfig, plan: InputPlan) -> set[str]:
    names = {*config.input_names, *plan.observers, *plan.weight_branches} | names_for_index(config, "predict")
    return names | set(config.label_variables) if plan.has_labels else names


def _read_kept(config: DataConfig, plan: InputPlan, variables: Variables, task: ChunkTask) -> Table:
    """Return the branches to keep; those that were read already are not read again."""
    known = {} if config.branch_magic else variables.branches
    missing = [name for name in plan.keep if name not in known]
    file = plan.file
    columns = (
        read_columns(file.url, missing, task.start, task.stop, tree=file.tree or None, identity=file.identity)
        if missing
        else {}
    )
    return {name: known[name] if name in known else columns[name] for name in plan.keep}


def _per_entry(column: Column, num_entries: int) -> Column:
    """Return a column with a value per entry, also of a formula that gives one number for all."""
    return column if isinstance(column, Jagged) or np.ndim(column) else np.full(num_entries, column)


def _weights(plan: InputPlan, variables: Variables) -> npt.NDArray[np.float32]:
    weights = np.ones(variables.num_jets, dtype=np.float32)
    for name in plan.weight_branches:
        weights = weights * variables.per_jet(name).astype(np.float32)
    return weights
