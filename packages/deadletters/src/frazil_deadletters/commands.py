"""`frazil dead-letters`: lists, shows, replays and drops the records that could not become rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from frazil.api.redaction import Json
from frazil.api.wiring import (
    catalog_and_queries,
    known_state,
    open_schemas,
    read_spec,
    topics_for_reading,
)
from frazil.catalog.port import Catalog, TableState
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.dead_letters.files import Selection
from frazil.dead_letters.record import FAR_TIME
from frazil.error_classes import ErrorClass
from frazil.errors import UnavailableError
from frazil.ingest.failures import TableStopped, named_jvm_death
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import Table
from frazil.kafka.port import TopicReaders
from frazil.kafka.reader import KafkaReader
from frazil.ops.audit import record_command
from frazil.ops.status import find_tables
from frazil.printable import plain, plural
from frazil.spec import PipelineSpec
from frazil.spec.syntax.problems import advice
from frazil_deadletters.documents import (
    DeadLetterClass,
    bytes_document,
    classes_document,
    classes_of,
    count_dead_letters,
    dead_letter_document,
    newest_dead_letters,
    time_text,
)
from frazil_deadletters.replay import Replayer

TableName = Annotated[
    str | None, typer.Argument(metavar="TABLE", help="Only this table, such as shop.orders.", show_default=False)
]
ClassName = Annotated[str | None, typer.Option(help="Only dead letters of this error class.")]
Topic = Annotated[str | None, typer.Option(help="Only dead letters from this topic.")]
Partition = Annotated[int | None, typer.Option(min=0, help="Only dead letters from this partition.")]
Offset = Annotated[int | None, typer.Option(min=0, help="Only the dead letter of this offset.")]
Limit = Annotated[int, typer.Option(min=1, help="The maximum number of dead letters per table.")]
Yes = Annotated[bool, typer.Option("--yes", help="Remove the dead letters.")]
NOT_DONE = 1
_SHOWN = 400


@dataclass(frozen=True)
class _Desk:
    """What the four commands work with."""

    catalog: Catalog
    replayer: Replayer
    tables: list[Table]

    def settled(self) -> Iterator[tuple[Table, TableState | None]]:
        """Yields each table with its dead-letter table, after everything unfinished there is finished."""
        for table in self.tables:
            yield table, self.replayer.settled(table)


def list_dead_letters(output: Output, file: SpecFile = DEFAULT_FILE, table: TableName = None) -> None:
    """Show the number of dead letters of each table by error class, with the timestamps of the first and the last record
    and one message as an example.

    Exit code: 0; 1 when the catalog does not answer; 2 when the pipeline file is wrong.
    """
    spec = read_spec(output, file)
    tables: dict[str, Any] = {}
    lines: list[str] = []
    with _open(spec, table) as desk:
        for owner, dead_letters in desk.settled():
            classes = classes_of(desk.catalog, dead_letters) if dead_letters is not None else []
            name = dead_letters.name if dead_letters is not None else None
            tables[owner.name] = classes_document(name, classes)
            count = tables[owner.name]["dead_letters"]
            lines.append(f"{owner.name}: {plural(count, 'dead letter')}" + (f" in {name}" if count else ""))
            lines += _class_lines(classes)
    output.result({"pipeline": spec.pipeline, "tables": tables}, "\n".join(lines) or "no tables")


def show(  # noqa: PLR0913  (each is an option)
    output: Output,
    file: SpecFile = DEFAULT_FILE,
    table: TableName = None,
    error_class: ClassName = None,
    topic: Topic = None,
    partition: Partition = None,
    offset: Offset = None,
    limit: Limit = 20,
) -> None:
    """Show dead letters, the newest first: topic, partition and offset of the record, the error, and the record itself.

    Keys, values and headers are shown as text, or in base64 where they are not UTF-8. Text output truncates long ones;
    --output json does not.

    Exit code: 0; 1 when the catalog does not answer; 2 when the pipeline file is wrong.
    """
    spec = read_spec(output, file)
    selection = Selection(error_class, topic, partition, offset)
    tables: dict[str, Any] = {}
    lines: list[str] = []
    with _open(spec, table) as desk:
        for owner, dead_letters in desk.settled():
            tables[owner.name] = []
            if dead_letters is not None:
                for dead_letter in newest_dead_letters(desk.catalog, dead_letters, selection, limit):
                    tables[owner.name].append(dead_letter_document(dead_letter))
                    lines += [*_dead_letter_lines(owner.name, dead_letter), ""]
    output.result({"pipeline": spec.pipeline, "tables": tables}, "\n".join(lines) or "no such dead letters")
    _note_class(output, selection, is_empty=not lines)


def replay(
    output: Output,
    file: SpecFile = DEFAULT_FILE,
    table: TableName = None,
    error_class: ClassName = None,
    topic: Topic = None,
    partition: Partition = None,
    offset: Offset = None,
) -> None:
    """Replay dead letters: decode them again with the current schemas, columns and code, and write those that succeed into
    their table, each exactly once. A table first gets the columns that replayed records need.

    A dead letter that fails again remains, with its current error; in an upsert table a dead letter also remains when a
    newer change of its row exists. `frazil run` may be running. A replay can be interrupted at any time: the next
    command or run finishes it.

    Exit code: 0; 1 when the catalog, the store, Kafka or the schema registry does not answer, which loses nothing; 2 when
    the pipeline file is wrong.
    """
    spec = read_spec(output, file)
    selection = Selection(error_class, topic, partition, offset)
    tables: dict[str, Any] = {}
    lines: list[str] = []
    with _open(spec, table, open_schemas(spec)) as desk:
        record_command(spec, "dead-letters replay", table=table, **_given(selection))
        for owner in desk.tables:
            done = desk.replayer.replay(owner, selection)
            tables[owner.name] = {"replayed": done.replayed, "remaining": done.remaining}
            if done.replayed or done.remaining:
                lines.append(
                    f"{owner.name}: {plural(done.replayed, 'dead letter')} replayed, {done.remaining:,} remaining"
                )
    if any(counts["remaining"] for counts in tables.values()):
        lines.append("`frazil dead-letters list` shows the reasons of the remaining dead letters")
    output.result({"pipeline": spec.pipeline, "tables": tables}, "\n".join(lines) or "no such dead letters")
    _note_class(output, selection, is_empty=not lines)


def drop(  # noqa: PLR0913  (each is an option)
    output: Output,
    file: SpecFile = DEFAULT_FILE,
    table: TableName = None,
    error_class: ClassName = None,
    topic: Topic = None,
    partition: Partition = None,
    offset: Offset = None,
    yes: Yes = False,
) -> int:
    """Remove dead letters permanently. Without --yes the command only shows how many it would remove.

    Exit code: 0 when they are removed; 1 without --yes, or when the catalog does not answer; 2 when the file is wrong.
    """
    spec = read_spec(output, file)
    selection = Selection(error_class, topic, partition, offset)
    with _open(spec, table) as desk:
        if yes:
            record_command(spec, "dead-letters drop", table=table, **_given(selection))
            counts = {owner.name: desk.replayer.drop(owner, selection) for owner in desk.tables}
        else:
            counts = {
                owner.name: count_dead_letters(desk.catalog, dead_letters, selection) if dead_letters is not None else 0
                for owner, dead_letters in desk.settled()
            }
    word = "removed" if yes else "would be removed"
    lines = [f"{name}: {plural(count, 'dead letter')} {word}" for name, count in counts.items() if count]
    if not yes and lines:
        lines.append("nothing was changed; add --yes to remove them")
    tables = {name: {"dead_letters": count} for name, count in counts.items()}
    document: Json = {"pipeline": spec.pipeline, "dropped": yes, "tables": tables}
    output.result(document, "\n".join(lines) or "no such dead letters")
    _note_class(output, selection, is_empty=not lines)
    return 0 if yes else NOT_DONE


def _note_class(output: Output, selection: Selection, *, is_empty: bool) -> None:
    """Writes which error class was probably meant where no dead letter has one that only a package could have."""
    name, known = selection.error_class, [member.value for member in ErrorClass]
    if is_empty and name is not None and name not in known:
        output.note(f"`{name}` is not an error class of Frazil: {advice(name, known)}")


def _given(selection: Selection) -> dict[str, Any]:
    return {name: value for name, value in asdict(selection).items() if value is not None}


@contextmanager
def _open(spec: PipelineSpec, name: str | None, schemas: Schemas | None = None) -> Iterator[_Desk]:
    """Opens the catalog and finds the tables. A stopped table is an error here: there is no other table to continue
    with.
    """
    topics = topics_for_reading(spec)
    tables = find_tables(spec, topics, known_state(spec), name)
    topic_readers = TopicReaders(topics, KafkaReader(spec.kafka))
    try:
        with named_jvm_death(), catalog_and_queries(spec, commits=True) as (catalog, queries):
            yield _Desk(catalog, Replayer(catalog, schemas, topic_readers, queries), tables)
    except TableStopped as error:
        raise UnavailableError(error.reason, remedy=error.remedy, where=error.where) from None


# ---- output


def _class_lines(classes: list[DeadLetterClass]) -> Iterator[str]:
    width = max((len(group.error_class) for group in classes), default=0)
    for group in classes:
        times = f"{time_text(group.first) or '–'} to {time_text(group.last) or '–'}"
        yield f"  {group.error_class:<{width}}  {group.count:>9,}  {times}"
        place = f"field {_plain(group.path)}: " if group.path else ""
        yield f"  {'':<{width}}  such as: {place}{_plain(group.example)}"


def _dead_letter_lines(table: str, dead_letter: dict[str, Any]) -> Iterator[str]:
    place = f"topic {dead_letter['topic']}, partition {dead_letter['partition']}, offset {dead_letter['offset']}"
    far_ms = dead_letter.get(FAR_TIME)
    time = time_text(dead_letter["timestamp"]) or (f"timestamp {far_ms} ms" if far_ms is not None else "no timestamp")
    yield f"{table}: {place}, {time}"
    field = f"field {_plain(dead_letter['path'])}: " if dead_letter["path"] else ""
    yield f"  {dead_letter['error_class']}: {field}{_plain(dead_letter['message'] or '')}"
    schema = f"  schema: {dead_letter['schema_id']}" if dead_letter["schema_id"] else ""
    yield f"  replays: {dead_letter['retries']}{schema}"
    yield f"  key:     {_shown(dead_letter['key'])}"
    yield f"  value:   {_shown(dead_letter['value'])}"
    for header in dead_letter["headers"] or ():
        yield f"  header:  {_plain(header['key'])} = {_shown(header['value'])}"


def _shown(raw: bytes | None) -> str:
    document = bytes_document(raw)
    if document is None or raw is None:
        return "none"
    [(form, text)] = document.items()
    if form == "encrypted":
        return f"encrypted with the key {text} ({len(raw):,} bytes)"
    shown = _plain(text[:_SHOWN]) + (f"… ({len(raw):,} bytes)" if len(text) > _SHOWN else "")
    return f"base64 {shown}" if form == "base64" else shown


def _plain(text: str) -> str:
    """Returns the text on one line."""
    return plain(text, kept="")
