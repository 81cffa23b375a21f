"""The struct of a column with objects: six fields with the names, types and rules of Parquet's logical type FILE.

`inline` has the bytes, or `uri` names where they are: a range of `size` bytes from `offset` on, or without an offset the
whole file. A checksum is `ALGORITHM:digest` in small hexadecimal digits. What is null has no object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from frazil.decode.columns import offsets_of
from frazil.schema.arrow import children_of, unsliced, with_children

if TYPE_CHECKING:
    from pyiceberg.table import Table

Path = tuple[str, ...]
Ints = NDArray[np.int64]
BLOB = pa.struct(
    [
        ("uri", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("content_type", pa.string()),
        ("checksum", pa.string()),
        ("inline", pa.binary()),
    ]
)
"""The struct, in Arrow. More facts about an object go beside it, never into it."""
FIELDS = tuple(BLOB.names)
COLUMNS_MARK = "blob-columns"
"""The table property, behind `frazil.<pipeline>.`, with the columns that have objects."""
_CRC = "CRC32C:"


def is_blob(kind: pa.DataType) -> bool:
    """Whether the type is the struct, whatever ids its fields have."""
    return pa.types.is_struct(kind) and tuple(kind.field(n).name for n in range(kind.num_fields)) == FIELDS


def checksum_of(content: bytes | pa.Buffer) -> str:
    """Returns the checksum of bytes: CRC32C, which processors compute as fast as memory is read."""
    return checksum_text(google_crc32c.value(content))


def checksum_text(value: int) -> str:
    """Returns a checksum as the struct has it."""
    return f"{_CRC}{value:08x}"


def is_intact(content: bytes | pa.Buffer, checksum: str | None) -> bool:
    """Whether bytes have a checksum; an unknown algorithm is ignored, as the rules of FILE have it."""
    return checksum is None or not checksum.startswith(_CRC) or checksum_of(content) == checksum


def sizes_of(inline: pa.Array) -> Ints:
    """Returns the number of bytes of each value, 0 for null: int64 of shape (n_values,)."""
    lengths = np.diff(offsets_of(inline)).astype(np.int64)
    return np.where(np.asarray(inline.is_valid()), lengths, 0)


def slices_of(inline: pa.Array, rows: Ints) -> Iterator[pa.Buffer]:
    """Yields the bytes of these values, without a copy."""
    offsets, content = offsets_of(inline), inline.buffers()[2] or pa.py_buffer(b"")
    for row in rows.tolist():
        yield content.slice(int(offsets[row]), int(offsets[row + 1] - offsets[row]))


def members_of(array: pa.StructArray) -> dict[str, pa.Array]:
    """Returns the six fields of structs that are not a slice. A field of a null struct counts as null."""
    members = dict(zip(FIELDS, children_of(array), strict=True))
    if array.null_count:
        is_null = array.is_null()
        members = {name: pa.compute.if_else(is_null, None, member) for name, member in members.items()}
    return members


def blobs_of(members: Mapping[str, pa.Array], kind: pa.DataType) -> pa.Array:
    """Returns structs of these fields in the struct's own type; null where neither `inline` nor `uri` is set."""
    is_nothing = np.asarray(members["inline"].is_null()) & np.asarray(members["uri"].is_null())
    children = [members[name].cast(kind.field(n).type) for n, name in enumerate(FIELDS)]
    count = len(children[0])
    validity = None
    if is_nothing.any():
        validity = pa.py_buffer(np.packbits(~is_nothing, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [validity], int(is_nothing.sum()), children=children)


def blob_paths(schema: Schema) -> list[Path]:
    """Returns the paths of the columns of a table that are such structs, members of structs included."""
    return list(_paths(schema.as_struct(), ()))


def object_paths(table: Table) -> list[Path]:
    """Returns the columns of a table that its pipeline declares to have objects; of another table all that may have some. A
    struct with these six fields that came in a record can name any address.
    """
    declared = [
        text.split(",")
        for name, text in table.metadata.properties.items()
        if name.startswith("frazil.") and name.endswith(f".{COLUMNS_MARK}")
    ]
    paths = blob_paths(table.schema())
    names = {tuple(name.split(".")) for names in declared for name in names}
    return [path for path in paths if not declared or path in names]


def _paths(struct: StructType, above: Path) -> Iterator[Path]:
    for field in struct.fields:
        if isinstance(field.field_type, StructType):
            path = (*above, field.name)
            if tuple(part.name for part in field.field_type.fields) == FIELDS:
                yield path
            else:
                yield from _paths(field.field_type, path)


def member_at(array: pa.Array, path: Sequence[str]) -> pa.Array:
    """Returns what structs have at a path inside them; null where a struct around it is."""
    for name in path:
        array = pa.compute.struct_field(array, name)
    return array


def with_member(array: pa.Array, path: Sequence[str], member: pa.Array) -> pa.Array:
    """Returns structs with another array at a path inside them, of the same type."""
    if not path:
        return member
    array = unsliced(array)
    names = [array.type.field(n).name for n in range(array.type.num_fields)]
    children = children_of(array)
    place = names.index(path[0])
    children[place] = with_member(children[place], path[1:], member)
    return with_children(array, array.type, children)
