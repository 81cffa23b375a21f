"""The values of records that name their table: read before the records are decoded, with these fields alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, StringType, StructType

from frazil.decode.limits import read_bounded
from frazil.decode.plain import read_text
from frazil.decode.regroup import member_at
from frazil.decode.settings import NO_EVOLUTION, Reading
from frazil.decode.wire_format import last_header
from frazil.rows.decoder import decode_values
from frazil.schema.arrow import Ints, Records
from frazil.schema.declared_values import DeclaredValues
from frazil.schema.selection import Path, Selection
from frazil.shares.naming import ValueSource
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class RecordValues:
    """The values of some records."""

    #: Which of `distinct` each record has, int of shape (n_records,).
    codes: Ints
    #: The different values, one for each source; None where a record has none, or none that can be read.
    distinct: tuple[tuple[str | None, ...], ...]
    #: Ids of schemas that are needed to read them.
    missing: frozenset[str]


def read_values(
    sources: Sequence[ValueSource], targets: Iterable[TableTarget], topic: str, records: pa.RecordBatch
) -> RecordValues:
    """Returns the values of records of a topic. targets: the tables that divide them, with the schemas that each knows."""
    pieces = list(read_bounded(records, partial(_read, _reading(sources, targets), sources, topic)))
    arrays = [pa.concat_arrays([read[number] for _, _, (read, _) in pieces]) for number in range(len(sources))]
    codes, distinct = encode_values(arrays)
    return RecordValues(codes, distinct, frozenset[str]().union(*(missing for _, _, (_, missing) in pieces)))


def _reading(sources: Sequence[ValueSource], targets: Iterable[TableTarget]) -> Reading:
    """Returns how the fields of sources are read: as text, and none of a record that cannot be read."""
    readings = [target.reading for target in targets]
    paths = tuple(source.path for source in sources if source.kind == "field")
    return replace(
        readings[0],
        schemas=tuple(sorted({schema for reading in readings for schema in reading.schemas})),
        unknown_fields="drop",
        is_rescuing=False,
        evolution=NO_EVOLUTION,
        on_bad="skip",
        # Of JSON one pass reads the fields of objects too where all are taken.
        selection=None if readings[0].format == "json" else Selection(include=paths),
        declared=DeclaredValues(coerced=paths),
        aliases=(),
        keys=(),
    )


def _read(
    reading: Reading, sources: Sequence[ValueSource], topic: str, records: Records
) -> tuple[list[pa.Array], set[str]]:
    """Returns the values of each source, and the ids of missing schemas."""
    fields = fields_of([source.path for source in sources if source.kind == "field"])
    decoded = decode_values(reading, fields, records, 0) if fields else None
    values: list[pa.Array] = []
    for source in sources:
        if decoded is not None and source.kind == "field":
            member = member_at(fields, decoded.columns, source.path)
            assert member is not None
            bad = pa.array(decoded.refused)
            values.append(pc.if_else(bad, pa.scalar(None, pa.string()), member[0].cast(pa.string())))
        elif source.kind == "header":
            values.append(read_text(last_header(records["headers"], source.path[0])).arrays[0])
        else:
            values.append(pa.repeat(pa.scalar(topic), len(records["value"])))
    return values, set(decoded.missing) if decoded is not None else set()


def fields_of(paths: Iterable[Path]) -> tuple[NestedField, ...]:
    """Returns optional fields of text at these paths."""
    members: dict[str, list[Path]] = {}
    for path in paths:
        members.setdefault(path[0], []).append(path[1:])
    return tuple(
        NestedField(
            number,
            name,
            StringType() if () in inner else StructType(*fields_of(inner)),
            required=False,
        )
        for number, (name, inner) in enumerate(members.items(), 1)
    )


def encode_values(arrays: Sequence[pa.Array]) -> tuple[Ints, tuple[tuple[str | None, ...], ...]]:
    """Returns the number of each record's values among the different ones, int of shape (n_records,), and these.

    arrays: text, one for each source.
    """
    codes = np.zeros(len(arrays[0]), np.int64)
    distinct: list[tuple[str | None, ...]] = [()]
    for array in arrays:
        encoded = array.dictionary_encode()
        names = [*encoded.dictionary.to_pylist(), None]
        own = np.asarray(encoded.indices.fill_null(len(names) - 1), np.int64)
        both = codes * len(names) + own
        # Renumbered after each, so that the product of the sizes is no limit.
        seen = np.unique(both) if len(distinct) > 1 else np.arange(len(names))
        codes = np.searchsorted(seen, both) if len(distinct) > 1 else own
        distinct = [(*distinct[code // len(names)], names[code % len(names)]) for code in seen.tolist()]
    return codes, tuple(distinct)
