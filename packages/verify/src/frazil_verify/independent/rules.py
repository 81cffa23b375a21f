"""What the records of a topic must have become: rows in the columns of their table, by the formats' libraries and rules.

Records of JSON whose values have the types of their columns take a quick way: many at once by Arrow's reader, or one by one
by Python's where this refuses some. The rules of `frazil_verify/model` decide on all others, one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from frazil_verify.independent.many import EXACT, ManyReader
from frazil_verify.independent.matching import Ints
from frazil_verify.independent.routes import Route
from frazil_verify.independent.topic import Record
from frazil_verify.model import avro, connect, debezium, json_records, protobuf
from frazil_verify.model.faults import NotRead, Unreadable
from frazil_verify.model.json_nodes import JsonNode
from frazil_verify.model.json_text import read_object
from frazil_verify.model.rows import Node, Outcome, Walk
from frazil_verify.model.settings import RESCUED, Settings, Table

UPSERT, DELETE = "upsert", "delete"
_BY_COPY = "run it without --independent: a copy of the table is made and compared"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KNOWN_METADATA = ("topic", "partition", "offset", "timestamp", "key", "image")
_QUICK: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "double": (float, int),
    "string": (str,),
}
"""By type of a column, the types of values that json reads for it without a rule."""


class NotJudged(Exception):
    """Why the rows of a table cannot be made by these rules, and what can be done instead."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True)
