"""Progress callbacks of long jobs."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]  # done, in total
