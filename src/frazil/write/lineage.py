"""Row lineage of format 3: the columns by which rows that are written anew keep their ids.

A reader takes a row's id from the column `_row_id` of its file, and where that is null from the row's place. So only files
with rows that were in the table before need the columns. Source: Iceberg's specification, "Row Lineage".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.write.target import TableTarget

ROW_ID = "_row_id"
ROW_ID_FIELD = 2147483540
_UPDATED = "_last_updated_sequence_number"
UPDATED_FIELD = 2147483539
LINEAGE_SINCE = 3
NO_ID = -1


def has_lineage(target: TableTarget, format_version: int) -> bool:
    """Whether ids of the table's rows can be kept. Not where a column of its own has the name of one of these: a file would
    have it twice.
    """
    return format_version >= LINEAGE_SINCE and not {ROW_ID, _UPDATED}.intersection(target.arrow_schema.names)


def lineage_schema(target: TableTarget) -> pa.Schema:
    """The schema of the target's files with the columns."""
    schema = target.arrow_schema
    for name, field_id in ((ROW_ID, ROW_ID_FIELD), (_UPDATED, UPDATED_FIELD)):
        schema = schema.append(pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": str(field_id).encode()}))
    return schema


def with_row_ids(target: TableTarget, rows: pa.Table, ids: NDArray[np.int64]) -> pa.Table:
    """The rows with their ids, NO_ID for those that get one by the commit. All count as updated by it."""
    columns = [*rows.columns, pa.array(ids, mask=ids == NO_ID), pa.nulls(rows.num_rows, pa.int64())]
    return pa.Table.from_arrays(columns, schema=lineage_schema(target))
