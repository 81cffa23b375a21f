"""The keys of a table whose query groups records by windows of their time: which records are late, and what they become."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from frazil.spec.syntax import forms
from frazil.spec.syntax.document import Node, Scalar, Section
from frazil.spec.syntax.keys import Declared, Form, Key, named
from frazil.spec.syntax.problems import LABEL
from frazil.spec.syntax.units import DURATION_PATTERN, duration_text, parse_duration

if TYPE_CHECKING:
    from frazil.spec.syntax.reading import Reading

_DAYS = r"([1-9][0-9]{0,4}) ?d"
_TEXT = {"type": "string", "pattern": f"({DURATION_PATTERN})|(^{_DAYS}$)", "examples": ["7d", "10m"]}


def _parse_after(text: str) -> float:
    days = re.fullmatch(_DAYS, text, re.ASCII)
    return int(days[1]) * 86_400.0 if days is not None else parse_duration(text)


def _after_text(seconds: float) -> str:
    return f"{seconds / 86_400:.0f}d" if seconds % 86_400 == 0 else duration_text(seconds)


class LateSpec(Declared, json_schema_extra={"required": ["after"]}):
    """Which records are late for the window of their time."""

    after_s: Annotated[
        float,
        forms.quantity(_TEXT, _after_text, _parse_after),
        named("after"),
        Key(lack=f"`{LABEL}` does not say after which time records are late", remedy="write `after: 7d`"),
    ]
    """How much less than the greatest time before it in its partition the time of a record may be: days, such as `7d`, or a
    duration. Records that are later change no window."""
    action: Annotated[Literal["drop", "dead_letter"], named("else")] = "drop"
    """What becomes of later records: they are counted as `late`, or are dead letters."""

    @property
    def text(self) -> str:
        """The time as a pipeline file has it."""
        return _after_text(self.after_s)


def _read_late(node: Node, _: Reading) -> Node:
    """Returns the section, which a duration alone stands for too."""
    return Section({"after": node}, node.line, {"after": node.line}) if isinstance(node, Scalar) else node


LATE = Form({"anyOf": [_TEXT, {"$ref": "#/$defs/late"}]}, read=_read_late)
