"""JSON values as the walk of a record asks for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from frazil_verify.model.faults import Fault
from frazil_verify.model.json_new import has_type, unfit_parts
from frazil_verify.model.json_text import Json, has_half, plain
from frazil_verify.model.json_values import How, value_of
from frazil_verify.model.settings import Path
from frazil_verify.model.types import MapOf, Plain


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value."""

    json: Json

    @property
    def is_null(self) -> bool:
        """See Node."""
        return self.json.kind == "null"

    @property
    def has_type(self) -> bool:
        """See Node."""
        return has_type(self.json)

    @property
    def levels(self) -> int:
        """See Node."""
        return depth_of(self.json)

    def members(self) -> Sequence[tuple[str, JsonNode]] | None:
        """See Node."""
        if self.json.kind != "object":
            return None
        return [(key, JsonNode(value)) for key, value in self.json.value]

    def elements(self) -> Sequence[JsonNode] | None:
        """See Node."""
        return [JsonNode(value) for value in self.json.value] if self.json.kind == "array" else None

    def entries(self, kind: MapOf) -> Sequence[tuple[JsonNode, JsonNode]] | None:
        """See Node. Maps whose keys are no text are arrays of pairs."""
        if isinstance(kind.key, Plain) and kind.key.name == "string":
            if self.json.kind != "object":
                return None
            return [(JsonNode(Json("string", json.dumps(key), key)), JsonNode(value)) for key, value in self.json.value]
        if self.json.kind != "array":
            return None
        pairs = [item.value for item in self.json.value if item.kind == "array" and len(item.value) == 2]
        if len(pairs) < len(self.json.value) or any(pair[0].kind == "null" for pair in pairs):
            raise Fault("type_mismatch")
        return [(JsonNode(key), JsonNode(value)) for key, value in pairs]

    def plain(self, kind: Plain, how: How) -> Any:
        """See Node."""
        return value_of(self.json, kind, how)

    def own_faults(self) -> Sequence[str]:
        """See Node."""
        return ("invalid_text",) if any(map(has_half, self.json.keys)) else ()

    def inner_faults(self) -> Sequence[str]:
        """See Node."""
        faults = ("duplicate_key",) if has_twice(self.json, lambda name: name) else ()
        return (*faults, "name_conflict") if has_twice(self.json, str.lower) else faults

    def unfit(self, numbers: str, /) -> tuple[Sequence[tuple[Path, JsonNode, tuple[str, ...]]], bool]:
        """See Node."""
        result, is_left = unfit_parts([self.json], (), numbers)
        return [(path, JsonNode(part), kinds) for path, part, kinds in result], is_left

    def rescued(self) -> Any:
        """See Node."""
        return plain(self.json)


def has_twice(node: Json, key_of: Callable[[str], str]) -> bool:
    """Whether an object has the same key twice. key_of: what makes two keys the same."""
    if node.kind == "array":
        return any(has_twice(element, key_of) for element in node.value)
    if node.kind == "object":
        names = [key_of(key) for key, value in node.value if value.kind != "null"]
        return len(set(names)) < len(names) or any(has_twice(value, key_of) for _, value in node.value)
    return False


def depth_of(node: Json) -> int:
    """Returns the levels of lists and objects."""
    if node.kind == "array":
        return 1 + max(map(depth_of, node.value), default=0)
    if node.kind == "object":
        return 1 + max((depth_of(value) for _, value in node.value), default=0)
    return 0
