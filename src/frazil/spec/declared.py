"""What all models of a pipeline file have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

SecretText = Annotated[str, Field(repr=False, exclude=True)]
SecretWord = Annotated[str | None, Field(repr=False, exclude=True)]
SecretStrings = Annotated[dict[str, str], Field(repr=False, exclude=True)]
"""What may be a secret is neither shown by `repr` nor serialised."""


class Declared(BaseModel):
    """A section of a pipeline file: frozen, with no other keys, whose errors quote no value."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
    )
