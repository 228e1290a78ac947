"""Run the notebook of the tutorial, and store what its cells show: python docs/tutorial/run_notebook.py."""

import tempfile
from pathlib import Path

import nbclient
import nbformat

NOTEBOOK = Path(__file__).parent / "notebook.ipynb"


def main() -> None:
    """Run it in an empty folder."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=600, resources=resources, record_timing=False).execute()
    notebook.metadata.pop("language_info", None)  # the version of this Python is no news
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
