"""Imports point one way; light commands stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

PACKAGE = ROOT / "partt"
BASE = {"config", "errors", "atomic_files", "regular_files", "physics", "jet_inputs", "jobs"}
STAGES = {
    *("downloading", "simulation", "conversion", "checking", "training"),
    *("prediction", "evaluation", "explanation", "exporting"),
}
# room of partt -> the other rooms that it may import
ALLOWED = {
    "cli": STAGES | {"pages", "scores", "tagger", "data", "model", "sample"} | BASE,
    **{stage: {"pages", "scores", "tagger", "data", "model"} | BASE for stage in STAGES},
    "pages": {"model"} | BASE,
    "scores": {"data", "model"} | BASE,
    "tagger": {"data", "model"} | BASE,
    "data": BASE,
    "model": BASE,
    "sample": {"data"} | BASE,
    "jobs": {"errors", "atomic_files"},
    "jet_inputs": set(),
    "physics": set(),
    "config": {"errors", "regular_files"},
    "atomic_files": {"errors"},
    "regular_files": {"errors"},
    "errors": set(),
}
# inside data: its groups, from the bottom up
DATA_GROUPS = ("files", "formulas", "config", "", "reading")
MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(path: Path) -> set[str]:
    """Return the dotted names of everything that a module imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    part = part_of(path)
    if part in {"__init__", "__main__"}:
        return
    parts = {name.split(".")[1] for name in imported_names(path) if name.startswith("partt.")}
    assert parts - {part, "__version__"} <= ALLOWED[part]


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "data").rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_the_groups_of_data_stand_on_each_other(path):
    def group(parts):
        return parts[0] if parts[0] in DATA_GROUPS else ""

    own = DATA_GROUPS.index(group(path.relative_to(PACKAGE / "data").parts))
    if path.name == "jagged.py":  # a column: everything is made of it
        return
    for name in imported_names(path):
        if name.startswith("partt.data.") and not name.startswith("partt.data.jagged"):
            assert DATA_GROUPS.index(group(name.split(".")[2:])) <= own, name


def test_no_two_modules_share_a_name():
    """Except a verb of the command line and the function that it calls, and __init__."""
    names = [path.stem for path in MODULES if path.stem != "__init__" and part_of(path) != "cli"]
    assert sorted(names) == sorted(set(names))


def test_no_two_public_classes_share_a_name():
    names = [
        node.name
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_root_modules_open_root_files(path):
    opens = any(name.split(".")[0] == "uproot" for name in imported_names(path))
    assert not opens or (path.parent == PACKAGE / "data" / "files" and path.name.startswith("root_"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_command_line_prints(path):
    if part_of(path) == "cli":
        return
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert not any(isinstance(call.func, ast.Name) and call.func.id in {"print", "input"} for call in calls)
    assert "sys.argv" not in path.read_text()


def test_folders_have_no_utils():
    assert not [path for path in PACKAGE.rglob("*") if "util" in path.name or "helper" in path.name]


@pytest.mark.parametrize("code", ["import partt", "import partt.cli.main; partt.cli.main.main(['--help'])"])
def test_light_commands_do_not_load_torch(code):
    check = f"""
import sys
try:
    {code}
except SystemExit:
    pass
heavy = {{"torch", "awkward", "uproot", "numpy", "pydantic"}} & set(sys.modules)
sys.exit(f"loaded {{heavy}}" if heavy else 0)
"""
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
