"""Numbers and arrays as JSON text."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def json_text(content: Any) -> str:
    """Return content as JSON; arrays become lists, NaN and infinity null."""
    return json.dumps(_plain(content), indent=1, allow_nan=False) + "\n"


def _plain(content: Any) -> Any:
    """Turn arrays into lists, and NaN and infinity, which JSON does not have, into null."""
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, np.ndarray | np.generic):
        return _plain(content.tolist())
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content
