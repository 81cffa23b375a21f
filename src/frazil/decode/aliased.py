"""Values of fields that records have under several names, joined in one column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.decode.columns import Decoded
from frazil.decode.conversion import Conversion, ValuePlace, require, require_inside
from frazil.decode.settings import Reading
from frazil.error_classes import ErrorClass
from frazil.schema.arrow import arrow_type, as_written, children_of, first_present, replace_children, unsliced
from frazil.schema.evolve import merge_requested_fields
from frazil.schema.names import column_names, column_path
from frazil.schema.parts import Path, parts_of

_BOTH = "the record has the field under two of the names that `schema.name-mapping.default` gives it"


@dataclass
class _Joining:
    """Columns while they are joined from several names to one."""

    conversion: Conversion
    #: The other names of each field, by path.
    aliases: dict[Path, tuple[str, ...]]

    def members(
        self, wide: Sequence[pa.Array], fields: Sequence[NestedField], path: Path, owner: NDArray[np.int32]
    ) -> list[pa.Array]:
        """Returns the arrays of `fields` from those of the same fields and their other names."""
        joined, at = [], 0
        for member in fields:
            inner = (*path, member.name)
            count = 1 + len(self.aliases.get(inner, ()))
            arrays = [self._inside(array, member.field_type, inner, owner) for array in wide[at : at + count]]
            joined.append(self._first_value(arrays, inner, owner))
            at += count
        return joined

    def _first_value(self, arrays: list[pa.Array], path: Path, owner: NDArray[np.int32]) -> pa.Array:
        """Returns the first value that is present; a record with two values is refused."""
        present = arrays[0]
        for array in arrays[1:]:
            both = np.asarray(present.is_valid()) & np.asarray(array.is_valid())
            if path[0] == "unavailable":
                present = pc.or_(present.fill_null(False), array.fill_null(False))
            elif array.null_count < len(array):
                if both.any():
                    self.conversion.refuse(array, both, owner, path, ErrorClass.NAME_CONFLICT, _BOTH)
                present = first_present(present, array)
        return present

    def _inside(self, array: pa.Array, kind: IcebergType, path: Path, owner: NDArray[np.int32]) -> pa.Array:
        if not any(other[: len(path)] == path and len(other) > len(path) for other in self.aliases):
            return array
        array = unsliced(array)
        if not isinstance(kind, StructType):
            owner = np.repeat(owner, np.diff(np.asarray(array.offsets)))
        parts = parts_of(kind)
        return replace_children(
            array, [part.name for part in parts], self.members(children_of(array), parts, path, owner)
        )


def join_aliases(reading: Reading, fields: Sequence[NestedField], decoded: Decoded, limit: int) -> Decoded:
    """Returns the columns `fields` of records that were decoded with the fields' other names as additional columns."""
    count = decoded.refused.size
    conversion = Conversion(reading, "", count, limit)
    owner = np.arange(count, dtype=np.int32)
    joining = _Joining(conversion, dict(reading.aliases))
    columns = joining.members(decoded.columns, fields, (), owner)
    place = ValuePlace((), owner, ~decoded.refused)
    for member, column in zip(fields, columns, strict=True):
        if member.required:
            require(conversion, column, place, (member.name,))
        kind = member.field_type
        require_inside(conversion, as_written(column, arrow_type(kind)), kind, place.inside(member.name))
    names = column_names(reading.aliases)
    requested_fields = [
        {column_path(path, names): {column_path((*path, name), names)[-1]: kind for name, kind in members.items()}}
        for path, members in decoded.requested_fields.items()
    ]
    return replace(
        decoded,
        columns=columns,
        refused=decoded.refused | conversion.refused,
        mismatches=sorted([*decoded.mismatches, *conversion.mismatches], key=lambda mismatch: mismatch.row)[:limit],
        requested_fields=merge_requested_fields(requested_fields, keeps_first=True),
        made_optional={column_path(path, names) for path in decoded.made_optional} | conversion.made_optional,
    )
