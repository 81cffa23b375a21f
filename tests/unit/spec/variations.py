"""`every_key.yaml`, a file with every key, and the documents that it becomes when one key is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

EVERY_KEY = Path(__file__).with_name("every_key.yaml").read_text(encoding="utf-8")
ENVIRONMENT: Mapping[str, str] = {"KEY": "0123456789abcdef0123456789abcdef"}
VALUES: Mapping[str, Any] = {"17": 17, "x": "x", "true": True, "null": None, "[x]": ["x"], "{x: 1}": {"x": 1}}
"""What is put in the place of the value of each key, by how it is written."""


def every_key() -> Any:
    """The document."""
    return yaml.safe_load(EVERY_KEY)


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
