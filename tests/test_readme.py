"""README shows the tree as it is."""

import re

from conftest import ROOT


def test_the_tree_in_readme_names_every_folder():
    fenced = re.findall(r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (tree,) = (block for block in fenced if block.startswith("partt/"))
    listed = {line.split()[0] for line in tree.splitlines()}
    packages = {f"{path.parent.name}/" for path in (ROOT / "partt").glob("*/__init__.py")}
    assert listed >= packages | {"data_configs/", "training/", "benchmarks/", "tests/", "docs/"}
    assert all((ROOT / name).exists() or (ROOT / "partt" / name).exists() for name in listed)
