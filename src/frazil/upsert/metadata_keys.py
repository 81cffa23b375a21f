"""Key columns that do not come from a record's value or key: constants, headers, and what Kafka says of the record. A
record without a value has them as any other does.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from frazil.decode.cast import Fitting
from frazil.rows.metadata_columns import own_column
from frazil.write.target import TableTarget

Path = tuple[str, ...]


def own_key_columns(fitting: Fitting, target: TableTarget, records: Mapping[str, pa.Array]) -> dict[Path, pa.Array]:
    """By path the values of these key columns, one for each record. What is no value of its column is a misfit."""
    changes, shaping = target.changes, target.shaping
    assert changes is not None
    known = {column: source for source, column in target.metadata if source in ("topic", "partition")}
    plain = {*dict(shaping.constants), *dict(shaping.headers)} - {*dict(target.headers)} if shaping is not None else {}
    found: dict[Path, pa.Array] = {}
    for path in changes.paths:
        if path[0] in known and known[path[0]] in records:
            found[path] = records[known[path[0]]]
        elif shaping is not None and path[0] in plain:
            field = next(one for one in target.fields if one.name == path[0])
            found[path] = own_column(fitting, shaping, field, records)
    return found
