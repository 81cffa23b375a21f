"""Projections and filters of Flink CDC as Spark's SQL: metadata by Frazil's names, and computed columns in conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frazil.imports.sql import Word, items, joined, plain, without_name, words_of

EVENT_TYPE = "__data_event_type__"
_EVENT_TYPES = "case _op when 'd' then '-D' when 'u' then '+U' else '+I' end"
_LISTED = {
    "op_ts": "unix_millis(_source_ts)", "table_name": "_source_table", "schema_name": "_source_schema",
    "database_name": "_source_database",
}  # fmt: skip
"""Metadata that a source gives where its `metadata.list` asks for it."""


def metadata_names(source: Mapping[str, str]) -> dict[str, str]:
    """Returns the expressions for the metadata that rules may name. source: the settings of the pipeline's source."""
    has_schemas = source.get("type") in ("postgres", "oracle", "sqlserver")
    listed = [one.strip() for one in source.get("metadata.list", "").split(",")]
    return {
        "__namespace_name__": "_source_database",
        "__schema_name__": "_source_schema" if has_schemas else "_source_database",
        "__table_name__": "_source_table",
        EVENT_TYPE: _EVENT_TYPES,
        **{name: expression for name, expression in _LISTED.items() if name in listed},
    }


@dataclass(frozen=True)
class Projection:
    """A projection and the filter beside it."""

    #: Empty where all fields stay as they are.
    select: str
    where: str


def project(projection: str, condition: str, metadata: Mapping[str, str]) -> Projection:
    """Returns the query and the condition. A column that is computed under the name of a field has the place of the field,
    and a condition may name a computed column.
    """
    columns = [_read(item, metadata) for item in items([word for word in words_of(projection) if word != "\\"])]
    replaced = [one.name for one in columns if one.is_replaced]
    texts = [f"* except ({', '.join(replaced)})" if one.text == "*" and replaced else one.text for one in columns]
    computed = {one.name: f"({one.value})" for one in columns if one.is_computed}
    where = joined([_replaced(word, {**metadata, **computed}) for word in words_of(condition)])
    return Projection("" if texts in ([], ["*"]) else f"select {', '.join(texts)} from records", where)


@dataclass(frozen=True)
class _Column:
    """A column of a projection."""

    name: str
    #: The expression without the name.
    value: str
    #: As the query has it.
    text: str
    #: Whether it has the name of a field that it is made of.
    is_replaced: bool = False
    #: Whether it has a name of its own.
    is_computed: bool = False


def _read(item: list[str], metadata: Mapping[str, str]) -> _Column:
    """Returns the column that words of a projection make."""
    words = without_name(item)
    value = joined([_replaced(word, metadata) for word in words])
    if words == item and item[0] not in metadata:
        return _Column("", value, value)
    name = plain(item[-1])
    is_replaced = words != item and any(plain(word) == name for word in words)
    return _Column(name, value, f"{value} as {item[-1]}", is_replaced, not is_replaced)


def _replaced(word: str, by: Mapping[str, str]) -> str:
    """Returns the word, or what stands for it, with the space before it."""
    found = Word(by.get(plain(word), word) if not word.startswith("'") else word)
    found.is_apart = getattr(word, "is_apart", True)
    return found
