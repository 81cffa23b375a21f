"""The description of a table that tasks receive."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from pyiceberg.schema import Schema

from frazil.catalog.maintenance_port import Transfer
from frazil.decode.settings import NO_EVOLUTION, Evolution, JsonTypes, Reading, WireFormat
from frazil.decode.wire_format import KEY_HEADER, VALUE_HEADER
from frazil.errors import SpecError
from frazil.ingest.tables.settings import (
    envelope_of,
    framing_of,
    identifier_names,
    key_column_of,
    own_columns,
    program_of,
    shaping_of,
    steps_of,
)
from frazil.ingest.tables.table import KEY_COLUMNS, Table, target_file_size
from frazil.process.analysis import Query
from frazil.process.program import origins_of, spark_columns
from frazil.process.steps import refused_lists
from frazil.rows.record_keys import HEADER_SCHEMA, KEY_SCHEMA
from frazil.schema.names import PROPERTY, Aliases, aliases_of
from frazil.schema.parts import Path
from frazil.schema.projection import KEY_ROOT
from frazil.spec import TableSpec
from frazil.spec.grouped_tables import session_of
from frazil.spec.settings import HISTORY, ValueSpec
from frazil.spec.state import retracts
from frazil.stages.table import table_stages
from frazil.upsert.commit import transfer_deletes
from frazil.upsert.late_records import noted_times
from frazil.write.plain_target import files_of, plain_target
from frazil.write.target import (
    ChangeReading,
    Dedupe,
    History,
    KnownRecords,
    Late,
    RecordReading,
    TableFiles,
    TableQuery,
    TableTarget,
)


def target_of(table: Table, schema: Schema | None = None) -> TableTarget:
    """Returns the description of the table for tasks. schema: replaces the table's schema; of a table with a query, that
    of its records.
    """
    if not table.spec.has_query:
        return _target_of(table, schema)
    query = table.schema.query
    target, source = _target_of(table, None), _target_of(table.records, schema)
    json = replace(source.reading.json, refused_lists=tuple(refused_lists(steps_of(table.spec)).items()))
    return replace(
        target,
        shaping=None,
        record=replace(target.record, key=None, headers=()),
        query=TableQuery(
            source=replace(source, stages=(), reading=replace(source.reading, json=json)),
            program=program_of(query) if query is not None and schema is None else None,
            lookups=tuple((name, reference.key) for name, reference in table.schema.references.items()),
            fails_to_null=table.spec.query.on_error == "null",
        ),
    )


def _target_of(table: Table, schema: Schema | None) -> TableTarget:
    state, spec, size_bytes = table.state, table.spec, target_file_size(table)
    key_column, most = key_column_of(spec), spec.bad_records.limits.partitions
    columns = schema or (state.schema if state else None)
    changes = _change_reading(table).spelled(columns) if spec.changes.mode == "upsert" else None
    return TableTarget(
        name=table.name,
        schema_json=columns.model_dump_json() if columns else "",
        files=files_of(state, size_bytes, most) if state else TableFiles("", (), (), size_bytes, max_partitions=most),
        reading=replace(_reading(table), aliases=_aliases(table, columns)),
        record=RecordReading(
            key=_key_reading(table) if key_column else None,
            before_key=_envelope_key_reading(table) if spec.changes.envelope is not None else None,
            headers=_header_readings(table),
            tombstones=spec.changes.tombstones if spec.changes.tombstones != "delete" else "",
        ),
        shaping=shaping_of(spec),
        metadata=tuple((name, column) for name, column in spec.metadata.items() if column != key_column),
        envelope=envelope_of(spec, changes.paths if changes else ()),
        changes=changes,
        dedupe=_dedupe(spec).spelled(columns) if spec.changes.dedupe is not None else None,
        stages=table_stages(spec),
        share=replace(spec.source.share, derived=table.derived) if spec.source.share is not None else None,
        known=_known_records(table),
        dead_letters=_dead_letters_target(table),
    )


def _known_records(table: Table) -> KnownRecords:
    return KnownRecords(
        crashing=tuple(
            sorted(table.bad_records.crashing, key=lambda record: (record.topic, record.partition, record.offset))
        ),
        noted=(*table.changes.noted(), *noted_times(table.progress)),
        is_single_task=table.changes.is_single_task,
        last_deletes=table.progress.order.last_deletes,
    )


def _dead_letters_target(table: Table) -> TableTarget | None:
    state = table.bad_records.dead_letters
    # Of the stages only the key of the records is asked for.
    return replace(plain_target(state), stages=table_stages(table.spec)) if state else None


def _aliases(table: Table, schema: Schema | None) -> Aliases:
    """Returns the other names of the table's columns, except for columns that the pipeline file assigns a field; none
    where names of new columns differ from those of fields.
    """
    mapping = table.state.properties.get(PROPERTY, "") if table.state is not None else ""
    shaping = shaping_of(table.spec)
    if not mapping or schema is None or (shaping is not None and shaping.makes_names):
        return ()
    given = {column for column, _ in shaping.fields} if shaping is not None else set()
    given.update(own_columns(table.spec))
    return tuple((path, names) for path, names in aliases_of(mapping, schema) if path[0] not in given)


def _change_reading(table: Table) -> ChangeReading:
    spec, keeps_history = table.spec, table.spec.changes.keeps_history
    columns, is_key_of_record = spec.changes.key_columns, not spec.changes.key_columns
    reading = _envelope_key_reading(table) if spec.changes.envelope is not None else _key_reading(table)
    is_plain_key = spec.source.key.format == "text" or (
        spec.source.key.format == "raw" and spec.changes.envelope is None
    )
    if is_key_of_record and is_plain_key:
        # The column with the whole key is already decoded.
        columns, is_key_of_record = (spec.metadata["key"],), False
    if is_key_of_record and table.state is not None:
        marked = table.state.marks.get(KEY_COLUMNS)
        columns = tuple(json.loads(marked)) if marked else identifier_names(table.state.schema)
        columns = tuple(name for name in columns if not keeps_history or name != spec.metadata["valid_from"])
        if marked and spec.has_query and table.schema.query is not None:
            columns = columns_of_keys(table.schema.query, columns)
    return ChangeReading(
        reading,
        columns,
        is_key_of_record,
        order_by=spec.changes.order_by or "",
        marks_deletes=spec.changes.deletes == "soft",
        has_source_order=spec.changes.order_by is not None
        and spec.metadata.get("source_order") == spec.changes.order_by,
        is_one_partition=len(table.partitions()) <= 1,
        is_one_topic=len(spec.source.topics) == 1 and spec.source.topics[0].literal is not None,
        is_key_known=table.is_key_known,
        merge=spec.changes.merge if spec.changes.counts_every_row else (),
        retracts=retracts(spec),
        late=_late(spec),
        history=_history(spec) if keeps_history else None,
        session=session_of(spec),
    )


def _late(spec: TableSpec) -> Late | None:
    late = spec.changes.late
    if late is None:
        return None
    is_final = spec.changes.emit == "closed"
    return Late(round(late.after_s * 1_000_000), late.action == "dead_letter", is_final, late.recorded)


def _history(spec: TableSpec) -> History:
    valid_from, valid_to, is_current = (spec.metadata[field] for field in HISTORY)
    return History(valid_from, valid_to, is_current, spec.changes.track)


def _dedupe(spec: TableSpec) -> Dedupe:
    dedupe = spec.changes.dedupe
    assert dedupe is not None
    if dedupe.within_s is None:
        return Dedupe(dedupe.by)
    return Dedupe(dedupe.by, round(dedupe.within_s * 1000), spec.metadata["timestamp"])


def columns_of_keys(query: Query, fields: Iterable[str]) -> tuple[str, ...]:
    """Returns the columns that a query makes of fields of the records' keys, each of one field alone.

    Raises: SpecError where it leaves out one of them.
    """
    columns: dict[str, str] = {}
    by_spark, origins = spark_columns(program_of(query)), origins_of(program_of(query))
    for column, names in origins.columns.items():
        if len(names) == 1 and column not in origins.looked_up and column not in by_spark:
            columns.setdefault(next(iter(names)), column)
    for name in fields:
        if name not in columns:
            message, remedy = f"the query leaves out {name}, which identifies rows", f"add `{name}` to `select`"
            raise SpecError(message, remedy=f"{remedy}, or keep it in the steps")
    return tuple(columns[name] for name in fields)


def _envelope_key_reading(table: Table) -> Reading:
    """Returns how keys of envelopes are read: with the format of the values, where the pipeline file has none for keys."""
    spec = table.spec
    return _key_reading(
        table, spec.source.value.model_copy(update={"message": None}) if spec.source.key.format == "raw" else None
    )


def _reading(table: Table) -> Reading:
    spec = table.spec
    value = spec.source.value
    return Reading(
        format=value.format,
        wire=_wire(value),
        schemas=tuple(sorted(table.schema.of_values)),
        **spec.shape.fitting,
        evolution=Evolution(
            may_widen=spec.shape.schema_evolution == "evolve",
            columns_left=max(
                0, spec.bad_records.limits.columns - (len(table.state.schema.field_ids) if table.state else 0)
            ),
            rejected=tuple(sorted(table.schema.rejected.items())),
        ),
        on_bad=spec.bad_records.on_bad_record,
        max_record_bytes=spec.bad_records.limits.record_bytes,
        json=JsonTypes(
            numbers=spec.source.numbers,
            infers_times=spec.source.infer.timestamps,
            refused_kinds=tuple(sorted(table.schema.refused_kinds.items())),
            texts=_texts_of_rest(spec),
        ),
    )


def _texts_of_rest(spec: TableSpec) -> tuple[Path, ...]:
    """Returns the paths of the fields by which a route divides its records, of its table of the rest: that has every value
    of them.
    """
    share = spec.source.share
    if share is None or not share.is_rest or spec.changes.envelope is not None:
        return ()
    return tuple(source.path for source in share.division.to.sources if source.kind == "field")


def _wire(value: ValueSpec, header: str = VALUE_HEADER) -> WireFormat:
    is_by_header = value.framing == "header" and value.source != "latest"
    return WireFormat(framing_of(value), is_by_header, header, value.message or "")


def _key_reading(table: Table, written: ValueSpec | None = None) -> Reading:
    """Returns how keys are read. written: the format to use in place of the pipeline file's format of keys."""
    spec = table.spec
    key = written or spec.source.key
    return Reading(
        format=key.format,
        wire=_wire(key, KEY_HEADER),
        schemas=table.schema.under(KEY_SCHEMA),
        unknown_fields="refuse" if spec.shape.schema_evolution == "freeze" else "add",
        evolution=Evolution(
            may_widen=spec.shape.schema_evolution == "evolve",
            rejected=tuple(sorted((path, why) for path, why in table.schema.rejected.items() if path[0] == KEY_ROOT)),
        ),
        on_bad=spec.bad_records.on_bad_record,
        json=JsonTypes(numbers=spec.source.numbers),
    )


def _header_readings(table: Table) -> tuple[tuple[str, Reading], ...]:
    """Returns how the header of each column is read: with its declared type only. Text and bytes need no decoding."""
    decoded = ((column.name, column.value) for column in table.spec.shape.columns if column.value is not None)
    return tuple(
        (
            column,
            Reading(
                format=value.format,
                wire=_wire(value),
                schemas=table.schema.under(f"{HEADER_SCHEMA}{column}:"),
                unknown_fields="drop",
                evolution=NO_EVOLUTION,
                on_bad=table.spec.bad_records.on_bad_record,
            ),
        )
        for column, value in decoded
        if value.format not in ("text", "raw")
    )


def transfer_of(table: Table) -> Transfer | None:
    """Returns how rows that ingestion deletes during a compaction are found in the new files: by the table's keys."""
    if table.state is None or table.spec.changes.mode != "upsert":
        return None
    target = target_of(table)
    has_keys = target.changes is not None and bool(target.changes.paths)
    return partial(transfer_deletes, target, table.state.format_version) if has_keys else None
