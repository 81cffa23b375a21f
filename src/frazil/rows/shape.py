"""Decoded columns and record metadata to the table's own columns, in its order and types."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from frazil.decode.columns import Decoded
from frazil.schema.arrow import as_written
from frazil.types import RESCUED_COLUMN
from frazil.write.target import TableTarget


def shape_rows(target: TableTarget, decoded: Decoded, records: Mapping[str, pa.Array]) -> pa.Table:
    """Returns rows in the schema of the table's files.

    decoded: with one array per field of `target.fields`. records: the columns topic, partition, offset, timestamp,
    headers and key, as far as the table needs them.
    """
    by_name = {field.name: array for field, array in zip(target.fields, decoded.columns, strict=True)}
    by_name |= {column: records[field] for field, column in target.metadata}
    if target.reading.has_rescued_column:
        rescued = decoded.rescued
        by_name[RESCUED_COLUMN] = rescued if rescued is not None else pa.nulls(len(decoded.refused), pa.string())
    columns = [as_written(by_name[field.name], field.type) for field in target.arrow_schema]
    return pa.Table.from_arrays(columns, schema=target.arrow_schema)
