"""Errors for users; each class has its own exit code.

A message says what is wrong, where (file, tree, branch, entry, config key) and how to fix it. Any other
exception is a bug and exits with 1. No message contains passwords or tokens of URLs, or characters that
control a terminal: names in files may have any.
"""

import re

# scheme, user and password, host and path, query; closing punctuation belongs to the text around the URL
_URL = re.compile(
    r"([a-z][a-z0-9+.-]*://)(?:[^/\s'\"]*@)?([^\s?'\"]*)(?:\?[^\s'\"]*?(?=[;,):]*(?:[\s'\"]|$)))?",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Remove users, passwords and queries, which may hold tokens, from all URLs in a text."""
    return _URL.sub(r"\1\2", text)


class ParttError(Exception):
    """An error with a message for the user; the command line prints it without a traceback."""

    exit_code = 1

    def __str__(self) -> str:
        """Return the message, without secrets of URLs; characters that cannot be printed are escaped."""
        text = without_secrets(super().__str__())
        return "".join(sign if sign.isprintable() or sign == "\n" else repr(sign)[1:-1] for sign in text)


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
