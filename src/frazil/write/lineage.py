"""Row lineage of format version 3: the columns by which rows that are rewritten keep their row ids.

A reader takes a row's id from the column `_row_id` of its file, and where that is null from the row's position. So only
files with rows that were in the table before need the columns. Source: Iceberg spec, "Row Lineage".
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
    """Whether row ids of the table can be kept: not where a column of its own has the name of a lineage column, as a
    file would have the name twice.
    """
    return format_version >= LINEAGE_SINCE and not {ROW_ID, _UPDATED}.intersection(target.arrow_schema.names)


def lineage_schema(target: TableTarget) -> pa.Schema:
    """Returns the schema of the table's files with the lineage columns."""
    schema = target.arrow_schema
    for name, field_id in ((ROW_ID, ROW_ID_FIELD), (_UPDATED, UPDATED_FIELD)):
        schema = schema.append(pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": str(field_id).encode()}))
    return schema


def with_row_ids(target: TableTarget, rows: pa.Table, ids: NDArray[np.int64]) -> pa.Table:
    """Returns the rows with their row ids, int64 of shape (n_rows,); NO_ID for those that get one by the commit. All
    rows count as updated by the commit.
    """
    columns = [*rows.columns, pa.array(ids, mask=ids == NO_ID), pa.nulls(rows.num_rows, pa.int64())]
    return pa.Table.from_arrays(columns, schema=lineage_schema(target))
