"""The link from a report to the explanation of the same tagger, if there is one."""

import os
from pathlib import Path
from urllib.parse import quote

from partt.errors import DataError
from partt.regular_files import read_json

EXPLANATION_FOLDER = "explanation"  # in a run folder
EXPLANATION_PAGE = "explanation.html"
EXPLANATION_NUMBERS = "explanation.json"


def explanation_link(explanation: Path, report: Path, tagger_sha256: object) -> str | None:
    """Return the address of an explanation's page, relative to a report; None if it is of another tagger."""
    try:
        explained = read_json(explanation / EXPLANATION_NUMBERS)["tagger"]["sha256"]
    except (DataError, LookupError, TypeError):
        return None
    if not explained or explained != tagger_sha256 or not (explanation / EXPLANATION_PAGE).is_file():
        return None
    return quote(os.path.relpath(explanation / EXPLANATION_PAGE, report))
