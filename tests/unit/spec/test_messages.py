"""What is said of each key of the pipeline file that is misspelt or has another kind of value, as `messages.txt` has it.

`FRAZIL_WRITE_MESSAGES=1` writes the file anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from frazil.errors import SpecError
from tests.unit.spec.pipeline_file import Load

EVERY_KEY = Path(__file__).with_name("every_key.yaml")
MESSAGES = Path(__file__).with_name("messages.txt")
ENVIRONMENT = {"KEY": "0123456789abcdef0123456789abcdef"}
VALUES = {"17": 17, "x": "x", "true": True, "null": None, "[x]": ["x"], "{x: 1}": {"x": 1}}


def put_into(node: Any, value: object) -> Iterator[tuple[str, Any]]:
    """Every document that is `node` with another value of one key, and the key's path."""
    for key, part in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        for path, changed in (("", value), *put_into(part, value)):
            other = {**node, key: changed} if isinstance(node, dict) else [*node[:key], changed, *node[key + 1 :]]
            yield f"{key}.{path}" if path else str(key), other


def misspell(node: Any) -> Iterator[tuple[str, Any]]:
    """Every document that is `node` with the last characters of one key swapped, and the key's path."""
    for key, part in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if isinstance(key, str) and len(key) > 2:
            yield key, {name if name != key else f"{key[:-2]}{key[-1]}{key[-2]}": node[name] for name in node}
        for path, changed in misspell(part):
            other = {**node, key: changed} if isinstance(node, dict) else [*node[:key], changed, *node[key + 1 :]]
            yield f"{key}.{path}", other


def message_of(load: Load, document: object) -> str:
    """The problems of a document, each with its line and its remedy."""
    try:
        load(yaml.safe_dump(document, sort_keys=False, width=1000), ENVIRONMENT)
    except SpecError as error:
        folder = str(Path.cwd())
        first = error.message.partition(" (and ")[0] if error.others else error.message
        problems = [(error.where, first, error.remedy)]
        problems += [(other.where, other.message, other.remedy) for other in error.others]
        texts = (f"{where.rpartition(':')[2]}: {message}; {remedy}" for where, message, remedy in problems)
        return " | ".join(texts).replace(folder, "FOLDER")
    return "taken"


def messages(load: Load) -> str:
    """What is said of each of them, the values that are told the same together."""
    document = yaml.safe_load(EVERY_KEY.read_text(encoding="utf-8"))
    lines: dict[tuple[str, str], list[str]] = {}
    for path, changed in misspell(document):
        lines.setdefault((path, message_of(load, changed)), []).append("misspelt")
    for written, value in VALUES.items():
        for path, changed in put_into(document, value):
            lines.setdefault((path, message_of(load, changed)), []).append(written)
    by_path: dict[str, list[str]] = {}
    for (path, message), values in lines.items():
        by_path.setdefault(path, []).append(f"  {', '.join(values)} -> {message}\n")
    return "".join(f"{path}\n{''.join(by_path[path])}" for path in sorted(by_path))


def test_every_key_of_the_file_is_taken(load: Load) -> None:
    assert load(EVERY_KEY.read_text(encoding="utf-8"), ENVIRONMENT).tables


@pytest.mark.slow
def test_each_key_that_is_wrong_has_the_message_that_it_had(load: Load) -> None:
    said = messages(load)
    if os.environ.get("FRAZIL_WRITE_MESSAGES"):
        MESSAGES.write_text(said, encoding="utf-8")
    assert said == MESSAGES.read_text(encoding="utf-8")
