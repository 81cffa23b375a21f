"""Text of records and services, and numbers, as people are shown them: on a terminal, in a browser, in messages."""

from __future__ import annotations


def plain(text: str, kept: str = "\n\t") -> str:
    """Returns the text with escapes in place of characters that nobody sees, or that move the cursor, colour the screen or
    turn the direction of writing, except `kept`: a record may contain anything, and messages quote records.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in kept else character.encode("unicode_escape").decode()
        for character in text
    )


def plural(number: int, noun: str) -> str:
    """Returns a number with its noun: `1 file`, `2 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def counted(doing: str, number: int, total: int) -> str:
    """Returns what is being done to a table, and which of how many it is, from 1 on: `loading a.b, 3 of 12 tables`."""
    return doing if total == 1 else f"{doing}, {number:,} of {total:,} tables"


def percent(done: float, total: float) -> str:
    """Returns a share in whole percent, which is `100 %` only at its end: `41 %`."""
    return f"{int(done * 100 / total) if total else 100} %"
