"""How Sphinx builds the site: `make docs`."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

import partt

sys.path.insert(0, str(Path(__file__).parent))
import generated  # it stands beside this file

project = "partt"
author = "The partt developers"
copyright = author  # noqa: A001 - Sphinx's name
version = release = partt.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_heading_anchors = 3
myst_links_external_new_tab = True
highlight_language = "none"  # blocks without a language are commands
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
add_module_names = False

html_theme = "furo"
html_title = f"partt {version}"
html_static_path = ["_static"]
html_css_files = ["partt.css"]
html_copy_source = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """Let pages name what is generated from the code and from measurements."""
    app.connect("source-read", generated.fill_in)
    app.connect("env-get-outdated", generated.pages_to_fill)
