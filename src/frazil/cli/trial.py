"""`frazil try`: shows what a table makes of live records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.cli.wiring import catalog_and_queries, open_schemas, read_spec, topics_for_reading
from frazil.clock import SystemClock
from frazil.kafka.reader import read_sample
from frazil.literals import format_moment
from frazil.ops.dead_letters import bytes_document
from frazil.ops.trial import LEARNED_RECORDS, Trial, TriedTable
from frazil.ops.tried_record import TriedRecord
from frazil.printable import plain, plural

FAILED = 4
_SHOWN = 400


class Begin(StrEnum):
    """Which records are tried."""

    latest = "latest"
    earliest = "earliest"


TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table, such as shop.orders.", show_default=False)]
Records = Annotated[int, typer.Option("--records", min=1, max=LEARNED_RECORDS, help="The number of records to show.")]
From = Annotated[Begin, typer.Option("--from", help="Try the newest records, or the oldest ones.")]


def command(
    output: Output, table: TableName, file: SpecFile = DEFAULT_FILE, records: Records = 20, begin: From = Begin.latest
) -> int:
    """Show what a table makes of records that are in its topics now: the input and the output of its query, what is
    dropped and by what, and the errors. Writes nothing.

    The newest records are read, by timestamp, whatever the table has read before. Fields and types are learned from up to
    1,000 records, and from the table where it exists; a run may learn other types from others. For the table of the rest
    of a route every record is shown with the table that it goes to. Protected fields are shown as the table has them; of a
    protected record that cannot be read nothing is shown.

    Exit code: 0; 4 when a record failed; 1 when Kafka, the catalog or the schema registry does not answer, a topic is
    missing, the query names a field that no record has had, or no record has a field; 2 when the pipeline file, the query
    or the name is wrong.
    """
    spec, clock = read_spec(output, file), SystemClock()
    source = topics_for_reading(spec)
    with catalog_and_queries(spec) as (catalog, queries):
        trial = Trial(
            spec,
            source,
            catalog,
            lambda ranges: read_sample(spec.kafka, ranges, clock),
            open_schemas(spec),
            queries,
        )
        found = trial.run(table, records, is_oldest=begin is Begin.earliest)
    document = try_document(spec.pipeline, found)
    output.result(document, "\n".join(_lines(found, document["records"])))
    return FAILED if document["failed"] else 0


def try_document(pipeline: str, found: TriedTable) -> dict[str, Any]:
    """Returns the JSON of the command."""
    columns = [{"name": name, "type": kind} for name, kind in found.columns]
    counts = {outcome: found.counts[outcome] for outcome in ("written", "dropped", "failed")}
    records = [tried_document(one) for one in found.records]
    return {"pipeline": pipeline, "table": found.name, "columns": columns, **counts, "records": records}


def tried_document(tried: TriedRecord) -> dict[str, Any]:
    """Returns the JSON of one record."""
    record = tried.record
    at = None if record.timestamp_ms is None else f"{format_moment(record.timestamp_ms * 1000, 'milliseconds')}+00:00"
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": at,
        "table": tried.table,
        "outcome": tried.outcome,
        "input": list(tried.input),
        "output": [asdict(change) for change in tried.output],
        "dropped": list(tried.dropped),
        "error": asdict(tried.error) if tried.error is not None else None,
        "value": bytes_document(tried.value),
    }


def _lines(found: TriedTable, documents: list[dict[str, Any]]) -> Iterator[str]:
    counts = ", ".join(f"{found.counts[one]} {one}" for one in ("written", "dropped", "failed"))
    yield f"{found.name}: {plural(len(documents), 'record')} tried, {counts}; nothing was changed"
    width = max((len(name) for name, _ in found.columns), default=0)
    yield from (f"  {name:<{width}}  {kind}" for name, kind in found.columns)
    for one in documents:
        yield ""
        elsewhere = f", to {one['table']}" if one["table"] != found.name else ""
        by = f" by {', '.join(one['dropped'])}" if one["dropped"] else ""
        outcome = f"{one['outcome']}{by if one['outcome'] == 'dropped' else ''}"
        yield f"topic {one['topic']}, partition {one['partition']}, offset {one['offset']}: {outcome}{elsewhere}"
        yield from (f"  input   {_shown(row)}" for row in one["input"])
        if one["value"] is not None:
            yield f"  input   {_shown(*one['value'].values())}"
        yield from (f"  {change['change']:<7} {_shown(change['row'])}" for change in one["output"])
        if one["error"] is not None:
            path = f"field {one['error']['path']}: " if one["error"]["path"] else ""
            yield f"  error   {one['error']['error_class']}: {_plain(path + one['error']['message'])}"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _plain(text[:_SHOWN]) + ("…" if len(text) > _SHOWN else "")


def _plain(text: str) -> str:
    """Returns the text on one line."""
    return plain(text, kept="")
