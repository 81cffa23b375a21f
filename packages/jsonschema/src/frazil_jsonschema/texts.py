"""The port `TextSchemas` of the core: records in JSON whose JSON Schemas give the types of new columns."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyiceberg.types import NestedField, StructType

from frazil.cdc.envelope import opened_row
from frazil.cdc.envelope_columns import IMAGES_OF, is_wrapped, row_of
from frazil.cdc.json_envelopes import open_json
from frazil.column_names import drop_long_names
from frazil.decode.columns import Bodies, Decoded
from frazil.decode.connect.values import LOCAL_UNITS, UNSIGNED
from frazil.decode.json import values as json_values
from frazil.decode.json.records import decode_json
from frazil.decode.renames import FedColumns
from frazil.decode.settings import Reading, WriterSchema
from frazil.schema.conflicts import without_rejected
from frazil.schema.evolve import find_missing_fields, merge_requested_fields, type_at
from frazil.schema.parts import Path
from frazil_jsonschema.types import SchemaStruct, read_json_schema, refused_changes


class JsonSchemas:
    """See TextSchemas."""

    def struct(self, schema: WriterSchema) -> StructType:
        """See TextSchemas."""
        return _read(schema).struct

    def refused_changes(self, reading: Reading, table: StructType, written: StructType, schema_id: str) -> set[str]:
        """See TextSchemas."""
        return refused_changes(reading, table, written, schema_id)

    def decode(
        self, bodies: Bodies, fields: tuple[NestedField, ...], reading: Reading, schema_id: str, limit: int
    ) -> Decoded:
        """See TextSchemas."""
        schema = reading.schema(schema_id)
        assert schema is not None
        described, texts = _read(schema), _texts(bodies)
        struct = described.struct
        table = StructType(*fields) if reading.envelope is None else opened_row(fields)
        reading = _with_named_types(reading, described, table)
        image: Path = ()
        if reading.envelope is None:
            decoded = decode_json(texts, fields, reading, limit)
        else:
            decoded = open_json(texts, fields, reading, limit)
            struct, image = row_of(reading.envelope, struct), ("after",)
        if reading.selection is not None:
            pruned = reading.selection.prune(struct, image) if image else reading.selection.prune_struct(struct)
            struct = pruned if isinstance(pruned, StructType) else StructType()
        refusals = refused_changes(reading, table, struct, schema_id)
        refused_paths = {refusal.split(": ")[1] for refusal in refusals}
        # Fields that are not in the schema are refused too.
        refusals |= {
            f"schema {schema_id}: {refusal}"
            for refusal in decoded.refusals
            if refusal.split(": ")[0] not in refused_paths
        }
        decoded = replace(decoded, refusals=refusals)
        if reading.unknown_fields != "add":
            return decoded
        struct = drop_long_names(struct)
        requested_fields = {
            path: {name: type_at(struct, (*path[len(image) :], name)) or kind for name, kind in members.items()}
            for path, members in decoded.requested_fields.items()
        }
        missing = find_missing_fields(
            table, without_rejected(struct, reading.rejected_at, image), reading.evolution.may_widen
        )
        lacking = {(*image, *path): members for path, members in missing.items()}
        if (
            not image
            and decoded.refused.all()
            and decode_json(texts, (), replace(reading, unknown_fields="drop")).refused.all()
        ):
            lacking = {}  # Where no record can be read, the records may not be of this schema.
        return replace(
            decoded,
            requested_fields=merge_requested_fields([requested_fields, lacking] if lacking else [requested_fields]),
        )


@lru_cache(maxsize=256)
def _read(schema: WriterSchema) -> SchemaStruct:
    return read_json_schema(schema.text, schema.references)


def _with_named_types(reading: Reading, schema: SchemaStruct, table: StructType) -> Reading:
    """Returns the reading with the columns of local times and unsigned numbers, as the schema names their types, and the
    units of numbers in times. table: the columns of the row.
    """
    names = [member.name for member in schema.struct.fields]
    images = IMAGES_OF if reading.envelope is not None else ()
    struct, depth = schema.struct, 0
    if reading.envelope is not None:
        struct, depth = row_of(reading.envelope, struct), int(is_wrapped(reading.envelope, names))
    fed, units = FedColumns(struct, table.fields), dict(reading.declared.units)
    local, unsigned = set[Path](), set[Path]()
    for path, title in schema.titles.items():
        if title in LOCAL_UNITS or title == UNSIGNED.name:
            column = fed.path_of(path[depth:])
            for mine in [(image, *column) for image in images] or [column]:
                (unsigned if title == UNSIGNED.name else local).add(mine)
                if LOCAL_UNITS.get(title):
                    units.setdefault(mine, LOCAL_UNITS[title])
    if not local and not unsigned:
        return reading
    declared = replace(
        reading.declared, units=tuple(units.items()), local_times=frozenset(local), unsigned=frozenset(unsigned)
    )
    return replace(reading, declared=declared)


def _texts(bodies: Bodies) -> pa.BinaryArray:
    rows = np.arange(len(bodies), dtype=np.int32)
    # From Arrow's pool: numpy returns memory of that size to the system each time, and every page of it costs again.
    out = pa.allocate_buffer(int((bodies.end - bodies.start).sum(dtype=np.int64)))
    offsets = np.zeros(rows.size + 1, np.int32)
    json_values.copy_texts(bodies.base, bodies.start, bodies.end, rows, offsets, out.address)
    return pa.Array.from_buffers(pa.binary(), rows.size, [None, pa.py_buffer(offsets), out])
