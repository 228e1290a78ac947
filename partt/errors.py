"""The errors that a user can meet; each class has its own exit code.

A message says what is wrong, where (file, tree, branch, entry, config key) and what would fix it.
Everything else that escapes is a bug and exits with 1.
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
    """A computation left the finite numbers."""

    exit_code = 4


class OutputError(ParttError):
    """Something could not be written: no permission, disk full."""

    exit_code = 5
