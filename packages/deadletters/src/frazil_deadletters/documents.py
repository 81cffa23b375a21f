"""The dead letters of a pipeline's tables, for `frazil dead-letters`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.port import Catalog, TableState
from frazil.dead_letters.files import Selection, pieces
from frazil.literals import format_moment
from frazil.ops.reports import to_json
from frazil.stages.record_key import key_id_of
from frazil.write.plain_target import plain_target

_ORDER = [("timestamp", "descending"), ("topic", "ascending"), ("partition", "ascending"), ("offset", "descending")]


@dataclass
class DeadLetterClass:
    """The dead letters of one error class."""

    #: The [class of error](dead-letters.md#classes-of-error).
    error_class: str
    #: The number of dead letters of this class.
    count: int = 0
    #: The earliest timestamp of the records, in the document as text; null where no record has one.
    first: Annotated[int, "time, ISO 8601"] | None = None
    #: The latest timestamp of the records, in the document as text.
    last: Annotated[int, "time, ISO 8601"] | None = None
    #: The field that is wrong in the example.
    path: str | None = None
    #: The message of one of the dead letters.
    example: str = ""

    def add(self, count: int, first: int | None, last: int | None) -> None:
        """Adds more dead letters of the class."""
        self.count += count
        self.first = min((at for at in (self.first, first) if at is not None), default=None)
        self.last = max((at for at in (self.last, last) if at is not None), default=None)


def classes_of(catalog: Catalog, dead_letters: TableState) -> list[DeadLetterClass]:
    """Returns the dead letters of a table that was just loaded, by error class, the most frequent class first."""
    classes: dict[str, DeadLetterClass] = {}
    target = plain_target(dead_letters)
    for file in catalog.scan(dead_letters.name).files:
        for rows in pieces(target, file, ("error_class", "timestamp", "message", "path")):
            named = _with_micros(rows).set_column(0, "error_class", pc.fill_null(rows["error_class"], ""))
            grouped = named.group_by("error_class", use_threads=False).aggregate(
                [("timestamp", "min"), ("timestamp", "max"), ("message", "first"), ("path", "first"), ([], "count_all")]
            )
            for row in grouped.to_pylist():
                mine = classes.setdefault(row["error_class"], DeadLetterClass(row["error_class"]))
                mine.add(row["count_all"], row["timestamp_min"], row["timestamp_max"])
                if not mine.example:
                    mine.example, mine.path = row["message_first"] or "", row["path_first"]
    return sorted(classes.values(), key=lambda group: (-group.count, group.error_class))


def count_dead_letters(catalog: Catalog, dead_letters: TableState, selection: Selection) -> int:
    """Returns the number of selected dead letters."""
    target = plain_target(dead_letters)
    counts = (
        pc.sum(selection.of(rows)).as_py() or 0
        for file in catalog.scan(dead_letters.name).files
        for rows in pieces(target, file, list(vars(selection)))
    )
    return sum(counts)


def newest_dead_letters(
    catalog: Catalog, dead_letters: TableState, selection: Selection, limit: int
) -> list[dict[str, Any]]:
    """Returns the newest selected dead letters, by record timestamp, with all columns; timestamps in microseconds."""
    target = plain_target(dead_letters)
    newest = target.arrow_schema.empty_table()
    for file in catalog.scan(dead_letters.name).files:
        for rows in pieces(target, file):
            newest = pa.concat_tables([newest, rows.filter(selection.of(rows))])
            newest = newest.take(pc.sort_indices(newest, _ORDER)[:limit])
    documents: list[dict[str, Any]] = _with_micros(newest).to_pylist()
    return documents


def _with_micros(rows: pa.Table) -> pa.Table:
    """Returns timestamps as integers, in microseconds: a record's timestamp may be before the year 1 or after 9999,
    which Python's datetime does not support.
    """
    place = rows.schema.get_field_index("timestamp")
    return rows.set_column(place, "timestamp", rows["timestamp"].cast(pa.int64()))


# ---- documents


def classes_document(dead_letter_table: str | None, classes: Sequence[DeadLetterClass]) -> dict[str, Any]:
    """Returns the JSON of a table's dead letters by error class. dead_letter_table: None where it does not exist."""
    return {
        "dead_letter_table": dead_letter_table,
        "dead_letters": sum(group.count for group in classes),
        "classes": [class_document(group) for group in classes],
    }


def class_document(of_class: DeadLetterClass) -> dict[str, Any]:
    """Returns the JSON of one error class."""
    return {**to_json(of_class), "first": time_text(of_class.first), "last": time_text(of_class.last)}


def dead_letter_document(dead_letter: dict[str, Any]) -> dict[str, Any]:
    """Returns the JSON of one dead letter, with all of its columns."""
    headers = [
        {"key": header["key"], "value": bytes_document(header["value"])} for header in dead_letter["headers"] or ()
    ]
    return {
        **dead_letter,
        "timestamp": time_text(dead_letter["timestamp"]),
        "key": bytes_document(dead_letter["key"]),
        "value": bytes_document(dead_letter["value"]),
        "headers": headers,
    }


def bytes_document(raw: bytes | None) -> dict[str, str] | None:
    """Returns bytes as text where they are UTF-8, else in base64; None for no value, which differs from an empty one. Of
    encrypted bytes only the id of their key is returned.
    """
    if raw is None:
        return None
    if (key_id := key_id_of(raw)) is not None:
        return {"encrypted": key_id}
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def time_text(micros: int | None) -> str | None:
    """Returns a time in microseconds as ISO 8601, in UTC."""
    return None if micros is None else f"{format_moment(micros, 'milliseconds')}+00:00"
