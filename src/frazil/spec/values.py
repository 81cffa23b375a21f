"""What bytes are: the settings of `value` and `key`, and of columns that come from a header."""

from __future__ import annotations

from frazil.spec.document import Scalar
from frazil.spec.keys import keys_of
from frazil.spec.models import ValueSpec
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


def read_value(owner: Fields, key: str, model: type[ValueSpec] = ValueSpec) -> ValueSpec:
    """The section under `key`, whose keys `model` declares; settings that say nothing of its format are noted."""
    entry, default = owner.get(key), str(keys_of(model)["format"].default)
    if entry is None:
        return ValueSpec.model_validate({"format": default})
    node, label = entry.value, owner.path(key)
    if isinstance(node, Scalar) and node.text in keys_of(model)["format"].choices:
        _refuse_word(node, label, owner.problems)
        return ValueSpec.model_validate({"format": node.text})
    fields = Fields(node, keys_of(model), label, owner.problems)
    value = ValueSpec.model_validate({"format": default, **fields.values()})
    for name, owners in _ONLY_FOR.items():
        written = fields.get(name)
        if written is not None and value.format not in owners:
            message = f"`{label}.{name}` says nothing of the format {value.format}"
            owner.problems.add(written.line, message, f"remove it, or write `format`: it is for {', '.join(owners)}")
    return value


def _refuse_word(node: Scalar, label: str, problems: Problems) -> None:
    message = f"`{label}` is {describe(node)} where a mapping is expected"
    problems.add(node.line, message, f"write `{label}: {{format: {node.text}}}`")
