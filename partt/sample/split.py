"""Split the bundled sample into training and test files."""

from pathlib import Path

from partt.data.files.tables import inspect_file, read_columns, write_table
from partt.errors import ConfigError
from partt.jobs.output_folder import writing_to
from partt.sample import sample_files


def split_sample(out: Path, test_fraction: float) -> tuple[int, int]:
    """Write the last entries of each file to `out`/test, the rest to `out`/train; return the numbers of jets.

    Existing files are kept if they have the right number of entries.
    """
    parts = [_write_part(out / name, test_fraction, is_test=name == "test") for name in ("train", "test")]
    return parts[0], parts[1]


def _write_part(folder: Path, test_fraction: float, *, is_test: bool) -> int:
    """Write the training or the test entries of all files; return the number of jets."""
    num_jets = 0
    with writing_to(folder, [folder / path.name for path in sample_files()]):
        for path in sample_files():
            info, target = inspect_file(str(path)), folder / path.name
            first_test = round(info.num_entries * (1 - test_fraction))
            start, stop = (first_test, info.num_entries) if is_test else (0, first_test)
            if not target.exists():
                write_table(target, read_columns(str(path), list(info.branches), start, stop))
            elif inspect_file(str(target)).num_entries != stop - start:
                raise ConfigError(
                    f"{target} already exists, and is not from the sample: choose another --out"
                )
            num_jets += stop - start
    return num_jets
