"""Types that the configs of networks share; the bounds are far above any network that fits into memory."""

from typing import Annotated

from pydantic import Field

MAX_LAYERS = 256
CLASSES = "classes"  # name of the head whose outputs are the logits of the classes

Probability = Annotated[float, Field(ge=0, lt=1)]
Width = Annotated[int, Field(ge=1, le=65_536)]
NumLayers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
Widths = Annotated[tuple[Width, ...], Field(strict=False, max_length=MAX_LAYERS)]  # YAML has no tuples
