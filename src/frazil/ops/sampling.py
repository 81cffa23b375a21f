"""A sample of a table's records, decoded as a run would decode it, and the times that are found in its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IcebergType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from frazil.decode.columns import Decoded
from frazil.decode.limits import plain_columns, read_bounded
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.ingest.tasks.task import read_records, requests_of_rows
from frazil.kafka.port import ReadRecord
from frazil.rows.record_batch import batch_of
from frazil.schema.evolve import Path, RequestedFields, merge_requested_fields
from frazil.schema.parts import parts_of, types_in
from frazil.shares.divide import TopicShares
from frazil.spec.settings import InferSpec
from frazil.types import add_counts
from frazil.write.target import TableTarget

_ROUNDS = 3
_TIMES = (DateType, TimestampType, TimestamptzType)
_MOST = 20
_KEYS = 100


def decode_sample(table: Table, records: Sequence[ReadRecord], schema: Schema, schemas: Schemas | None) -> Decoded:
    """Returns the decoded records and the schema requests of a table with `schema`. Schemas that the records name are
    fetched from the registry; records that change no row are counted in the table's `bad_records`.

    Raises: UnavailableError where the registry does not answer.
    """
    batch = batch_of(records)
    topic = min(table.offsets.topics, default="")
    for _ in range(_ROUNDS):
        target = target_of(table, schema)
        pieces = [
            read
            for _, _, read in read_bounded(batch, partial(_read, target, topic), target.reading.evolution.columns_left)
        ]
        decoded = _together([piece for piece, _ in pieces])
        table.bad_records.ignored_records = Counter(add_counts(*(ignored for _, ignored in pieces)))
        if not decoded.missing or schemas is None:
            break
        table.schema.schemas |= schemas.fetch_for(table.spec, decoded.missing, topic)
    return decoded


def sampled_keys(table: Table, records: Sequence[ReadRecord], schema: Schema) -> tuple[str, ...]:
    """Returns the fields of the records' keys, where these identify the rows of a table that does not know its key yet."""
    target = target_of(table, schema)
    if target.changes is None or target.changes.key_columns:
        return ()
    topic = min(table.offsets.topics, default="")
    some = plain_columns(batch_of(records[:_KEYS]))
    return read_records(target, topic, some).key_columns if records else ()


def own_sample(table: Table, records: Sequence[ReadRecord], schemas: Schemas | None) -> list[ReadRecord]:
    """Returns those of the records that a table with a share takes. Of a table of the rest it notes the tables that a run
    would derive from the others.

    Raises: UnavailableError where the registry does not answer.
    """
    own: list[ReadRecord] = []
    for topic in sorted({record.topic for record in records}):
        mine = [record for record in records if record.topic == topic]
        for _ in range(_ROUNDS):
            (share,) = TopicShares([target_of(table)], topic).divide(batch_of(mine))
            if not share.missing or schemas is None:
                break
            table.schema.schemas |= schemas.fetch_for(table.spec, share.missing, topic)
        if share.report is not None and share.report.new_values:
            table.found_tables += table.derive(share.report.new_values, table.position())
        places = share.places
        own += [record for record in mine if (record.partition, record.offset) in places]
    return own


def _read(target: TableTarget, topic: str, columns: Mapping[str, pa.Array]) -> tuple[Decoded, Mapping[str, int]]:
    """Returns the decoded records, and how many of them change no row, by kind."""
    changes = read_records(target, topic, columns)
    return requests_of_rows(target, topic, columns, changes.decoded), changes.ignored_records


def _together(many: Sequence[Decoded]) -> Decoded:
    """Returns the results of parts of the sample as one; of several parts without columns."""
    if len(many) == 1:
        return many[0]
    starts = np.cumsum([0, *(part.refused.size for part in many)]).tolist()
    return Decoded(
        [],
        np.concatenate([part.refused for part in many]),
        [replace(m, row=m.row + start) for part, start in zip(many, starts[:-1], strict=True) for m in part.mismatches],
        merge_requested_fields([part.requested_fields for part in many], keeps_first=True),
        set().union(*(part.made_optional for part in many)),
        set().union(*(part.dropped for part in many)),
        missing=set().union(*(part.missing for part in many)),
        refusals=set().union(*(part.refusals for part in many)),
    )


def propose_times(
    table: Table, schema: Schema, records: Sequence[ReadRecord], decoded: Decoded, schemas: Schemas | None
) -> Iterator[str]:
    """Yields a sentence for each field that would become text although every value in the sample is an ISO 8601 time.
    decoded: the records as read with `schema`.
    """
    spec = table.spec
    if spec.source.value.format != "json" or spec.source.infer.timestamps or not decoded.requested_fields:
        return
    other = replace(table, spec=spec.model_copy(update={"infer": InferSpec(timestamps=True)}))
    as_times = _leaves(decode_sample(other, records, schema, schemas).requested_fields)
    texts = {path for path, kind in _leaves(decoded.requested_fields).items() if isinstance(kind, StringType)}
    times = [(path, kind) for path, kind in as_times.items() if path in texts and isinstance(kind, _TIMES)]
    for path, kind in times[:_MOST]:
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
        for path, kind in types_in(whole, (*parent, name))
        if not parts_of(kind)
    }
