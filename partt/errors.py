"""Errors for users; each class has its own exit code.

A message says what is wrong, where (file, tree, branch, entry, config key) and how to fix it. Any other
exception is a bug and exits with 1.
"""


class ParttError(Exception):
    """An error with a message for the user; the command line prints it without a traceback."""

    exit_code = 1


class ConfigError(ParttError):
    """The command line, a data config or a recipe is wrong."""

    exit_code = 2


class DataError(ParttError):
    """An input file or its contents are wrong."""

    exit_code = 3


class NumericalError(ParttError):
    """A computation failed: for example, a loss became NaN or infinite."""

    exit_code = 4


class OutputError(ParttError):
    """An output could not be written: no permission, disk full, a worker died."""

    exit_code = 5


def is_utf8(name: str) -> bool:
    """Tell whether a file name is valid UTF-8; others cannot be written to outputs or sent to servers."""
    return not any("\ud800" <= sign <= "\udfff" for sign in name)
