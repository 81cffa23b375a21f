"""Pipeline files that are refused, by what is written into them, each with what they become once the remedy is done."""

from __future__ import annotations

from dataclasses import dataclass

from tests.unit.spec.pipeline_file import HEAD, with_section, with_table

_PLAIN = with_section("")


@dataclass(frozen=True)
class Mended:
    """broken: a file that is refused. fixed: the same file after each thing that the remedy offers."""

    broken: str
    fixed: tuple[str, ...]


def tables(broken: str, *fixed: str) -> Mended:
    """Settings of a table."""
    return Mended(with_table(broken), tuple(with_table(text) if text else _PLAIN for text in fixed))


def columns(broken: str, *fixed: str) -> Mended:
    """A column `c` of the table."""
    return tables(f"columns: {{c: {broken}}}", *(f"columns: {{c: {text}}}" for text in fixed))


def sections(broken: str, *fixed: str) -> Mended:
    """A section of the file."""
    return Mended(with_section(broken), tuple(map(with_section, fixed)))


def avro(broken: str, *fixed: str) -> Mended:
    """Settings of a table in a file that has a registry."""
    both = [with_table(text) + "registry: {url: 'https://r'}\n" for text in (broken, *fixed)]
    return Mended(both[0], tuple(both[1:]))


def wholes(broken: str, *fixed: str) -> Mended:
    """The file behind its first two lines."""
    return Mended(HEAD + broken, tuple(HEAD + text for text in fixed))


def files(broken: str, *fixed: str) -> Mended:
    """The file from its first line on."""
    return Mended(broken, fixed)


def routes(broken: str, *fixed: str) -> Mended:
    """A route of the topic `c`."""
    return wholes(*(f"routes:\n  - {{topic: c, {text}}}\n" for text in (broken, *fixed)))
