"""Lists of the files of public datasets: names, addresses, checksums, what to do with them next."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from partt.config import Record, load_record, shipped_file
from partt.errors import ConfigError

FOLDER = "public_datasets"  # of the repository, and of what the wheel carries


def _plain_name(name: str) -> str:
    if name in {".", ".."} or Path(name).name != name or not name.isprintable():
        raise ValueError("must be the name of a file or folder, without a path")
    return name


def _web_address(address: str) -> str:
    if not address.startswith(("https://", "http://")) or not address.endswith("/"):
        raise ValueError("must be a web address that ends in /: names of files follow it")
    return address


PlainName = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_plain_name)]


class PublicFile(Record):
    """A file of a dataset."""

    name: PlainName
    """The last part of its address; the name that it gets, unless it is unpacked"""
    part: PlainName
    """What `--only` asks for: train, val or test"""
    checksum: str = Field(pattern="^(md5:[0-9a-f]{32}|sha256:[0-9a-f]{64})$")
    """As published: md5:... or sha256:..."""
    size: int | None = Field(default=None, gt=0)
    """Bytes; if not known, what the server announces"""
    unpack_to: PlainName | None = None
    """For tar archives: the folder for the files in it"""


class PublicDataset(Record):
    """A list of files, and what follows their download."""

    title: str
    """Its name in messages"""
    address: Annotated[str, AfterValidator(_web_address)]
    """Of the folder of all files, with a / at its end"""
    data_config: str
    """The data config to check the files with"""
    convert: str | None = None
    """The format for `partt convert`; none if the files can be read as they are"""
    files: tuple[PublicFile, ...] = Field(min_length=1, strict=False)
    """The files, in the order of their download"""

    def url(self, file: PublicFile) -> str:
        """Return the address of a file."""
        return self.address + file.name

    def chosen(self, only: Sequence[str]) -> tuple[PublicFile, ...]:
        """Return the files of the parts, names and globs in `only`; all files if there are none."""
        for word in only:
            if not any(_is_asked_for(file, word) for file in self.files):
                parts = ", ".join(dict.fromkeys(file.part for file in self.files))
                raise ConfigError(
                    f"{self.title} has no {word!r}; --only takes parts ({parts}) and names of files, such as "
                    f"{self.files[0].name}"
                )
        return tuple(
            file for file in self.files if not only or any(_is_asked_for(file, word) for word in only)
        )


def _is_asked_for(file: PublicFile, word: str) -> bool:
    return word == file.part or fnmatchcase(file.name, word)


def load_public_dataset(name_or_path: str) -> PublicDataset:
    """Read a list by path, or by the name of one that partt ships."""
    path = shipped_file(FOLDER, name_or_path)
    dataset = load_record(path, PublicDataset)
    names = [file.name for file in dataset.files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{path}: files: {twice} is listed twice")
    return dataset
