"""Environment of a run: versions, machine, git state."""

import datetime as dt
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import partt

PACKAGES = ("torch", "numpy", "uproot", "awkward", "pytorch-optimizer", "weaver-core")


def describe_environment(device: torch.device, num_processes: int) -> dict[str, Any]:
    """Return what may matter for reproducing a result."""
    return {
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "processes": num_processes,
        "versions": {
            "python": platform.python_version(),
            "partt": partt.__version__,
            **{package: _version(package) for package in PACKAGES},
        },
        "git": {"partt": git_state(Path(partt.__file__).parent), "working_folder": git_state(Path.cwd())},
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit, and whether files differ from it; None outside a repository."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": bool(changed)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", "-C", str(folder), *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
