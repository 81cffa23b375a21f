"""`frazil replay`: writes rows of a table, or changes between two of its snapshots, to a topic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from frazil.api.redaction import Json
from frazil.api.wiring import (
    has_catalog,
    light_jvm,
    open_catalog_for_reading,
    open_topics,
    read_spec,
)
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.port import TableState
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.failures import named_jvm_death
from frazil.kafka.outbox import KafkaOutbox
from frazil.ops.audit import record_command
from frazil.printable import percent, plural
from frazil.registry.port import subject_of
from frazil.spec import PipelineSpec
from frazil.spec.syntax.problems import advice
from frazil.types import MAIN
from frazil.write.plain_target import plain_target
from frazil_registry.confluent import ConfluentRegistry
from frazil_replay.replay import Pace, Replay, ReplayProgress, Request, rows_where
from frazil_replay.snapshots import Snapshots
from frazil_replay.values import AvroEncoder, ConnectJsonEncoder, Encoder, JsonEncoder

_RATE = re.compile(r"([1-9][0-9]*)/s")
_NOTED_EVERY_S = 10.0


class Format(StrEnum):
    """The format of values and keys."""

    json = "json"
    json_schema = "json-schema"
    avro = "avro"


TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table, such as shop.orders.", show_default=False)]
To = Annotated[str, typer.Option(metavar="TOPIC", help="The topic to write to, which must exist.", show_default=False)]
Where = Annotated[
    str, typer.Option(metavar="CONDITION", help="Only rows for which this condition is true, in Spark SQL.")
]
FromSnapshot = Annotated[
    int | None,
    typer.Option(metavar="ID", help="Write the changes after this snapshot, instead of rows.", show_default=False),
]
ToSnapshot = Annotated[
    int | None,
    typer.Option(metavar="ID", help="The last snapshot; the newest unless given.", show_default=False),
]
Key = Annotated[str, typer.Option(metavar="COLUMNS", help="The columns of records' keys, separated by commas.")]
Rate = Annotated[str, typer.Option(metavar="N/s", help="At most this many records a second.")]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="A header of every record.", show_default=False),
]
FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        help="JSON; JSON with Kafka Connect's schema in every record (json-schema); or Avro of the schema registry.",
    ),
]


def command(  # noqa: PLR0913  (each is an option)
    output: Output,
    table: TableName,
    to: To,
    file: SpecFile = DEFAULT_FILE,
    where: Where = "",
    from_snapshot: FromSnapshot = None,
    to_snapshot: ToSnapshot = None,
    form: FormatOption = Format.json,
    key: Key = "",
    rate: Rate = "",
    header: Headers = None,
) -> None:
    """Write the rows of a table at a snapshot back to Kafka, each exactly once; with --from-snapshot, write the changes
    since that snapshot, each with the header _change_type, INSERT or DELETE. With --key the records have keys, and
    deleted rows become tombstones.

    May be interrupted at any time: the same command continues after the last record, at the same snapshot. When it is
    complete, the same command writes nothing more, until Kafka forgets its consumer group (`offsets.retention.minutes`,
    by default seven days after the last record). To replay dead letters, use `frazil dead-letters replay`.

    Exit code: 0 when every record is written; 1 when the catalog, the store, Kafka or the registry does not answer, or
    another process runs the same replay; 2 when the pipeline file, the condition or another argument is wrong.
    """
    spec = read_spec(output, file)
    clock = SystemClock()
    pace = Pace(clock, _parse_rate(rate))
    columns = tuple(filter(None, (column.strip() for column in key.split(","))))
    pairs = tuple(_parse_header(header_text) for header_text in header or ())
    if form is Format.avro and spec.registry is None:
        raise SpecError(
            "Avro needs a schema registry, and the pipeline file names none", remedy="add `registry`, or write JSON"
        )
    topic_id = _check_topic(spec, table, to)
    with named_jvm_death(), _open(spec, table, needs_spark=bool(where)) as (catalog, state):
        _check_columns(state, columns)
        request = Request(state.uuid, topic_id, to, from_snapshot, to_snapshot, where, form.value, columns, pairs)
        values, keys = _encoders(spec, state, request)
        replay = Replay(
            request,
            request.owner(spec.pipeline),
            Snapshots(catalog, table),
            plain_target(state),
            values,
            keys,
            rows_where(catalog.gateway.jvm, where, state.schema) if where else None,
        )
        outbox = KafkaOutbox(spec.kafka)
        begin = replay.progress(outbox) or ReplayProgress(_last_snapshot(state, to_snapshot))
        record_command(spec, "replay", table=table, to=to)
        if not begin.is_complete:
            _try(output, partial(replay.snapshots.hold, replay.owner, begin.snapshot_id))
        done = replay.run(outbox, begin, pace, _Notes(output, clock))
        _try(output, partial(replay.snapshots.let_go, replay.owner))
    document = {"pipeline": spec.pipeline, "table": table, **replay_document(request, replay.owner, begin, done)}
    output.result(document, _sentence(request, replay.owner, done, begin))


def replay_document(request: Request, owner: str, begin: ReplayProgress, done: ReplayProgress) -> dict[str, Json]:
    """Returns the JSON of a replay. begin: where this run of it began."""
    return {
        "topic": request.topic,
        "from_snapshot": request.after,
        "to_snapshot": done.snapshot_id,
        "records": done.records,
        "written_now": done.records - begin.records,
        "consumer_group": KafkaOutbox.group_of(owner),
    }


def _try(output: Output, step: Callable[[], None]) -> None:
    """Takes a step that whoever may only read the table cannot take: without it, the snapshot expires as others do."""
    try:
        step()
    except UnavailableError as error:
        output.note(f"{error.message}; the snapshot may expire before the replay is complete")


@contextmanager
def _open(spec: PipelineSpec, table: str, needs_spark: bool) -> Iterator[tuple[IcebergCatalog, TableState]]:
    if not has_catalog(spec):
        raise _missing_table(spec, table)
    with light_jvm(spec, needs_spark) as jvm:
        # What a branch has may not pass its audits.
        catalog = open_catalog_for_reading(jvm, spec).with_branches(lambda _: MAIN)
        state = catalog.load(table)
        if state is None:
            raise _missing_table(spec, table)
        yield catalog, state


def _missing_table(spec: PipelineSpec, table: str) -> SpecError:
    names = [table_spec.name for table_spec in spec.tables]
    remedy = advice(table, names) if names else "name a table that the catalog has"
    return SpecError(f"the catalog has no table `{table}`", remedy=remedy, where=table)


def _check_topic(spec: PipelineSpec, table: str, topic: str) -> str:
    """Returns the id of the topic.

    Raises: SpecError for a topic that does not exist, or that the table reads.
    """
    selectors = [selector for declared in spec.tables if declared.name == table for selector in declared.source.topics]
    if table == f"{spec.selected.namespace}.{topic}":
        selectors += spec.selected.topics
    selectors += [selector for route in spec.routes for selector in route.source.topics]
    if any(selector.matches(topic) for selector in selectors):
        raise SpecError(
            f"the table {table} reads the topic {topic}: its rows would become rows again, without end",
            remedy="write to another topic",
            where=f"topic {topic}",
        )
    topics = open_topics(spec).topics(lambda name: name == topic)
    if topic not in topics:
        raise SpecError(
            f"the topic {topic} does not exist", remedy="create it, with as many partitions as its readers need"
        )
    return topics[topic].id


def _check_columns(state: TableState, columns: Sequence[str]) -> None:
    names = [field.name for field in state.schema.fields]
    for column in columns:
        if column not in names:
            raise SpecError(
                f"the table has no column `{column}`", remedy=advice(column, names), where=f"--key, table {state.name}"
            )


def _encoders(spec: PipelineSpec, state: TableState, request: Request) -> tuple[Encoder, Encoder | None]:
    """Returns what makes values, and what makes keys."""
    fields = state.schema.fields
    key = [state.schema.find_field(name) for name in request.key]
    if request.form == Format.json:
        return JsonEncoder(fields), JsonEncoder(key) if key else None
    if request.form == Format.json_schema:
        return ConnectJsonEncoder(fields, state.name), ConnectJsonEncoder(key, f"{state.name}.Key") if key else None
    assert spec.registry is not None
    registry = ConfluentRegistry(spec.registry)
    register = [partial(registry.register, subject_of(request.topic, is_key=is_key)) for is_key in (False, True)]
    values = AvroEncoder(fields, state.name, register[0])
    return values, AvroEncoder(key, f"{state.name}_key", register[1]) if key else None


def _last_snapshot(state: TableState, asked: int | None) -> int:
    if asked is not None:
        return asked
    if state.head_id is None:
        raise SpecError("the table has no snapshot yet", remedy="run the pipeline first", where=state.name)
    return state.head_id


def _parse_rate(text: str) -> int | None:
    match = _RATE.fullmatch(text)
    if text and match is None:
        raise SpecError(f"`{text}` is not a rate", remedy="write records a second, such as 5000/s", where="--rate")
    return int(match[1]) if match else None


def _parse_header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise SpecError(f"`{text}` is not a header", remedy="write NAME=VALUE", where="--header")
    return name, value


# ---- output


def _sentence(request: Request, owner: str, done: ReplayProgress, begin: ReplayProgress) -> str:
    what = "records" if request.after is None else "changes"
    if begin.is_complete:
        return (
            f"complete already: {done.records:,} {what} up to snapshot {done.snapshot_id} are in {request.topic}. To write"
            f" later changes, add --from-snapshot {done.snapshot_id}; to write the same again, delete the consumer group"
            f" {KafkaOutbox.group_of(owner)}"
        )
    earlier = f", {begin.records:,} of them earlier" if begin.records else ""
    return f"{plural(done.records, what[:-1])} up to snapshot {done.snapshot_id} written to {request.topic}{earlier}"


class _Notes:
    """Shows how far a replay is, and writes it at most every ten seconds."""

    def __init__(self, output: Output, clock: SystemClock) -> None:
        self._output, self._clock = output, clock
        self._next_s = clock.monotonic_s() + _NOTED_EVERY_S

    def __call__(self, progress: ReplayProgress, share: float | None) -> None:
        text = f"{plural(progress.records, 'record')} written" + ("" if share is None else f", {percent(share, 1)}")
        self._output.doing(text)
        if self._clock.monotonic_s() >= self._next_s:
            self._next_s = self._clock.monotonic_s() + _NOTED_EVERY_S
            self._output.note(text)
