"""The classes of error of bad records, one entry each: what the class means, its remedy and its page.

A class is a text, in the column `error_class` of dead-letter tables and as the label of a metric: it never changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


@dataclass(frozen=True)
class Entry:
    """What is known about a class of error."""

    #: What is wrong with a record of the class, in Markdown.
    meaning: str
    #: The page of `docs` to read next, without its suffix; an anchor may follow.
    page: str = "troubleshoot/bad-record"
    #: What an operator does where such a record stops a table; empty where that depends on the table alone.
    remedy: str = ""
    #: Whether messages may quote the record's values: of a table that hides values messages are others.
    quotes_values: bool = True


_OF_A_PACKAGE = Entry("a class of an installed package")


class ErrorClass(StrEnum):
    """Why a record cannot become a row. An installed package makes a class of its own of any other text:
    `ErrorClass("bad_quotes")`.
    """

    entry: Entry

    def __new__(cls, text: str, entry: Entry = _OF_A_PACKAGE) -> Self:
        """Returns the class with this text."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.entry = entry
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Returns the class of an installed package."""
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = member._value_ = value
        member.entry = _OF_A_PACKAGE
        return member

    TYPE_MISMATCH = (
        "type_mismatch",
        Entry("type mismatch between a value and its column: a string in a number column, 1.5 in an integer column"),
    )
    OUT_OF_RANGE = (
        "out_of_range",
        Entry(
            "a value of the right type that the column cannot represent: a number, a time, a local time that its zone"
            " skips, a decimal's digits"
        ),
    )
    MISSING_VALUE = "missing_value", Entry("a required column has no value in the record", quotes_values=False)
    UNKNOWN_FIELD = (
        "unknown_field",
        Entry(
            "the record has a field without a column, and `schema_evolution: freeze` forbids new columns",
            page="guides/evolve",
            remedy="write `schema_evolution: add_only`, or leave the field out with `exclude`",
        ),
    )
    MALFORMED = (
        "malformed",
        Entry("the bytes violate the format: not JSON, a body that is truncated or has trailing bytes"),
    )
    NOT_AN_OBJECT = (
        "not_an_object",
        Entry("JSON that is not an object: a list, a number, a string", page="reference/json"),
    )
    DUPLICATE_KEY = "duplicate_key", Entry("an object or a map has the same key twice")
    INVALID_TEXT = "invalid_text", Entry("text that is not UTF-8, or contains a lone surrogate")
    TOO_DEEP = "too_deep", Entry("nested deeper than the limit", page="reference/limits")
    TOO_LARGE = (
        "too_large",
        Entry(
            "a value larger than `limits: {record_size: …}`, or one that would need far more memory than the record has"
            " bytes. A value of more than 32 MiB that no table of the topic allows is not read: its dead letter lacks"
            " the `value`, which only Kafka has, and a replay leaves the dead letter unchanged",
            page="reference/limits",
            quotes_values=False,
        ),
    )
    CRASHES_DECODER = (
        "crashes_decoder",
        Entry(
            "decoding the record ends the decoding process: a signal, an exception, more than 10 s of processor time,"
            " more than 2 GiB of memory. A replay decodes the record in a separate process first; the dead letter"
            " remains if that process ends",
            page="troubleshoot/task-failed",
        ),
    )
    TOO_MANY_FIELDS = (
        "too_many_fields",
        Entry(
            "a record that alone would add more columns than `limits: {columns: …}` allows, or has more fields without a"
            " column than the limit",
            page="troubleshoot/too-many-columns",
            remedy="declare a field whose objects have names that vary as map<string, …>, under another column's name"
            " with `field` where the table has its column already; leave fields out with `exclude`; or raise `limits:"
            " {columns: …}`",
        ),
    )
    NAME_TOO_LONG = (
        "name_too_long",
        Entry(
            "a field's name, or a name inside the field, is longer than 255 bytes, the limit of column names",
            page="reference/limits",
        ),
    )
    NAME_CONFLICT = (
        "name_conflict",
        Entry(
            "column-name conflict: the field's column belongs to another field, to the table's metadata columns, or to"
            " its query"
        ),
    )
    TOMBSTONE = (
        "tombstone",
        Entry(
            "the record has no value, and the table has `tombstones: dead_letter`",
            page="guides/dead-letters#records-without-a-value",
            remedy="write `tombstones: ignore` where records without a value are expected, `tombstones: row` to keep"
            " them as rows, or `mode: upsert` where they delete rows",
            quotes_values=False,
        ),
    )
    FAILED_EXPRESSION = (
        "failed_expression",
        Entry(
            "an expression of the table's query fails for the record",
            page="reference/queries",
            remedy="write the expression so that it cannot fail, with `try_cast` or another `try_` function, or"
            ' `on_error: "null"` for null in its place; or fix the producer',
        ),
    )
    FAILED_EXPECTATION = (
        "failed_expectation",
        Entry(
            "a row of the record does not meet an expectation of the table with `else: dead_letter`; the message names"
            " it, with the values",
            page="guides/expect",
            quotes_values=False,  # Hidden values are hidden already.
        ),
    )
    REFUSED_BY_STAGE = (
        "refused_by_stage",
        Entry("a stage of an installed package refuses a row of the record; the message has the stage and the reason"),
    )
    LOOKUP_MISS = (
        "lookup_miss",
        Entry(
            "a reference table has no row for the record, and the lookup has `on_miss: dead_letter`",
            page="guides/lookup",
            remedy='add the row to the reference table, or write `on_miss: "null"` or `on_miss: drop` for the lookup',
        ),
    )
    LOOKUP_WAITING = (
        "lookup_waiting",
        Entry(
            "the record waits for its row of a reference table (`wait` of the lookup). Frazil replays it by itself",
            page="guides/lookup#records-that-wait",
        ),
    )
    NO_EVENT_TIME = (
        "no_event_time",
        Entry(
            "the record has no value for the time of the windows in the table's query",
            page="guides/aggregate",
            remedy="leave such records out with `where: TIME is not null`, or give them a time in the query, such as"
            " `window(coalesce(TIME, _timestamp), '1 minute')`; for change data use a constant time, since an update"
            " subtracts a row at the time at which it was added",
        ),
    )
    LATE = (
        "late",
        Entry(
            "the record is later than `late` allows, and the table has `else: dead_letter`; a replay adds it to its"
            " window, unless the table has `emit: closed` and main has the window",
            page="guides/aggregate#late-records",
            remedy="write a longer time under `late`, or `else: drop`",
        ),
    )
    NO_KEY = (
        "no_key",
        Entry(
            "the record has no key, or no value in a key column, and the table has `mode: upsert`",
            page="guides/upsert",
            remedy="name the `key_columns`, with `_source_table` among them where a topic has rows of several tables, or"
            " read the topic into a table with `mode: append`: rows of a source table without a primary key cannot be"
            " identified",
            quotes_values=False,
        ),
    )
    KEY_MISMATCH = (
        "key_mismatch",
        Entry(
            "the key in the value differs from the record's key, the key has a field that is not a key column, or the"
            " primary key of the record differs from the table's",
            page="guides/upsert",
        ),
    )
    INCOMPLETE_PRIMARY_KEY_UPDATE = (
        "incomplete_primary_key_update",
        Entry(
            "incomplete primary-key update: the insert part lacks values, and the old row is not in the table or the"
            " batch, and has not arrived within a minute",
            page="guides/cdc-keys#keys-and-large-values",
            quotes_values=False,
        ),
    )
    NO_ORDER_VALUE = (
        "no_order_value",
        Entry("the record has no value in the `order_by` column", page="guides/upsert"),
    )
    SUPERSEDED = (
        "superseded",
        Entry(
            "a replay found a newer change, in the table or after the record in its partition",
            page="guides/dead-letters-upsert#where-records-replace-rows",
            quotes_values=False,
        ),
    )
    ORDER_UNKNOWN = (
        "order_unknown",
        Entry(
            "a replay could not determine whether a newer change exists: the row lacks its coordinates, and the topic no"
            " longer contains the record; or the record is a truncate, changes several rows, or is a part of a primary-key"
            " update. Produce the record to the topic again, unless it is a truncate, or reset the table",
            page="guides/dead-letters-upsert#where-records-replace-rows",
            quotes_values=False,
        ),
    )
    NEWER_DEAD_LETTER = (
        "newer_dead_letter",
        Entry(
            "a newer dead letter changes the same row, and was not part of the replay, or is a truncate",
            page="guides/dead-letters-upsert#where-records-replace-rows",
            quotes_values=False,
        ),
    )
    NO_WIRE_FORMAT = (
        "no_wire_format",
        Entry(
            "the value does not begin with the wire format header that contains the schema id",
            page="guides/schema-registry",
            remedy="write the format of the topic's values under `value.format`, such as avro, json or text, or fix the"
            " producer",
            quotes_values=False,
        ),
    )
    NO_SCHEMA_ID = (
        "no_schema_id",
        Entry(
            "the record lacks the Kafka header that contains the schema id",
            page="guides/schema-registry",
            quotes_values=False,
        ),
    )
    UNKNOWN_SCHEMA_ID = (
        "unknown_schema_id",
        Entry("the schema registry has no schema with this id", page="guides/schema-registry", quotes_values=False),
    )
    WRONG_SCHEMA = (
        "wrong_schema",
        Entry("the format of the schema differs from the table's", page="guides/schema-registry", quotes_values=False),
    )
    UNUSABLE_SCHEMA = (
        "unusable_schema",
        Entry("the registry has the schema, but it is unusable", page="guides/schema-registry"),
    )
    NOT_AN_ENVELOPE = (
        "not_an_envelope",
        Entry(
            "the record has none of the fields of the table's envelope, or the row's image is not an object",
            page="reference/envelopes",
        ),
    )
    UNKNOWN_OPERATION = (
        "unknown_operation",
        Entry("the envelope's operation is missing or unknown", page="reference/envelopes"),
    )
    MISSING_IMAGE = (
        "missing_image",
        Entry(
            "the envelope lacks the row before or after the change, which the operation requires",
            page="reference/envelopes",
        ),
    )
    MISSING_KEY = "missing_key", Entry("the change's row has no value in a key column", page="reference/envelopes")
    UNAVAILABLE_VALUE = (
        "unavailable_value",
        Entry(
            "a change lacks a value that the table's query needs, or the insert part of a primary-key update lacks a"
            " large value: only the old row has it",
            page="reference/envelopes#values-that-were-not-sent",
            remedy="let the source send whole rows, as with PostgreSQL's `replica identity full`, or let the query pass"
            " such a field on unchanged, without a condition on it",
        ),
    )
