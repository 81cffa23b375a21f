"""A pipeline file as it is read: each of its settings with the place that it comes from, and no secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from frazil.secrets import MASK, has_reference, is_secret_key, secrets_of
from frazil.spec.syntax.document import HIDDEN, Items, Node, Scalar, Section, kind_of
from frazil.spec.syntax.environments import ENVIRONMENTS, Overridden, Overrides
from frazil.spec.syntax.problems import OptionLine, place

_INDENT = "  "
_SIGNS = tuple("-?:,[]{}#&*!|>'\"%@`~=< ")
"""What a text of YAML without quotes does not begin with."""
_UNREADABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


@dataclass(frozen=True)
class Setting:
    """One line of the file as it is read."""

    #: The keys to it, joined by dots; a place in a list is its number.
    key: str
    #: The value as YAML; empty for a key with settings of its own.
    value: str
    #: FILE:LINE, or the option that sets it.
    where: str
    #: The environment that it comes from; empty for another source.
    environment: str
    #: The variable that the value comes from; empty for another value.
    variable: str
    #: How many keys are above it, and what begins its line: a key, or `-` in a list.
    depth: int
    label: str


def settings_of(file: Overridden, path: Path, overrides: Overrides) -> tuple[Setting, ...]:
    """Returns the settings of a file, in its order."""
    document = Section(
        {key: value for key, value in file.document.items() if key != ENVIRONMENTS},
        file.document.line,
        file.document.lines,
    )
    where = partial(_source, file, path, overrides)
    return tuple(
        Setting(key, value, *where(node, line), node.variable if isinstance(node, Scalar) else "", depth, label)
        for key, value, node, line, depth, label in _settings(document, (), 0)
    )


_Found = tuple[str, str, Node, int, int, str]


def _settings(section: Section, names: tuple[str, ...], depth: int) -> Iterator[_Found]:
    for key, node in section.items():
        if key.startswith(HIDDEN):
            continue
        yield from _setting(node, (*names, key), key, section.lines.get(key, section.line), depth, f"{spelt(key)}:")


def _setting(node: Node, names: tuple[str, ...], name: str, line: int, depth: int, label: str) -> Iterator[_Found]:
    """name: the key whose value it is, or is in."""
    key = ".".join(names)
    if isinstance(node, Section) and node:
        yield key, "", node, line, depth, label
        yield from _settings(node, names, depth + 1)
    elif isinstance(node, Items) and not _is_inline(node):
        yield key, "", node, line, depth, label
        for number, item in enumerate(node):
            yield from _setting(item, (*names, str(number)), name, item.line, depth + 1, "-")
    else:
        yield key, _written(node, name), node, line, depth, label


def _is_inline(items: Items) -> bool:
    return all(isinstance(item, Scalar) for item in items) and len({item.line for item in items}) <= 1


def _source(file: Overridden, path: Path, overrides: Overrides, node: Node, line: int) -> tuple[str, str]:
    """Returns where a setting comes from, and the environment that it comes from."""
    line = node.line if isinstance(node, Scalar) and not isinstance(line, OptionLine) else line
    is_overlaid = line in file.lines and not isinstance(line, OptionLine)
    return place(path, line), overrides.environment if is_overlaid else ""


def _written(node: Node, name: str) -> str:
    """Returns a value as YAML, without secrets. name: its key."""
    if isinstance(node, Section):
        return "{}"
    if isinstance(node, Items):
        return f"[{', '.join(_written(item, name) for item in node)}]"
    if has_reference(node.text):
        return spelt(node.text)
    text = node.text
    if node.kind == "nothing":
        return text
    if is_secret_key(name):
        return MASK
    for secret in sorted(secrets_of(name, text), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return spelt(text) if node.kind == "text" else text


def spelt(text: str) -> str:
    """Returns a text as YAML reads it again."""
    is_plain = text.isprintable() and text and not text.startswith(_SIGNS) and not text.endswith((" ", ":"))
    if is_plain and ": " not in text and " #" not in text and "," not in text and kind_of(text) == "text":
        return text
    return quoted(text)


def quoted(text: str) -> str:
    """Returns a text in double quotes, as YAML reads it again: what YAML does not allow there, or breaks lines at, is
    escaped.
    """
    return _UNREADABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def shown(settings: Sequence[Setting]) -> Iterator[str]:
    """Yields the lines of the file as it is read, each with its place behind it."""
    lines = [f"{_INDENT * setting.depth}{setting.label} {setting.value}".rstrip() for setting in settings]
    width = max((len(line) for line in lines if len(line) <= _WIDEST), default=0)
    for line, setting in zip(lines, settings, strict=True):
        notes = [setting.where]
        notes += [f"environment {setting.environment}"] if setting.environment else []
        notes += [f"${{env:{setting.variable}}}"] if setting.variable else []
        yield f"{line:<{width}}  # {', '.join(notes)}"


_WIDEST = 70
