"""JSON text fields that contain only times, for which `plan` proposes time columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IcebergType,
    ListType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from frazil.decode.columns import Decoded
from frazil.ingest.schemas import Schemas
from frazil.ingest.table import Table
from frazil.kafka.port import ReadRecord
from frazil.ops.sampling import decode_sample
from frazil.schema.evolve import Path, RequestedFields

_TIMES = (DateType, TimestampType, TimestamptzType)
_MOST = 20


def propose_times(
    table: Table, schema: Schema, records: Sequence[ReadRecord], decoded: Decoded, schemas: Schemas | None
) -> Iterator[str]:
    """Yields a sentence for each field that would become text although every value in the sample is an ISO 8601 time.
    decoded: the records as read with `schema`.
    """
    spec = table.spec
    if spec.value.format != "json" or spec.infers_timestamps or not decoded.requested_fields:
        return
    other = replace(table, spec=spec.model_copy(update={"infers_timestamps": True}))
    as_times = _leaves(decode_sample(other, records, schema, schemas).requested_fields)
    texts = {path for path, kind in _leaves(decoded.requested_fields).items() if isinstance(kind, StringType)}
    found = [(path, kind) for path, kind in as_times.items() if path in texts and isinstance(kind, _TIMES)]
    for path, kind in found[:_MOST]:
        name = ".".join(path)
        what = f"every `{name}` of the sample is a time, and its column would be string"
        yield f"{what}: write {_setting(path, kind)}`infer: {{timestamps: true}}`"


def _setting(path: Path, kind: IcebergType) -> str:
    if "element" in path or "value" in path:
        return ""
    if len(path) == 1:
        return f"`columns: {{{path[0]}: {kind}}}` or "
    return f"`columns: {{{path[-1]}: {{type: {kind}, field: {'.'.join(path)}}}}}` or "


def _leaves(requested_fields: RequestedFields) -> dict[Path, IcebergType]:
    return {
        path: kind
        for parent, members in requested_fields.items()
        for name, whole in members.items()
        for path, kind in _leaves_of(whole, (*parent, name))
    }


def _leaves_of(kind: IcebergType, path: Path) -> Iterator[tuple[Path, IcebergType]]:
    if isinstance(kind, StructType):
        for member in kind.fields:
            yield from _leaves_of(member.field_type, (*path, member.name))
    elif isinstance(kind, ListType):
        yield from _leaves_of(kind.element_type, (*path, "element"))
    elif isinstance(kind, MapType):
        yield from _leaves_of(kind.value_type, (*path, "value"))
    else:
        yield path, kind
