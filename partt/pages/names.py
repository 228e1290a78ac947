"""Names that end up in tables, figures and pages: of classes, models and observers."""

from collections.abc import Sequence

from partt.errors import ConfigError, DataError
from partt.model.tasks import Task

MAX_LENGTH = 200  # characters
MAX_CLASSES = 256
MAX_REGRESSIONS = 16
SHOWN = 40  # characters of a long name in a message


def shorten(name: str, length: int = SHOWN) -> str:
    """Cut a long name, for messages and figures."""
    return name if len(name) <= length else f"{name[: length - 1]}…"


def fault_of(name: str) -> str:
    """Return what is wrong with a name, or nothing."""
    if not name:
        return "is empty"
    if len(name) > MAX_LENGTH:
        return f"has {len(name):,} characters; at most {MAX_LENGTH} are possible"
    return "" if name.isprintable() else "has characters that cannot be printed"


def check_class_names(names: Sequence[str]) -> None:
    """Raise an error for names of classes that no table could show, for duplicates, and for too many."""
    if len(names) > MAX_CLASSES:
        raise DataError(f"{len(names):,} classes; at most {MAX_CLASSES} can be evaluated")
    for name in names:
        if fault := fault_of(name):
            raise DataError(f"the class name {shorten(name)!r} {fault}; rename the class")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise DataError(f"two classes are called {shorten(twice)!r}; rename one")


def check_regressions(where: str, tasks: Sequence[Task]) -> None:
    """Raise an error for names of regressions that no table could show, for duplicates, and for too many."""
    if len(tasks) > MAX_REGRESSIONS:
        raise DataError(f"{where}: {len(tasks):,} regressions; at most {MAX_REGRESSIONS} can be evaluated")
    for name in (
        name for task in tasks for name in (task.name, task.target, task.factor_of or "-", task.unit or "-")
    ):
        if fault := fault_of(name):
            raise DataError(f"{where}: a regression is called {shorten(name)!r}, which {fault}")
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{where}: two regressions are called {shorten(twice)!r}")


def check_name(what: str, name: str) -> None:
    """Raise an error for the name of a model or observer that no table could show."""
    if fault := fault_of(name):
        raise ConfigError(f"the name of {what}, {shorten(name)!r}, {fault}")
