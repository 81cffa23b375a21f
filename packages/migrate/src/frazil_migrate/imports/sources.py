"""Where a configuration comes from: a file, standard input or an address; as JSON, YAML or Java properties."""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from frazil.errors import SpecError

_TIMEOUT_S = 10.0
_BYTE_ORDER_MARK = "\ufeff"
"""What editors of Windows write at the beginning of a file in UTF-8."""
_YAML = re.compile(r"^(?:---|(?:apiVersion|kind):)|^[\w.-]+:(?:[ \t]*$|[ \t]+[\"'\[{|>&])", re.MULTILINE)
"""What YAML has and properties do not: documents, sections, and values in quotes or brackets."""
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\")
"""The backslashes at the end of a line that the next one continues."""
_PROPERTY = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]\s*(.*)", re.DOTALL)


def read_text(file: Path) -> str:
    """Returns the text of a file, or of standard input where it is `-`.

    Raises: SpecError where it cannot be read.
    """
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SpecError(f"cannot read {file}: {reason}", remedy="name a file in UTF-8 that can be read") from None
    return text.removeprefix(_BYTE_ORDER_MARK)


def fetch(url: str) -> str:
    """Returns what an address answers.

    Raises: SpecError where it does not.
    """
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            text: str = answer.read().decode("utf-8")
            return text
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise SpecError(
            f"cannot read {url.rpartition('@')[2]}: {reason}", remedy="name an address that answers"
        ) from None


def parse(text: str) -> dict[str, Any]:
    """Returns the mapping that a text spells as JSON, as YAML or as Java properties; of a list of one mapping this one.

    Raises: SpecError where it is none of them.
    """
    if not text.lstrip().startswith(("{", "[")):
        return parse_yaml(text) if _YAML.search(text) else dict(parse_properties(text))
    try:
        parsed = json.loads(text, object_pairs_hook=_once)
        json.dumps(parsed, ensure_ascii=False).encode()  # `"\ud800"` alone is not a character that a file can have.
    except (ValueError, RecursionError) as error:
        raise SpecError(f"the configuration is not JSON: {error}", remedy="correct the JSON") from None
    return _only(parsed)


def parse_yaml(text: str) -> dict[str, Any]:
    """Returns the mapping that a text spells as YAML.

    Raises: SpecError where it spells none.
    """
    try:
        parsed = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise SpecError(f"the configuration is not YAML, line {line}", remedy="correct the YAML") from None
    except (ValueError, RecursionError) as error:  # Such as a date that does not exist.
        raise SpecError(f"the configuration is not YAML: {error}", remedy="correct the YAML") from None
    return _only(parsed)


class _Loader(yaml.SafeLoader):
    """Reads YAML, and refuses a key that a mapping has twice, of which PyYAML takes the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for place, (key, _) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value in keys[:place] and key.value != "<<":
                raise _twice(key.value, f", line {key.start_mark.line + 1}")
        return node


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise _twice(key)
    return dict(pairs)


def _twice(key: str, place: str = "") -> SpecError:
    return SpecError(f"the configuration has `{key}` twice{place}", remedy="keep one of them: tools take the last")


def _only(parsed: object) -> dict[str, Any]:
    """Returns the mapping, or the one that a list has.

    Raises: SpecError for another value, and for a list of more than one.
    """
    if isinstance(parsed, list) and len(parsed) > 1:
        raise SpecError(f"the configuration is a list of {len(parsed)} entries", remedy="give one of them alone")
    return mapping(parsed[0] if isinstance(parsed, list) and parsed else parsed)


def items(value: object) -> list[Any]:
    """Returns the entries of a list; of anything else the one that it is, of nothing none."""
    return value if isinstance(value, list) else [] if value is None else [value]


def mapping(value: object) -> dict[str, Any]:
    """Returns a mapping with its keys as text.

    Raises: SpecError where it is none, or empty.
    """
    if not isinstance(value, dict) or not value:
        raise SpecError("the configuration has no settings", remedy="give a mapping of settings to values")
    return {str(key): value for key, value in value.items()}


def parse_properties(text: str) -> Mapping[str, str]:
    """Returns Java properties: comments, lines that are continued, escapes.

    Raises: SpecError for a line without a value, a key that has two, or a text without any.
    """
    properties: dict[str, str] = {}
    for number, line in _whole_lines(text):
        match = _PROPERTY.fullmatch(line.strip())
        if match is None:
            message = f"line {number} of the configuration sets nothing"
            raise SpecError(message, remedy="write settings as `key=value`, or as JSON")
        key = _plain(match[1])
        if key in properties:
            raise _twice(key, f", line {number}")
        properties[key] = _plain(match[2])
    return mapping(properties)


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields lines with those that continue them, and the number of the first, without comments, which none continues."""
    held: list[str] = []
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        part = line.lstrip()
        if not held and (not part or part[0] in "#!"):
            continue
        ending = _CONTINUED.search(part)
        if ending is not None and ending.end() == len(part):
            held.append(part[:-1])
            continue
        yield number - len(held), "".join([*held, part])
        held = []
    if held:
        yield number - len(held) + 1, "".join(held)


def _plain(text: str) -> str:
    plain = _ESCAPE.sub(
        lambda escape: chr(int(escape[1][1:], 16)) if len(escape[1]) > 1 else _ESCAPES.get(escape[1], escape[1]), text
    )
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # Two escapes may be one character.


def flat(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns the settings as text, as Java reads them; nested ones joined by dots."""
    texts: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            texts |= {f"{key}.{name}": text for name, text in flat(value).items()}
        elif isinstance(value, list):
            texts[key] = ",".join(map(str, value))
        elif value is not None:
            texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def variables(value: str) -> str:
    """Returns the value with variables of the environment, `${NAME}` or `${NAME:default}`, as references."""
    return re.sub(r"\$\{(?!(?:env|file):)([A-Za-z_][A-Za-z0-9_]*)(?::[^}]*)?\}", r"${env:\1}", value)
