"""The words of SQL, and SQL of words with the spaces that it was written with. No SQL is understood here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from frazil.errors import SpecError
from frazil.queries import steps

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|`(?:[^`]|``)*`|"(?:[^"\\]|\\.)*"|[\w.$]+|<>|[<>!]=|\|\||=>|\s+|.""", re.DOTALL
)
_NESTING = ("ARRAY", "MAP", "MULTISET", "ROW", "STRUCT")
_OPERATORS = ("AND", "OR", "NOT", "IN", "IS", "LIKE", "BETWEEN", "ESCAPE", "DIV", "THEN", "ELSE", "WHEN", "CASE")
_NO_NAMES = ("NULL", "TRUE", "FALSE", "END", "UNKNOWN")
HINT, HINT_END = "/*+", "*/"


class Word(str):
    """A word, a literal, a quoted name or a sign."""

    #: Whether space or a comment precedes it.
    is_apart = True


def words_of(text: str) -> Iterator[Word]:
    """Yields the words without comments; those of a hint are between `/*+` and `*/`, and `''` in a literal is kept."""
    is_apart = True
    for token in (match[0] for match in _TOKEN.finditer(text)):
        if token.startswith(HINT):
            yield Word(HINT)
            yield from words_of(token[len(HINT) : -len(HINT_END)])
            yield Word(HINT_END)
        if not token.strip() or token.startswith(("--", "/*")):
            is_apart = True
            continue
        word = Word(token)
        word.is_apart, is_apart = is_apart, False
        yield word


def statements(text: str) -> Iterator[list[str]]:
    """Yields the words of each statement."""
    words: list[str] = []
    for word in words_of(text):
        if word == ";":
            yield words
            words = []
        else:
            words.append(word)
    yield words


def plain(word: str) -> str:
    """Returns a literal's or a name's text."""
    quote = word[:1]
    return word[1:-1].replace(quote * 2, quote) if quote in ("'", "`", '"') else str(word)


def name_at(words: Sequence[str], start: int) -> tuple[str, int]:
    """Returns a name, of which back-quotes may enclose parts, and the place after it."""
    name, end = plain(words[start]), start + 1
    while end < len(words) and (words[end].startswith(".") or name.endswith(".")):
        name, end = name + plain(words[end]), end + 1
    return name, end


def quoted(name: str) -> str:
    """Returns a name as a query has it, in backticks only where it needs them."""
    return steps.quoted(name) if re.search(r"\W", name) else name


def joined(words: Sequence[str]) -> str:
    """Returns the words with the spaces that were between them, as Spark reads them: a backslash is a sign like others."""
    return "".join(map(_spelled, words)).strip()


def _spelled(word: str) -> str:
    text = word.replace("\\", "\\\\") if word.startswith("'") else word
    return f" {text}" if getattr(word, "is_apart", True) else text


def spelled(words: Sequence[str]) -> str:
    """Returns the words with the spaces that were between them, with literals as they are."""
    return "".join(f" {word}" if getattr(word, "is_apart", True) else word for word in words)


def group(words: Sequence[str], start: int) -> tuple[list[str], int]:
    """Returns the words inside the parentheses that open at `start`, and the place after them."""
    depth = 0
    for place in range(start, len(words)):
        depth += {"(": 1, ")": -1}.get(words[place], 0)
        if depth == 0:
            return list(words[start + 1 : place]), place + 1
    raise SpecError("a parenthesis of the script is not closed", remedy="correct the SQL")


def outer(words: Sequence[str]) -> Iterator[int]:
    """Yields the places of words outside of parentheses and of the angle brackets of types."""
    opened: list[str] = []
    for place, word in enumerate(words):
        if opened and word == opened[-1]:
            opened.pop()
        elif word == "(":
            opened.append(")")
        elif word == "<" and place and words[place - 1].upper() in _NESTING:
            opened.append(">")
        elif not opened:
            yield place


def comma_separated(words: Sequence[str]) -> Iterator[list[str]]:
    """Yields what commas divide, outside of parentheses."""
    commas = [place for place in outer(words) if words[place] == ","]
    for start, end in zip([-1, *commas], [*commas, len(words)], strict=True):
        if start + 1 < end:
            yield list(words[start + 1 : end])


def without_name(item: list[str]) -> list[str]:
    """Returns what is selected without the name behind it, with or without `AS`."""
    if len(item) < 2 or not re.fullmatch(r"`.*`|[A-Za-z_]\w*", item[-1]) or item[-1].upper() in _NO_NAMES:
        return item
    if item[-2].upper() == "AS":
        return item[:-2]
    is_unit = item[-2].startswith("'") and len(item) > 2 and item[-3].upper() == "INTERVAL"
    is_value = item[-2][-1] in ")'`" or (re.fullmatch(r"[\w.$]+", item[-2]) and item[-2].upper() not in _OPERATORS)
    return item[:-1] if is_value and not is_unit else item
