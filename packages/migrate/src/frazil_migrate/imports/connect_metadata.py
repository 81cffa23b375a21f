"""Columns of record metadata that transforms of Kafka Connect add, in the types that its Iceberg sink gives them.

`InsertField` adds Kafka's timestamp as a timestamp where values have a schema, and as a number of milliseconds where they
have none. Iceberg's `KafkaMetadataTransform` and Debezium's `ExtractNewRecordState` always add numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from frazil.spec.settings import METADATA_COLUMNS
from frazil.spec.steps import OF_CHANGES
from frazil_migrate.imports.draft import Draft
from frazil_migrate.imports.sql import quoted

PIECES = ("topic", "partition", "offset", "timestamp")
COLUMNS: Mapping[str, str] = {str(field): column for field, column in METADATA_COLUMNS.items()}
"""What a query calls each piece of metadata."""
_FIELDS = {column: field for field, column in COLUMNS.items() if column != field}
_ADDED = {sql: name for name, (_, sql) in OF_CHANGES.items()}
_SQL_TYPES = {
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
}
_NUMBERS = {"s": "unix_seconds({})", "ms": "unix_millis({})", "us": "unix_micros({})", "ns": "unix_micros({}) * 1000"}
_PATTERN = re.compile(r"(?:yyyy|MM|dd|HH|mm|ss|SSS|[^A-Za-z']|'[^']*')+")
"""Patterns of Java's SimpleDateFormat that mean the same to Spark."""


@dataclass(frozen=True)
class MetadataColumn:
    """A column that is made of record metadata."""

    #: Its value in a query.
    sql: str
    #: Its type in the sink's table; `struct` for a nested one.
    kind: str
    #: The timestamp that it is made of; empty for another one.
    time: str = ""
    #: The values of the members of a nested one.
    members: Mapping[str, str] | None = None

    @property
    def added_name(self) -> str:
        """What `add_fields` calls the value; empty where only a query can make it."""
        return self.sql if self.sql in _FIELDS else _ADDED.get(self.sql, "")

    @property
    def field(self) -> str:
        """The field of `metadata` with this value; empty where there is none."""
        return _FIELDS.get(self.sql, "")


def has_schemas(draft: Draft) -> bool | None:
    """Returns whether the values of records have a schema; None where the worker's own converter decides it."""
    name, enabled = draft.peek("value.converter"), draft.peek("value.converter.schemas.enable")
    if name is None:
        return None if enabled is None else enabled.lower() == "true"
    return (enabled or "true").lower() == "true" if name.endswith(".JsonConverter") else True


def inserted(piece: str, draft: Draft, name: str) -> MetadataColumn:
    """Returns a column of `InsertField`. name: of the column."""
    schemas = has_schemas(draft)
    if piece != "timestamp":
        return MetadataColumn(COLUMNS[piece], {"topic": "string", "partition": "int", "offset": "long"}[piece])
    if schemas is None:
        draft.notes.append(
            f"the column {name} is a timestamp, as in the sink with schemas: where the worker's converter has"
            " schemas.enable=false, name that as value.converter.schemas.enable and import again"
        )
    moment = MetadataColumn("_timestamp", "timestamptz", "_timestamp")
    return as_number(moment) if schemas is False else moment


def as_number(column: MetadataColumn, unit: str = "ms") -> MetadataColumn:
    """Returns a time as a number since 1970."""
    return MetadataColumn(_NUMBERS[unit].format(column.time), "long", column.time)


def of_change(field: str) -> MetadataColumn:
    """Returns a column that Debezium's unwrap transform adds, by the field of `metadata`: times are milliseconds."""
    column = COLUMNS[field]
    if field in ("source_ts", "connector_ts"):
        return as_number(MetadataColumn(column, "timestamptz", column))
    return MetadataColumn(column, "string")


def kafka_metadata(prefix: str, is_nested: bool, external: tuple[str, str], draft: Draft) -> dict[str, MetadataColumn]:
    """Returns the columns of `KafkaMetadataTransform`. external: name and value of a constant; empty without one."""
    columns = {piece: MetadataColumn(COLUMNS[piece], "long") for piece in PIECES}
    columns["timestamp"] = as_number(MetadataColumn("_timestamp", "timestamptz", "_timestamp"))
    if not is_nested:
        return {f"{prefix}_{piece}": column for piece, column in columns.items()}
    members = {piece: column.sql for piece, column in columns.items()}
    if has_schemas(draft) is False:
        members["partition"] = "cast(_kafka_partition as bigint)"
    if external[0]:
        members[external[0]] = _literal(external[1])
    words = ", ".join(f"{_literal(name)}, {sql}" for name, sql in members.items())
    return {prefix: MetadataColumn(f"named_struct({words})", "struct", members=members)}


def flattened(name: str, column: MetadataColumn, separator: str) -> Iterator[tuple[str, MetadataColumn]]:
    """Yields the columns of the members of a nested column."""
    for member, sql in (column.members or {}).items():
        yield f"{name}{separator}{member}", MetadataColumn(sql, "long", "_timestamp" * ("_timestamp" in sql))


def converted(
    column: MetadataColumn, target: str, pattern: str, unit: str, schemas: bool | None
) -> MetadataColumn | None:
    """Returns what `TimestampConverter` makes of a time; None where no expression does."""
    if not column.time:
        return None
    match target:
        case "Timestamp":
            return MetadataColumn(column.time, "timestamptz", column.time)
        case "unix":
            return as_number(column, unit)
        case "Date" if schemas is False:  # Without a schema the sink takes Java's date for a moment.
            return MetadataColumn(f"date_trunc('DAY', {column.time})", "timestamptz")
        case "Date":
            return MetadataColumn(f"to_date({column.time})", "date")
        case "string" if _PATTERN.fullmatch(pattern):
            return MetadataColumn(f"date_format({column.time}, {_literal(pattern)})", "string")
    return None


def cast(column: MetadataColumn, kind: str) -> MetadataColumn | None:
    """Returns what `Cast` makes of a column; None where no expression does."""
    if kind not in _SQL_TYPES or column.members or (column.kind == "timestamptz" and kind == "string"):
        return None
    number = as_number(column) if column.kind == "timestamptz" else column
    if kind == number.kind:
        return number
    return replace(number, sql=f"cast({number.sql} as {_SQL_TYPES[kind]})", kind=kind, time="")


def selected(name: str, column: MetadataColumn) -> str:
    """Returns the column as a query has it."""
    return f"{column.sql} as {quoted(name)}"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
