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
