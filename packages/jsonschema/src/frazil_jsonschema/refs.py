"""The documents of a JSON Schema, and the targets of its `$ref`s.

Nothing is ever fetched: a reference to anything other than the schema and its registered references is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urljoin

from frazil.registry.port import UnusableSchema

MAX_BYTES = 1024 * 1024
# Members that contain values, not schemas.
_VALUES = ("enum", "const", "default", "examples")


@dataclass(frozen=True)
class Node:
    """A part of a document."""

    #: The part itself.
    schema: Any
    #: The nearest part around it with an `$id` of its own.
    resource: Any
    #: The document that contains it.
    document: Any
    #: That id as a URI.
    base: str

    def enter(self, schema: Any) -> Node:
        """Returns the node of a part of this part."""
        name = schema.get("$id") if isinstance(schema, dict) else None
        if not isinstance(name, str) or name.startswith("#"):
            return Node(schema, self.resource, self.document, self.base)
        return Node(schema, schema, self.document, _join(self.base, name.partition("#")[0]))


class Documents:
    """A schema and its references, parsed.

    Raises: UnusableSchema for a text that is too long, too deep or no JSON.
    """

    def __init__(self, text: str, references: Iterable[tuple[str, str]]) -> None:
        self._by_uri: dict[str, Node] = {}
        self._anchors: dict[tuple[int, str], Node] = {}
        named = list(references)
        if (
            sum(len(part.encode("utf-8", "replace")) for part in (text, *(referenced for _, referenced in named)))
            > MAX_BYTES
        ):
            raise UnusableSchema(f"it is longer than {MAX_BYTES // 2**20} MiB, its references included")
        self.root = _document(_parse(text, "it"), "")
        documents = {name: _document(_parse(referenced, f"its reference `{name}`"), name) for name, referenced in named}
        self._by_uri.update(documents)
        for node in (self.root, *documents.values()):
            self._index(node)

    def follow(self, node: Node, reference: str) -> Node:
        """Returns the target of a `$ref` in `node`."""
        uri, _, fragment = reference.partition("#")
        for start in self._starts(node, uri):
            target = self._find(start, unquote(fragment))
            if target is not None and isinstance(target.schema, (dict, bool)):
                return target
        remedy = "is neither in it nor among its references, and nothing is fetched"
        raise UnusableSchema(f"it refers to `{reference}`, which {remedy}")

    def _starts(self, node: Node, uri: str) -> Iterator[Node]:
        if not uri:
            yield Node(node.resource, node.resource, node.document, node.base)
            # Some tools write ids at every level and pointers that count from the top.
            yield Node(node.document, node.document, node.document, node.base)
            return
        for name in (uri, _join(node.base, uri)):
            if name in self._by_uri:
                yield self._by_uri[name]

    def _find(self, start: Node, fragment: str) -> Node | None:
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((id(start.schema), fragment))
        for part in fragment.split("/")[1:]:
            child = _member(start.schema, part.replace("~1", "/").replace("~0", "~"))
            if child is None:
                return None
            start = start.enter(child)
        return start

    def _index(self, root: Node) -> None:
        """Records the parts with an id or an anchor; without recursion, as a document may be deep."""
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if isinstance(node.schema, dict):
                if node.resource is node.schema and node.base:
                    self._by_uri.setdefault(node.base, node)
                for keyword in ("$anchor", "$id"):
                    anchor = node.schema.get(keyword)
                    if isinstance(anchor, str) and (keyword == "$anchor" or anchor.startswith("#")):
                        self._anchors.setdefault((id(node.resource), anchor.removeprefix("#")), node)
                waiting += [node.enter(part) for name, part in node.schema.items() if name not in _VALUES]
            elif isinstance(node.schema, list):
                waiting += [node.enter(part) for part in node.schema]


def _parse(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise UnusableSchema(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise UnusableSchema(f"{what} is not JSON: {error}") from None


def _document(schema: Any, name: str) -> Node:
    """Returns the root of a document. Draft 4 spells `$id` as `id`."""
    own = (schema.get("$id") or schema.get("id")) if isinstance(schema, dict) else None
    base = _join(name, own.partition("#")[0]) if isinstance(own, str) else name
    return Node(schema, schema, schema, base)


def _member(schema: Any, name: str) -> Any:
    if isinstance(schema, dict):
        return schema.get(name)
    if isinstance(schema, list) and name.isascii() and name.isdigit() and len(name) < 10 and int(name) < len(schema):
        return schema[int(name)]
    return None


def _join(base: str, uri: str) -> str:
    try:
        return urljoin(base, uri)
    except ValueError:
        raise UnusableSchema(f"`{uri}` is not an address") from None
