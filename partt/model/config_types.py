"""Types that the configs of networks share."""

from typing import Annotated

from pydantic import Field, PositiveInt

Probability = Annotated[float, Field(ge=0, lt=1)]
Widths = Annotated[tuple[PositiveInt, ...], Field(strict=False)]  # YAML has lists, not tuples
