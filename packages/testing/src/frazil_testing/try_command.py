"""`frazil try`: shows what a table makes of live records."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from frazil.api.wiring import catalog_and_queries, open_schemas, read_spec, topics_for_reading
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.kafka.reader import read_sample
from frazil.literals import format_moment
from frazil.printable import plain, plural
from frazil.secrets import Secrets
from frazil.spec import PipelineSpec, load_spec
from frazil_deadletters.documents import bytes_document
from frazil_testing.cases_command import queries_when_needed
from frazil_testing.play import table_of
from frazil_testing.recording import Mask, record_cases
from frazil_testing.suite import Suite
from frazil_testing.trial import LEARNED_RECORDS, Trial, TriedTable
from frazil_testing.tried_input import try_input
from frazil_testing.tried_record import TriedRecord

FAILED = 4
_SHOWN = 400


class Begin(StrEnum):
    """Which records are tried."""

    latest = "latest"
    earliest = "earliest"


TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table, such as shop.orders.", show_default=False)]
Records = Annotated[int, typer.Option("--records", min=1, max=LEARNED_RECORDS, help="The number of records to show.")]
Input = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="FILE",
        help="Try the records of a file, without any service: a value in each line, or YAML with `records`.",
    ),
]
Record = Annotated[
    Path | None,
    typer.Option("--record", metavar="FILE", help="Write the records as a case for `frazil test`, with masked values."),
]
Keep = Annotated[
    list[str],
    typer.Option(
        "--keep", metavar="FIELD", help="A field, or /regex/, whose values --record does not mask; repeatable."
    ),
]
From = Annotated[Begin, typer.Option("--from", help="Try the newest records, or the oldest ones.")]


def command(  # noqa: PLR0913  (each is an option)
    output: Output,
    table: TableName,
    file: SpecFile = DEFAULT_FILE,
    records: Records = 20,
    begin: From = Begin.latest,
    source_file: Input = None,
    record: Record = None,
    keep: Keep = [],  # noqa: B006  (as Typer declares options)
) -> int:
    """Show the rows that a table makes of records in its topics: the input and the output of its query, the setting
    that drops a record, and errors. Writes nothing.

    The newest records are read, by timestamp, whatever the table has read before. Fields and types are inferred from up
    to 1,000 records, and from the table if it exists; a run may infer other types from other records. For the rest
    table of a route every record is shown with its table. Protected fields are shown in their protected form, masked or
    hashed. Unreadable records with protected fields are not shown.

    --input tries the records of a file in a table that begins empty, without Kafka, catalog and registry. --record
    writes the shown records as a case for `frazil test`, with their rows and dead letters: words and digits of their
    values are replaced, equal values by equal ones, except in fields that --keep names.

    Exit code: 0; 4 when a record failed; 1 when Kafka, the catalog or the schema registry does not answer, a topic is
    missing, the query names a field that no record has had, or no record has a field; 2 when the pipeline file, the query
    or the name is wrong.
    """
    if source_file is not None:
        if record is not None:
            raise SpecError("--record is for records of a topic", remedy="leave out --input, or --record")
        spec = load_spec(file, secrets=Secrets(os.environ, has_placeholders=True))
        output.hide(spec.file.secrets)
        with queries_when_needed() as queries_of:
            tried = try_input(spec, table, source_file, queries_of)
        return _show(output, spec, tried)
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
        tried = trial.run(table, records, is_oldest=begin is Begin.earliest)
    if record is not None:
        _record(output, spec, file, tried, record, keep)
    return _show(output, spec, tried)


def _record(output: Output, spec: PipelineSpec, file: Path, tried: TriedTable, path: Path, keep: list[str]) -> None:
    """Writes the records as a case, and what becomes of the masked records as what it expects."""
    table = table_of(spec, tried.records[0].record.topic) if tried.records else None
    if table is None:
        raise UnavailableError("there are not records to write", remedy="produce records first", where=tried.name)
    record_cases(
        table, tried.name, [tried_record.record for tried_record in tried.records], path, Mask(keep), open_schemas(spec)
    )
    with queries_when_needed() as queries_of:
        list(Suite(file, queries_of, SystemClock(), updates=True).play([path]))
    output.note(f"{path}: {plural(len(tried.records), 'record')}, masked; next: frazil test {path}")


def _show(output: Output, spec: PipelineSpec, tried: TriedTable) -> int:
    document = try_document(spec.pipeline, tried)
    output.result(document, "\n".join(_lines(tried, document["records"])))
    return FAILED if document["failed"] else 0


def try_document(pipeline: str, tried: TriedTable) -> dict[str, Any]:
    """Returns the JSON of the command."""
    columns = [{"name": name, "type": kind} for name, kind in tried.columns]
    counts = {outcome: tried.counts[outcome] for outcome in ("written", "dropped", "failed")}
    records = [tried_document(tried_record) for tried_record in tried.records]
    return {"pipeline": pipeline, "table": tried.name, "columns": columns, **counts, "records": records}


def tried_document(tried: TriedRecord) -> dict[str, Any]:
    """Returns the JSON of one record."""
    record = tried.record
    timestamp = (
        None if record.timestamp_ms is None else f"{format_moment(record.timestamp_ms * 1000, 'milliseconds')}+00:00"
    )
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": timestamp,
        "table": tried.table,
        "outcome": tried.outcome,
        "input": list(tried.input),
        "output": [asdict(change) for change in tried.output],
        "dropped": list(tried.dropped),
        "error": asdict(tried.error) if tried.error is not None else None,
        "value": bytes_document(tried.value),
    }


def _lines(tried: TriedTable, documents: list[dict[str, Any]]) -> Iterator[str]:
    counts = ", ".join(f"{tried.counts[name]} {name}" for name in ("written", "dropped", "failed"))
    yield f"{tried.name}: {plural(len(documents), 'record')} tried, {counts}; nothing was changed"
    width = max((len(name) for name, _ in tried.columns), default=0)
    yield from (f"  {name:<{width}}  {kind}" for name, kind in tried.columns)
    for document in documents:
        yield ""
        elsewhere = f", to {document['table']}" if document["table"] != tried.name else ""
        by = f" by {', '.join(document['dropped'])}" if document["dropped"] else ""
        outcome = f"{document['outcome']}{by if document['outcome'] == 'dropped' else ''}"
        place = f"topic {document['topic']}, partition {document['partition']}, offset {document['offset']}"
        yield f"{place}: {outcome}{elsewhere}"
        yield from (f"  input   {_shown(row)}" for row in document["input"])
        if document["value"] is not None:
            yield f"  input   {_shown(*document['value'].values())}"
        yield from (f"  {change['change']:<7} {_shown(change['row'])}" for change in document["output"])
        if document["error"] is not None:
            path = f"field {document['error']['path']}: " if document["error"]["path"] else ""
            yield f"  error   {document['error']['error_class']}: {_plain(path + document['error']['message'])}"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _plain(text[:_SHOWN]) + ("…" if len(text) > _SHOWN else "")


def _plain(text: str) -> str:
    """Returns the text on one line."""
    return plain(text, kept="")
