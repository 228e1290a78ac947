"""The link from a report to the explanation of the same tagger, if there is one."""

import json
import os
from pathlib import Path
from urllib.parse import quote

EXPLANATION_FOLDER = "explanation"  # in a run folder
EXPLANATION_PAGE = "explanation.html"
EXPLANATION_NUMBERS = "explanation.json"


def explanation_link(explanation: Path, report: Path, tagger_sha256: object) -> str | None:
    """Return the address of an explanation's page, relative to a report; None if it is of another tagger."""
    try:
        explained = json.loads((explanation / EXPLANATION_NUMBERS).read_bytes())["tagger"]["sha256"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    if not explained or explained != tagger_sha256 or not (explanation / EXPLANATION_PAGE).is_file():
        return None
    return quote(os.path.relpath(explanation / EXPLANATION_PAGE, report))
