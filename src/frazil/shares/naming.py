"""How values of a record name its table: where the values come from, and the template that makes the name of them.

Frozen and small: the pipeline file makes them, tasks get them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from frazil.errors import SpecError

SourceKind = Literal["field", "header", "topic", "capture"]
_VARIABLE = re.compile(r"\$\{([^}]*)\}|\$([0-9]+)")
_REMEDY = 'name its tables with values in `${…}`, such as `to: "shop.${type}"`'


@dataclass(frozen=True)
class ValueSource:
    """Where a value of a record comes from."""

    #: A field of the record's value, a header, the topic's name, or a group of the expression that selects the topic.
    kind: SourceKind
    #: The path of the field; the name of the header, or the number of the group, alone; empty for the topic.
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Template:
    """The name of a table, with values in it."""

    #: The texts around the values, one more than there are values.
    texts: tuple[str, ...]
    #: The values.
    sources: tuple[ValueSource, ...]

    def fill(self, values: Sequence[str]) -> str:
        """Returns the name with these values."""
        return self.texts[0] + "".join(value + text for value, text in zip(values, self.texts[1:], strict=True))

    def may_make(self, name: str) -> bool:
        """Whether the name is the template with any values."""
        return self._names.fullmatch(name) is not None

    @cached_property
    def _names(self) -> re.Pattern[str]:
        return re.compile(".+".join(map(re.escape, self.texts)), re.DOTALL)


def parse_source(text: str) -> ValueSource:
    """Returns the source that the pipeline file names: `topic`, `header.NAME`, or the path of a field.

    Raises: SpecError where it is none of them.
    """
    if text == "topic":
        return ValueSource("topic")
    name = text.removeprefix("header.")
    if name != text and name:
        return ValueSource("header", (name,))
    path = tuple(text.split("."))
    if not all(path) or any("*" in part for part in path):
        remedy = "write the path of a field, `header.NAME` or `topic`"
        raise SpecError(f"`{text}` is not a value of a record", remedy=remedy)
    return ValueSource("field", path)


def parse_template(text: str) -> Template:
    """Returns the template that the pipeline file has under `to`.

    Raises: SpecError where it has no value, or names one wrongly.
    """
    texts, sources, end = [], [], 0
    for match in _VARIABLE.finditer(text):
        texts.append(text[end : match.start()])
        name, group = match.groups()
        sources.append(ValueSource("capture", (group,)) if name is None else parse_source(name))
        end = match.end()
    if not sources:
        raise SpecError(f"`to: {text}` makes one table of all records", remedy=_REMEDY)
    texts.append(text[end:])
    if "$" in "".join(texts):
        raise SpecError(f"`to: {text}` has a `$` that belongs to no value", remedy=_REMEDY)
    if "." not in texts[0][1:]:
        raise SpecError(f"`to: {text}` begins with no namespace", remedy=f"write `to: <namespace>.{text}`")
    return Template(tuple(texts), tuple(sources))
