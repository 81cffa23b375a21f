"""Mistakes in a pipeline file, as the files in `refusals` list them: what is reported of each, and its corrections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ENVIRONMENT: Mapping[str, str] = {"A": "a"}
_REPORTED, _CORRECTED, _CONTINUED = "  ->", "  =>", "   |"


@dataclass
class Mistake:
    """What a part of a file lists, with the texts that replace `…` in its template."""

    template: str
    written: str
    reported: str = ""
    corrections: list[str] = field(default_factory=list)

    def file(self, text: str) -> str:
        """The pipeline file that has this text."""
        return self.template.replace("…", text) + "\n"


@dataclass(frozen=True)
class Part:
    """Mistakes at one place of the pipeline file. path: of the file that has the part."""

    path: Path
    title: str
    mistakes: tuple[Mistake, ...]


def read_parts() -> list[Part]:
    """Every part of every file."""
    parts = []
    for path in sorted((Path(__file__).parent / "refusals").glob("*.txt")):
        for text in path.read_text(encoding="utf-8").removesuffix("\n").split("\n\n=== ")[1:]:
            head, _, listed = text.partition("\n---\n")
            title, _, template = head.partition("\n")
            parts.append(Part(path, title, tuple(_read_mistakes(template, listed.split("\n")))))
    return parts


def _read_mistakes(template: str, lines: list[str]) -> list[Mistake]:
    mistakes: list[Mistake] = []
    written: list[str] = []
    for line in lines:
        mark, text = line[: len(_REPORTED)], line[len(_REPORTED) + 1 :]
        if mark == _REPORTED:
            mistakes.append(Mistake(template, "\n".join(written), text))
            written = []
        elif mark == _CORRECTED:
            mistakes[-1].corrections.append(text)
        elif mark == _CONTINUED:
            mistakes[-1].corrections[-1] += f"\n{text}"
        elif not line.startswith("#"):
            written.append(line)
    return mistakes
