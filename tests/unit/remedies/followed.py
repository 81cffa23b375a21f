"""Which test follows each remedy that is not of the pipeline file alone, and which remedies only people can follow.

`followed.txt` has the remedies below the tests, and `by_people.txt` below the reasons, as `docs.remedies` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from docs.remedies import Remedy


def _read(name: str) -> Mapping[str, str]:
    """By remedy, the line that it is indented below."""
    listed: dict[str, str] = {}
    head = ""
    for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()[2:]:
        if line.startswith("    "):
            assert line[4:] not in listed, f"{name} has it twice: {line[4:]}"
            listed[line[4:]] = head
        else:
            head = line
    return listed


FOLLOWED = _read("followed.txt")
"""The test that shows each message, does what it reports and sees it work."""
BY_PEOPLE = _read("by_people.txt")
"""Why no test follows a remedy."""


def is_told(text: str, shown: str) -> bool:
    """Whether a remedy that was shown is this one."""
    return Remedy("", text).matches(shown)
