"""A sample of a table's records, decoded as a run would decode it, and what `plan` and `check` show of it.

That is the times in its text, the changes in its envelopes, records that change no row (`decode_sample` counts them in the
table's `bad_records`), and fields that settings name and no record has. Records may have these later, so nothing stops for
them; but a misspelt one leaves in the table what was to be dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IcebergType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from frazil.cdc.document_ids import ID
from frazil.cdc.envelope import IGNORED, NO_DOCUMENT
from frazil.column_names import change_case, fold_case, fold_path
from frazil.decode.columns import Decoded
from frazil.decode.limits import plain_columns, read_bounded
from frazil.ingest.batches.outcome import WITHOUT_DOCUMENT
from frazil.ingest.tables.preflight import (
    SOURCE_ORDER,
    field_in_image,
    has_apart_rows,
    may_have_source_order,
    topics_without_order,
)
from frazil.ingest.tables.queries import field_origins
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.settings import steps_of
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.ingest.tasks.task import read_records, requests_of_rows
from frazil.kafka.port import ReadRecord
from frazil.printable import plural
from frazil.queries.steps import compile_steps
from frazil.routes.divide import TopicShares
from frazil.rows.metadata_columns import batch_of
from frazil.schema.evolve import Path, RequestedFields, merge_requested_fields
from frazil.schema.names import spelled
from frazil.schema.parts import parts_of, types_in
from frazil.spec import TableSpec
from frazil.spec.settings import InferSpec
from frazil.spec.syntax.problems import nearest
from frazil.stages.table import table_stages
from frazil.types import EXTRA_COLUMNS, add_counts
from frazil.upsert.lookup.live_rows import has_column
from frazil.upsert.records.key_fields import column_of, find_key_fields, leaves_of
from frazil.upsert.records.read_changes import apart_by_table
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


_MARKS = {
    "debezium": {"op", "source", "after"},
    "canal": {"database", "table", "type", "data", "isDdl"},
    "maxwell": {"database", "table", "type", "data", "ts"},
    "dms": {"data", "metadata.operation", "metadata.record-type"},
}
"""Fields, also in a top-level object, that together identify an envelope; the first match counts."""
_SOURCES = {"dms": "AWS DMS"}


def unopened_envelopes(spec: TableSpec, schema: Schema) -> Iterator[str]:
    """Yields a warning where records look like envelopes, and the table takes them for rows."""
    if spec.changes.envelope is not None:
        return
    names = {field.name for field in schema.fields}
    payload = next((field.field_type for field in schema.fields if field.name == "payload"), None)
    record = payload if isinstance(payload, StructType) and "schema" in names else schema.as_struct()
    inner = {".".join(path[:2]) for path in leaves_of(record)} | {field.name for field in record.fields}
    kind = next((kind for kind, marks in _MARKS.items() if marks <= inner), None)
    if kind is not None:
        yield (
            f"the records look like changes as {_SOURCES.get(kind, kind.capitalize())} writes them, and each becomes a"
            f" row as it is: for"
            f" rows of the source table write `envelope: {kind}`, and `mode: upsert` for its current state"
        )


def keys_beside(table: Table, records: Sequence[ReadRecord], schema: Schema, schemas: Schemas | None) -> Iterator[str]:
    """Yields warnings where records' keys have fields that rows lack, or fields besides the `key_columns` that the pipeline
    file names: changes of one row may then have several keys, and be in several partitions. schema: of the table, with the
    fields of the records.

    Raises: UnavailableError where the registry does not answer.
    """
    envelope, named = table.spec.changes.envelope, table.spec.changes.key_columns
    if not records or table.spec.changes.mode != "upsert" or envelope is None or envelope.kind != "debezium":
        return
    target = target_of(table, schema)
    key_fields = find_key_fields(target, plain_columns(batch_of(records)))
    if key_fields.missing and schemas is not None:
        table.schema.schemas |= schemas.fetch_for(table.spec, key_fields.missing, min(table.offsets.topics, default=""))
        target = target_of(table, schema)
        key_fields = find_key_fields(target, plain_columns(batch_of(records)))
    assert target.changes is not None
    columns = {name: column_of(target, (name,)) for name in dict.fromkeys(chain(*key_fields.names))}
    present = [name for name, column in columns.items() if has_column(target, column)]
    if ID in named or not present:  # Keys of documents name it differently.
        return
    absent = [name for name in columns if name not in present]
    if absent and not has_apart_rows(table):
        effect = "" if named else "every change would be a bad record; "
        words = apart_by_table(named or [".".join(columns[name]) for name in present])
        yield f"the records' keys have the field {', '.join(absent)}, and their rows do not: {effect}{words}"
    key_columns = {fold_case(name.split(".")[0]) for name in target.changes.key_columns}
    left = [name for name in present if named and fold_case(columns[name][0]) not in key_columns]
    if left and len(table.partitions()) > 1 and may_have_source_order(table) and not topics_without_order(table):
        yield (
            f"the records' keys have {', '.join(left)} besides `key_columns`: changes of one row may be in several"
            f" partitions, which are read in no order of their changes, and newer ones may be lost."
            f" {SOURCE_ORDER.capitalize()}"
        )


def kinds_without_rows(table: Table, records: Sequence[ReadRecord]) -> tuple[str, ...]:
    """Returns the kinds of the decoded records of a sample where all of them change no row; else nothing."""
    ignored = table.bad_records.ignored_records
    return tuple(sorted(ignored)) if records and ignored.total() == len(records) else ()


def updates_without_document(table: Table) -> Iterator[str]:
    """Yields a warning for updates of MongoDB documents in the decoded sample that lack the document."""
    if count := table.bad_records.ignored_records[IGNORED[NO_DOCUMENT]]:
        yield f"{plural(count, 'update')} of the sample {WITHOUT_DOCUMENT}"


def unused_fields(table: Table, fields: Schema, records: Sequence[ReadRecord], count: int) -> Iterator[str]:
    """Yields a warning for each field that a stage or a step of the table names and none of its records has. fields: the
    columns of the records. records: the sample. count: how many of them can be rows; without any, nothing is known of their
    fields.
    """
    if not count:
        return
    own_fields = Schema(*(field for field in fields.fields if field.name not in EXTRA_COLUMNS))
    headers = frozenset(name for record in records for name, _ in record.headers)
    for stage in table_stages(table.spec):
        for unused in stage.unused_fields(own_fields, field_origins(table, own_fields), headers):
            yield _warning(unused.setting, unused.path, nearest(unused.path, unused.names), count)
    for setting, path, close in _of_steps(table, own_fields):
        yield _warning(setting, path, close, count)


def unselected_fields(
    table: Table, records: Sequence[ReadRecord], schemas: Schemas | None, count: int
) -> Iterator[str]:
    """Yields a warning for each path of `include` and `exclude` and each `field` of a column that no record has, and for
    each member of a declared column that is written in the case of columns, where records have another. records: the sample.
    count: how many of them can be rows.
    """
    spec = table.spec
    renames_members = spec.shape.column_case != "keep" and any(
        not column.type.is_primitive for column in spec.shape.columns
    )
    # What `field_in_image` reports is not reported twice.
    declared = [] if field_in_image(spec) else [column.field for column in spec.shape.columns if column.field]
    listed = {"include": spec.shape.include, "exclude": spec.shape.exclude, "columns": declared} if count else {}
    if not records or not (any(listed.values()) or renames_members):
        return
    all_fields = {"include": (), "exclude": (), "flatten": None, "column_case": "keep", "columns": ()}
    takes_all = spec.model_copy(update=all_fields | {"unknown_fields": "add", "schema_evolution": "evolve"})
    requested = decode_sample(replace(table, spec=takes_all, state=None), records, Schema(), schemas).requested_fields
    fields = (((*around, name), kind) for around, members in requested.items() for name, kind in members.items())
    paths = {path for at, kind in fields for path in _paths_of(at, kind)}
    names = {".".join(path) for path in paths}
    plain = set(map(fold_case, names))
    for setting, settings in listed.items():
        for name in map(".".join, settings):
            if fold_case(name) not in plain:
                yield _warning(setting, name, _inside(name, names) or nearest(name, names), count)
    # Records of which no other can be a row are bad for this very reason.
    for name, meant in _renamed_members(spec, paths) if renames_members else ():
        yield _warning("columns", name, meant, len(records))


def _inside(name: str, paths: Collection[str]) -> str | None:
    """Returns the known path that is left of a path without its first names, as without those of an envelope."""
    names = name.split(".")
    ends = (".".join(names[cut:]) for cut in range(1, len(names)))
    return next((path for end in ends for path in paths if fold_case(path) == fold_case(end)), None)


def _renamed_members(spec: TableSpec, paths: Collection[Path]) -> Iterator[tuple[str, str]]:
    """Yields the members of declared columns that no record has, and of which records have the name in another case. paths:
    of the records' fields. Members of declared columns have the names that records give them.
    """

    def in_case(path: Path) -> Path:
        return fold_path(tuple(change_case(name, spec.shape.column_case) for name in path))

    fields = {in_case(path): path for path in paths if len(path) > 1}
    have = set(map(fold_path, paths))
    for column in spec.shape.columns:
        for path, _ in types_in(column.type, column.field or (column.name,)):
            field = fields.get(in_case(path))
            if field is not None and fold_path((*field[:-1], path[-1])) not in have:
                yield ".".join((column.name, *path[len(column.field or (column.name,)) :])), ".".join(field)


def _warning(setting: str, path: str, close: str | None, count: int) -> str:
    meant = f"; did you mean `{close}`?" if close else ""
    return f"`{setting}` names `{path}`, and none of {plural(count, 'record')} in the sample has it{meant}"


def _paths_of(path: Path, kind: IcebergType) -> Iterator[Path]:
    yield path
    for part in parts_of(kind):
        yield from _paths_of((*path, part.name), part.field_type)


def _of_steps(table: Table, fields: Schema) -> Iterator[tuple[str, str, str | None]]:
    if not table.spec.query.has_steps:
        return
    looked_up = {lookup.name for lookup in table.spec.query.lookup}
    for missing in compile_steps(steps_of(table.spec), fields).missing:
        if missing.path[0] not in looked_up:
            yield missing.step, ".".join(missing.path), ".".join(missing.nearest) if missing.nearest else None


def absent_columns(spec: TableSpec, schema: Schema, fitting: int) -> Iterator[str]:
    """Yields warnings for key and ordering columns that no record of the sample has: in an envelope such a record turns
    out to be bad only when the table's changes are merged.
    """
    named = {
        "key_columns": spec.changes.key_columns,
        "order_by": (spec.changes.order_by,) if spec.changes.order_by else (),
    }
    present = {field.name for field in schema.fields}
    for setting, names in named.items() if fitting and present else ():
        for name in names:
            if spelled(name, schema).split(".")[0] not in present:
                yield (
                    f"`{setting}` names `{name}`, and none of {plural(fitting, 'record')} in the sample has it: all of"
                    " them would be bad records"
                )
