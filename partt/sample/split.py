"""Split the bundled sample into training and test files."""

from pathlib import Path

from partt.data.files.tables import inspect_file, read_columns, write_table
from partt.errors import ConfigError
from partt.sample import sample_files


def split_sample(out: Path, test_fraction: float) -> tuple[int, int]:
    """Write the last entries of each file to `out`/test, the rest to `out`/train; return the numbers of jets.

    Existing files are kept if they have the right number of entries.
    """
    num_jets = {"train": 0, "test": 0}
    for path in sample_files():
        info = inspect_file(str(path))
        first_test = round(info.num_entries * (1 - test_fraction))
        for part, start, stop in (("train", 0, first_test), ("test", first_test, info.num_entries)):
            target = out / part / path.name
            if not target.exists():
                write_table(target, read_columns(str(path), list(info.branches), start, stop))
            elif inspect_file(str(target)).num_entries != stop - start:
                raise ConfigError(
                    f"{target} already exists, and is not from the sample: choose another --out"
                )
            num_jets[part] += stop - start
    return num_jets["train"], num_jets["test"]
