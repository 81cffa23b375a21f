"""Text of records and services as people are shown it, on a terminal and in a browser."""

from __future__ import annotations


def plain(text: str, kept: str = "\n\t") -> str:
    """Returns the text with escapes in place of characters that nobody sees, or that move the cursor, colour the screen or
    turn the direction of writing, except `kept`: a record may contain anything, and messages quote records.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else one.encode("unicode_escape").decode() for one in text)
