"""What bytes are: the settings of `value` and `key`, and of columns that come from a header."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frazil.spec.document import Entry, Scalar
from frazil.spec.keys import Key
from frazil.spec.problems import Problems
from frazil.spec.reading import Fields, describe
from frazil.types import FORMATS_OF_REGISTRY

_ONLY_FOR = {
    "schema": FORMATS_OF_REGISTRY,
    "framing": FORMATS_OF_REGISTRY,
    "subject": FORMATS_OF_REGISTRY,
    "message": ("protobuf",),
    "logical_types": ("avro",),
}


def read_value(entry: Entry | None, keys: Mapping[str, Key], label: str, problems: Problems) -> dict[str, Any]:
    """The section as a ValueSpec's fields; settings that say nothing of its format are noted."""
    if entry is None:
        return {"format": keys["format"].default}
    node = entry.value
    if isinstance(node, Scalar) and node.text in keys["format"].choices:
        message = f"`{label}` is {describe(node)} where a mapping is expected"
        problems.add(node.line, message, f"write `{label}: {{format: {node.text}}}`")
        return {"format": node.text}
    fields = Fields(node, keys, label, problems)
    chosen = {
        "format": fields.choice("format"),
        "source": fields.choice("schema"),
        "framing": fields.choice("framing"),
        "subject": fields.text("subject"),
        "message": fields.text("message"),
        "logical_types": fields.choice("logical_types"),
    }
    for key, owners in _ONLY_FOR.items():
        written = fields.get(key)
        if written is not None and chosen["format"] not in owners:
            message = f"`{label}.{key}` says nothing of the format {chosen['format']}"
            problems.add(written.line, message, f"remove it, or write `format`: it is for {', '.join(owners)}")
    return chosen
