"""A small sample of simulated jets of all ten classes, for tests, docs and the demo."""

from importlib import resources
from pathlib import Path


def sample_files() -> list[Path]:
    """Return the ROOT files of the bundled sample, one for each class."""
    return sorted(Path(str(resources.files("partt"))).joinpath("sample").glob("*.root"))