class Format:
    """How the bytes of records are read."""

    #: `json`, `avro`, `json_schema` or `protobuf`.
    name: str
    #: `none`, or of Debezium `append`, `changelog` or `upsert`.
    envelope: str = "none"
    #: The registry's schemas by id: texts, or `protobuf.Messages`.
    schemas: Mapping[int, Any] = field(default_factory=dict)
    #: The format of keys: `json`, `avro`, `text`, or `raw` where the file does not name it.
    keys: str = "raw"
    #: The registry's schemas that keys name, by id.
    key_schemas: Mapping[int, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """How a table's rows follow from records."""

    settings: Settings
    table: Table
    #: The columns of the table, with Iceberg's field ids.
    schema: pa.Schema
    format: Format
    #: The columns that identify a row, of a table whose rows are replaced; empty otherwise.
    key_columns: tuple[str, ...] = ()
    #: The column that orders changes of one key; empty: their offsets do.
    order_by: str = ""
    #: Which of the topics' records the table takes; None for all of them.
    route: Route | None = None

    @property
    def compared(self) -> list[pa.Field]:
        """The columns that are compared: not those whose text is another each time, or that need Frazil's own knowledge."""
        unknown = {column for name, column in self.settings.metadata.items() if name not in _KNOWN_METADATA}
        return [column for column in self.schema if column.name not in unknown | {RESCUED}]


@dataclass
class Made:
    """What some records must have become."""

    #: The rows, in the compared columns.
    rows: pa.Table
    #: The index of each row's record, int64 `(n_rows,)`.
    sources: Ints
    #: The indexes of records that must be dead letters, or may be.
    dead: list[int] = field(default_factory=list)
    #: The number of records that change nothing.
    idle: int = 0
    #: Of a table with keys, the changes in the order of their records: the operation, the key, and the number of the row
    #: (-1 for a delete).
    changes: list[tuple[str, tuple[Any, ...], int]] = field(default_factory=list)
    #: The index of each change's record.
    change_sources: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Quick:
    """What is checked of rows whose values have the types of their columns."""

    #: The fields whose numbers are looked at one by one.
    doubles: tuple[str, ...]
    #: The number of quotation marks in the text of a row whose names differ.
    quotes: int


class RowMaker:
    """Makes the rows of one table."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._fields = rules.compared
        self._metadata = {column: name for name, column in rules.settings.metadata.items()}
        self._texts = {column.name for column in rules.schema if pa.types.is_string(column.type)}
        self._quick = self._quick_types()
        self._many = ManyReader(
            pa.schema([pa.field(of.name, of.type) for of in self._fields if of.name in self._quick])
        )
        self._signatures: dict[Any, _Quick | None] = {}
        envelope = rules.format.envelope
        is_avro = rules.format.name == "avro"
        self._envelope = (
            None
            if envelope == "none"
            else debezium.Envelope(envelope, is_avro, rules.format.schemas, rules.key_columns)
        )

    def taken(self, records: Sequence[Record]) -> list[Record]:
        """Returns the records that the table takes, where a route divides them. Raises: NotJudged."""
        route = self._rules.route
        if route is None:
            return list(records)
        try:
            return [record for record in records if route.takes(record, self._read_fields)]
        except NotRead as error:
            raise NotJudged(str(error), _BY_COPY) from None

    def _read_fields(self, record: Record) -> Node:
        """Returns the fields of a record as they are in Kafka, those of its envelope too. Raises: Unreadable."""
        value, form = record.value, self._rules.format
        if form.name == "avro":
            return avro.read_value(value, form.schemas)
        if form.name == "protobuf":
            return protobuf.read_value(value, form.schemas)
        if value is None:
            raise Unreadable("tombstone")
        message = read_object(value[json_records.HEADER :] if form.name == "json_schema" else value)
        return connect.payload_of(message) or JsonNode(message)

    def make(self, records: Sequence[Record]) -> Made:
        """Returns what the records must have become.

        Raises: NotJudged for values that Arrow does not take as the rules have them, and for schemas that are not read.
        """
        try:
            made = self._make_quickly(records) if self._quick and not self._rules.key_columns else None
            return made or self._made(records, [self.outcome_of(record) for record in records])
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            reason = f"its columns do not take a value that the rules make: {error}"
            raise NotJudged(reason, _BY_COPY) from None
        except NotRead as error:
            raise NotJudged(str(error), _BY_COPY) from None

    def outcome_of(self, record: Record) -> Mapping[str, Outcome]:
        """Returns what becomes of one record by the rules, by the image that its row has of it; none of an idle one."""
        rules = self._rules
        settings, table, name = rules.settings, rules.table, rules.format.name
        if self._envelope is not None:
            return self._envelope.images(settings, table, record.value)
        if rules.key_columns and record.value is None:
            return {}
        if name == "avro":
            return {"": avro.outcome_of(settings, table, record.value, rules.format.schemas)}
        if name == "protobuf":
            return {"": protobuf.outcome_of(settings, table, record.value, rules.format.schemas)}
        if name == "json_schema":
            return {"": json_records.framed_outcome_of(settings, table, record.value, rules.format.schemas)}
        return {"": connect.outcome_of(settings, table, record.value)}

    # ---- the quick way

    def _quick_types(self) -> dict[str, tuple[str, tuple[type, ...]]]:
        """Returns, by the name of a field, its column's type and the types of values that need no rule; nothing for tables
        whose columns are not simply the fields of their names.
        """
        settings, kinds = self._rules.settings, self._rules.table.columns
        is_plain = self._rules.format.name == "json" and self._rules.format.envelope == "none"
        shaped = settings.include or settings.exclude or settings.fields or settings.column_case != "keep"
        lower_names = [name.lower() for name in kinds]
        if not is_plain or shaped or len(set(lower_names)) < len(lower_names) or self._rules.table.bound:
            return {}
        quick = {}
        for name, kind in kinds.items():
            declared = settings.columns.get(name)
            kind_name = getattr(kind, "name", "")
            if kind_name in _QUICK and not getattr(kind, "unit", "") and not (declared and declared.coerce):
                quick[name] = (kind_name, _QUICK[kind_name])
        return quick

    def _make_quickly(self, records: Sequence[Record]) -> Made | None:
        quick = self._by_arrow(records) or self._one_by_one(records)
        if quick is None:
            return None
        table, sources = quick
        if sources.size == len(records):
            return Made(table, sources)
        slow = np.setdiff1d(np.arange(len(records)), sources)
        others = [records[number] for number in slow.tolist()]
        made = self._made(others, [self.outcome_of(record) for record in others])
        return Made(
            pa.concat_tables([table, made.rows]),
            np.concatenate([sources, slow[made.sources]]),
            slow[made.dead].tolist() if made.dead else [],
            made.idle,
        )

    def _by_arrow(self, records: Sequence[Record]) -> tuple[pa.Table, Ints] | None:
        """Returns the rows that need no rule, and the indexes of their records; None where Arrow does not read them all."""
        read = self._many.read([record.value for record in records])
        if read is None:
            return None
        table, sources = read
        kept = records if sources.size == len(records) else [records[number] for number in sources.tolist()]
        columns = [
            table.column(column.name) if column.name in self._quick else self._column(column, [], kept)
            for column in self._fields
        ]
        return pa.Table.from_arrays(columns, schema=pa.schema(self._fields)), sources

    def _one_by_one(self, records: Sequence[Record]) -> tuple[pa.Table, Ints] | None:
        """Returns the same; None where Arrow does not take the values."""
        rows = [self._quickly(record.value) for record in records]
        kept = [number for number, row in enumerate(rows) if row is not None]
        try:
            table = self._table([row for row in rows if row is not None], [records[number] for number in kept])
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError, pa.ArrowTypeError):
            return None
        return table, np.array(kept, np.int64)

    def _quickly(self, value: bytes | None) -> dict[str, Any] | None:
        """Returns the row of a value; None where a rule must decide."""
        if value is None:
            return None
        try:
            text = value.decode()
            row, end = _DECODER.raw_decode(text)
        except (ValueError, RecursionError):
            return None
        if type(row) is not dict or end != len(text):
            return None
        signature = (tuple(row), tuple(map(type, row.values())))
        quick = self._signatures.get(signature, _UNKNOWN)
        if quick is _UNKNOWN:
            quick = self._signatures[signature] = self._checked(row)
            if len(self._signatures) > _MOST_SIGNATURES:
                self._signatures.clear()
        if quick is None or value.count(b'"') != quick.quotes:  # A name is there twice, or a text has a quote.
            return None
        for name in quick.doubles:
            number = row[name]
            if (type(number) is int and (number == 0 or abs(number) >= EXACT)) or number - number != 0:
                return None  # `-0` is a negative zero, a larger integer may be inexact, and 1e400 is infinite.
        return row

    def _checked(self, row: Mapping[str, Any]) -> _Quick | None:
        """Returns what is checked of rows with these names and types; None where a rule must decide."""
        doubles, texts = list[str](), len(row)
        for name, value in row.items():
            kind, types = self._quick.get(name, ("", ()))
            if value is None and kind:
                continue
            if type(value) not in types:
                return None
            texts += kind == "string"
            if kind == "double":
                doubles.append(name)
        return _Quick(tuple(doubles), 2 * texts)

    # ---- by the rules

    def _made(self, records: Sequence[Record], outcomes: Sequence[Mapping[str, Outcome]]) -> Made:
        rows, sources, dead, idle = list[dict[str, Any]](), list[int](), list[int](), 0
        changes, change_sources = list[tuple[str, tuple[Any, ...], int]](), list[int]()
        image_column = self._rules.settings.metadata.get("image")
        for number, (record, images) in enumerate(zip(records, outcomes, strict=True)):
            if any(outcome.kinds for outcome in images.values()):
                dead.append(number)
                continue
            if self._rules.key_columns:
                change = self._change(record, images, len(rows))
                if change is None:
                    idle += 1
                    continue
                changes.append(change)
                change_sources.append(number)
                if change[0] == DELETE:
                    continue
            elif not images:
                idle += 1
            for image, outcome in images.items():
                row = dict(outcome.row)
                if image_column and image:
                    row[image_column] = image
                rows.append(row)
                sources.append(number)
        table = self._table(rows, [records[number] for number in sources])
        return Made(table, np.array(sources, np.int64), dead, idle, changes, change_sources)

    def _change(
        self, record: Record, images: Mapping[str, Outcome], number: int
    ) -> tuple[str, tuple[Any, ...], int] | None:
        """Returns the change of a row that a record is; None where it is none."""
        row = next((outcome.row for outcome in images.values()), {})
        if row and any(name in row for name in self._rules.key_columns):
            return UPSERT, tuple(row.get(name) for name in self._rules.key_columns), number
        key = self._key_of(record)
        return None if key is None else (DELETE, key, -1)

    def _key_of(self, record: Record) -> tuple[Any, ...] | None:
        """Returns the key that a delete or a tombstone names."""
        settings, table, names = self._rules.settings, self._rules.table, self._rules.key_columns
        if record.key is None:
            return None
        if self._rules.format.keys == "avro":
            return self._key_of_avro(record.key)
        text, keys = record.key.decode(errors="surrogateescape").removeprefix("\ufeff"), self._rules.format.keys
        is_record = keys != "text" and text.lstrip().startswith("{")
        if not is_record and len(names) > 1:
            return None
        if not is_record and (keys == "text" or (keys == "raw" and names[0] in self._texts)):
            return (text,)
        if not is_record:  # The value of the column alone.
            declared = settings.columns.get(names[0])
            for name in reversed((declared.field if declared is not None else ()) or names):
                text = f"{{{json.dumps(name)}: {text}}}"
        key = text.encode(errors="surrogateescape")
        outcome = json_records.outcome_of(settings, table, key)
        outcome = outcome if outcome.row else connect.outcome_of(settings, table, key)
        return tuple(outcome.row.get(name) for name in names)

    def _key_of_avro(self, key: bytes) -> tuple[Any, ...] | None:
        """Returns the key that a record of Avro is. Raises: NotJudged for a key that is not a record."""
        form, names = self._rules.format, self._rules.key_columns
        try:
            root = avro.read_value(key, form.key_schemas)
        except Unreadable:
            return None
        if root.schema["name"] == avro.NO_RECORD:
            raise NotJudged("its keys are Avro without a record", _BY_COPY)
        row = Walk(self._rules.settings, self._rules.table).run(root).row
        return tuple(row.get(name) for name in names)

    def _table(self, rows: Sequence[Mapping[str, Any]], records: Sequence[Record]) -> pa.Table:
        columns = [self._column(column, rows, records) for column in self._fields]
        return pa.Table.from_arrays(columns, schema=pa.schema(self._fields))

    def _column(self, column: pa.Field, rows: Sequence[Mapping[str, Any]], records: Sequence[Record]) -> pa.Array:
        """Returns a column of rows; of nulls where there are no rows of the records."""
        name = self._metadata.get(column.name, "")
        if name not in _KNOWN_METADATA or name == "image":
            return pa.array(_values_of(column.name, rows), column.type) if rows else pa.nulls(len(records), column.type)
        values = _metadata_of(name, records)
        if name == "key" and pa.types.is_string(column.type):
            values = [None if key is None else key.decode() for key in values]
        return pa.array(values, column.type)


def _values_of(name: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


def _metadata_of(name: str, records: Sequence[Record]) -> list[Any]:
    if name != "timestamp":
        return list(map(attrgetter(name), records))
    moments = [record.timestamp_ms for record in records]
    return [None if moment is None else _EPOCH + timedelta(milliseconds=moment) for moment in moments]


def _refuse(text: str) -> Any:
    raise ValueError(text)


_UNKNOWN: Any = object()
_MOST_SIGNATURES = 10_000
_DECODER = json.JSONDecoder(parse_constant=_refuse)
