"""Standardisation of features: fit centre and scale to some jets, apply them, clip.

Axes: T particles.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from partt.data.config.data_config import DataConfig, InputVariable
from partt.data.files.tables import FileInfo, bad_files_skipped
from partt.data.jagged import Array, Jagged
from partt.data.variables import read_variables, select
from partt.errors import DataError

# More jets hardly improve percentiles, and take more memory.
MAX_JETS_TO_FIT = 500_000


def standardize(contents: Array, variable: InputVariable, out: Array) -> None:
    """Write clip((x - subtract_by) * multiply_by) to `out`, in its precision; raw variables unchanged."""
    with np.errstate(over="ignore", invalid="ignore"):
        if variable.subtract_by is None:
            out[...] = contents
        else:
            # Converted before anything is computed: the rounding is that of `out`.
            np.subtract(contents.astype(out.dtype, copy=False), out.dtype.type(variable.subtract_by), out=out)
            out *= out.dtype.type(variable.multiply_by)
            np.clip(out, variable.clip_min, variable.clip_max, out=out)


def variables_to_fit(config: DataConfig) -> list[InputVariable]:
    """Return the variables whose centre and scale are still to be fitted."""
    return [variable for group in config.groups for variable in group.variables if variable.to_fit]


def fit_standardization(
    config: DataConfig, files: Sequence[FileInfo], *, skip_bad: bool = False
) -> DataConfig:
    """Return the config with fitted centre and scale of its `auto` variables.

    Centre: median. Scale: 1 / max(p84 - p50, p50 - p16), or 1 if that is 0. The fit uses the selected jets of
    the first `data_fraction` of each file's entries. NaN counts as 0. With `skip_bad`, files that cannot be
    read do not count; whoever reads them later says so.
    """
    to_fit = variables_to_fit(config)
    if not to_fit:
        return config
    num_entries = sum(file.num_entries for file in files)
    fraction = min(config.preprocess.data_fraction, MAX_JETS_TO_FIT / max(num_entries, 1))
    values: dict[str, list[Array]] = {variable.name: [] for variable in to_fit}
    selection = config.selection_for("train")
    names = {*values, *(selection.names if selection else ())}
    for file in files:
        stop = min(max(1, int(fraction * file.num_entries)), file.num_entries)
        if stop == 0:
            continue
        with bad_files_skipped(skip_bad):
            variables = select(config, read_variables(config, names, file, 0, stop), "train")
            columns = {name: variables[name] for name in values}  # all of them, or none
            for name, column in columns.items():
                values[name].append(column.contents if isinstance(column, Jagged) else column)
    return config.with_parameters(
        {variable.name: _fit(variable, values[variable.name]) for variable in to_fit}
    )


def _fit(variable: InputVariable, values: Sequence[Array]) -> InputVariable:
    joined = np.concatenate(values) if values else np.empty(0)
    if len(joined) == 0:
        raise DataError(
            f"cannot fit the scale of {variable.name}: no jet at the start of the files passes the selection"
        )
    low, centre, high = np.percentile(np.where(np.isnan(joined), 0, joined), [16, 50, 84])
    width = max(high - centre, centre - low)
    if not (np.isfinite(centre) and np.isfinite(width)):
        raise DataError(
            f"cannot fit the scale of {variable.name}: too many values are infinite; check its formula"
        )
    scale = 1 / width if width > 0 else 1
    return replace(variable, subtract_by=float(centre), multiply_by=float(scale), to_fit=False)
