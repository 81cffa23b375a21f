"""`frazil status`: shows each table's state, lag and last commit, and why a table is stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from frazil.api.pipeline import open_pipeline
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.clock import SystemClock
from frazil.ops.pipeline_status import MaintenanceReport, PipelineReport, TableStatus, VerificationReport
from frazil.ops.reports import Problem, ago, count, duration, held_back, size
from frazil.ops.seen_by_readers import PublishReport
from frazil.printable import plural

OneTable = Annotated[
    str | None, typer.Argument(metavar="TABLE", help="Only this table, such as shop.orders.", show_default=False)
]
Watch = Annotated[bool, typer.Option("--watch", help="Refresh the status every two seconds, until Ctrl-C.")]
NOT_WELL = 4
_WATCH_EVERY_S = 2.0
_LONG_NAME = 32
_GAP = 2
_COLOURS = {
    "running": "green",
    "waiting": "green",
    "backing off": "yellow",
    "stopped": "red",
    "standby": "",
    "not running": "",
}


def command(output: Output, file: SpecFile = DEFAULT_FILE, table: OneTable = None, watch: Watch = False) -> int:
    """Show the state of each table, its lag in records and seconds, watermark, last commit, files and their sizes.

    A table that is stopped or backing off is shown with reason, place and remedy. Works whether or not the pipeline is
    running, and shows what is known when Kafka or the catalog does not answer. Changes nothing.

    Exit code: 0 when everything is healthy; 2 when the pipeline file is wrong; 4 when a table is stopped, backing off,
    missing or without a topic, or when Kafka, the catalog or the running process does not answer. A pipeline that is
    not running is not an error, and neither is lag, unless records wait for a table to which no run has committed yet,
    or which the last run could not read to its end. With --watch the exit code is for the last status shown.
    """
    pipeline, clock = open_pipeline(output, file), SystemClock()
    with pipeline.open_status() as reader:

        def show() -> int:
            report = reader.read(table, output.doing)
            if watch:
                output.end_progress()
                output.clear()
            output.result(report.document(), render(report))
            return 0 if report.is_well else NOT_WELL

        code = show()
        with suppress(KeyboardInterrupt):
            while watch:
                clock.sleep(_WATCH_EVERY_S)
                code = show()
    return code


def render(report: PipelineReport) -> RenderableType:
    """Returns the report for people: one line per table, then everything that needs attention."""
    lines = [Text.assemble(("pipeline ", "dim"), (report.pipeline, "bold"), ("  ", ""), _process(report))]
    return Group(
        *lines,
        *_leaders(report),
        *_offsets(report),
        _table(report),
        *_details(report),
        *_remarks(report),
    )


def _process(report: PipelineReport) -> str:
    process = report.process
    if process.is_running:
        return f"running as pid {process.pid} on {process.host}"
    if process.updated_ms is None:
        return "not running, and never run from this folder"
    return f"not running; last seen {ago(process.updated_ms, report.now_ms)}"


def _offsets(report: PipelineReport) -> Iterator[Text]:
    """Yields what tools that measure lag see, of a running pipeline that publishes its offsets."""
    published = report.published_offsets
    if published is None:
        return
    if published.failure:
        yield Text.assemble(("offsets", "yellow"), f"  not published in group {published.group}: {published.failure}")
    elif published.last_ms is not None:
        when = ago(published.last_ms, report.now_ms)
        yield Text(f"offsets  in consumer group {published.group}, last {when}", style="dim")


def _leaders(report: PipelineReport) -> Iterator[Text]:
    """Yields who leads the processes of the pipeline, and how warm the others are, where there is an election."""
    state = report.leadership
    if state is None or state.elect == "none":
        return
    if state.leader is None:
        yield Text("no process leads", style="yellow")
    else:
        why = f" ({state.reason})" if state.reason else ""
        yield Text.assemble(("leader ", "dim"), f"{state.leader}, since {ago(state.since_ms, report.now_ms)}{why}")
    this_version = next((member.version for member in state.members if member.name == state.name), "")
    for member in state.members:
        if member.name != state.leader:
            version = "" if member.version == this_version else f", version {member.version}"
            warm = "warm" if member.is_warm else "not warm yet"
            yield Text.assemble(("standby ", "dim"), f"{member.name}, {warm}{version}")


@dataclass(frozen=True)
class _Fitted:
    """A line for each table, with as many columns as the terminal has room for, and a remark about those that are left out:
    a number that is cut would be another one.
    """

    #: The title of the column with the tables' names, then those of the others; the last ones are left out first.
    titles: Sequence[str]
    #: The name of each table, and its other texts.
    rows: Sequence[Sequence[str | Text]]
    #: The number of columns that are text, the first one included.
    texts: int = 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """See rich. A name is broken into lines where it alone is too long."""
        widths = [max(cell_len(str(cell)) for cell in column) for column in zip(self.titles, *self.rows, strict=True)]
        widths[0] = min(widths[0], max(_LONG_NAME, cell_len(self.titles[0])))
        kept = len(widths)
        while kept > 2 and sum(widths[:kept]) + _GAP * (kept - 1) > options.max_width:
            kept -= 1
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
        table.add_column(self.titles[0], overflow="fold")
        for place, title in enumerate(self.titles[1:kept], 1):
            table.add_column(title, justify="left" if place < self.texts else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*row[:kept])
        yield table
        if kept < len(widths):
            yield Text(f"(a wider terminal shows {', '.join(self.titles[kept:])})", style="dim")


def _table(report: PipelineReport) -> _Fitted:
    titles = ("table", "state", "lag", "complete to", "last commit", "rows", "files", "snapshots", "maintained")
    rows: list[Sequence[str | Text]] = [
        (
            table.name,
            Text(table.condition.state, style=_COLOURS.get(table.condition.state, "")),
            *_numbers(table, report.now_ms),
        )
        for table in report.tables
    ]
    return _Fitted(titles, rows, texts=2)


def _numbers(table: TableStatus, now_ms: int) -> tuple[str, ...]:
    progress, derived = table.progress, table.derived
    lag = count(table.lag.lag_records)
    if table.lag.lag_records and derived.lag_s is not None:
        lag += f" ({duration(derived.lag_s)})"
    files = count(derived.files)
    if derived.files:
        files += f" × {size(derived.average_file_bytes)}"
    return (
        lag,
        ago(progress.watermark_ms, now_ms),
        "never" if progress.committed is False else ago(progress.last_commit_ms, now_ms),
        count(derived.rows),
        files,
        count(derived.snapshots),
        ago(derived.maintenance.last_ms if derived.maintenance else None, now_ms),
    )


def _details(report: PipelineReport) -> Iterator[RenderableType]:
    """Yields the health of the tables that could be loaded, and the last batch of each upsert table."""
    titles = ("table", "median file", "small files", "delete files", "deleted rows", "manifests", "metadata")
    health = [
        (
            table.name,
            size(storage.p50_bytes),
            f"{storage.small_share:.0%}",
            *map(count, (storage.delete_files, storage.deleted_rows, storage.manifests)),
            size(storage.metadata_bytes),
        )
        for table in report.tables
        if (storage := table.derived.maintenance) is not None
    ]
    batch_titles = ("upsert table, last batch", "changes", "rows deleted", "files inspected")
    batches = [
        (table.name, count(last.changes), count(last.deleted), f"{count(last.inspected)} of {count(last.files)}")
        for table in report.tables
        if (last := table.noticed.last_upsert) is not None
    ]
    for fitted in (_Fitted(titles, health), _Fitted(batch_titles, batches)):
        if fitted.rows:
            yield from (Text(""), fitted)


def _remarks(report: PipelineReport) -> Iterator[Text]:
    for problem in report.problems:
        yield from _explain(problem, "problem", "red")
    for table in report.tables:
        yield from _about(table, report.now_ms)


def _about(table: TableStatus, now_ms: int) -> Iterator[Text]:
    """Yields what a reader of a table's line should know."""
    if table.condition.problem is not None:
        mark, colour = ("note", "dim") if table.derived.is_well else ("problem", "red")
        yield from _explain(table.condition.problem, f"{mark}: {table.name}", colour)
    if table.noticed.dropped_fields:
        fields = ", ".join(table.noticed.dropped_fields)
        yield Text(f"\n{table.name} drops unknown fields: {fields}", style="dim")
    held = held_back(table.lag.open_transactions)
    if held is not None:
        yield from _explain(held, f"note: {table.name}", "yellow")
    layout = {"partitioned": table.derived.partition_spec, "sorted": table.derived.sort_order}
    words = [f"{how} by {', '.join(terms)}" for how, terms in layout.items() if terms]
    if words:
        yield Text(f"\n{table.name} is {' and '.join(words)}", style="dim")
    yield from _about_records(table)
    yield from _about_expectations(table)
    if table.derived.maintenance is not None:
        yield from _maintenance_lines(table.name, table.derived.maintenance)
    if table.derived.verification is not None:
        yield from _verification_lines(table.name, table.derived.verification, now_ms)
    if table.derived.publishing is not None:
        yield from _publishing_lines(table.name, table.derived.publishing, now_ms)


def _about_records(table: TableStatus) -> Iterator[Text]:
    """Yields the numbers of records that did not become rows."""
    name, progress = table.name, table.progress
    if progress.dead_letters:
        yield Text(f"\n{name} has {plural(progress.dead_letters, 'dead letter')}: run `frazil dead-letters list`")
    if progress.waiting_records:
        yield Text(
            f"\n{name} has records that wait for a row of a reference table: {progress.waiting_records:,}", style="dim"
        )
    if progress.bad_skipped:
        yield Text(f"\n{name} has skipped {plural(progress.bad_skipped, 'bad record')}: `on_bad_record: skip`")
    if table.noticed.skipped_offsets:
        offsets = plural(table.noticed.skipped_offsets, "offset")
        yield Text(f"\n{name} has skipped {offsets} whose records Kafka had deleted: `on_data_loss: skip`")
    if progress.rest_records:
        yield Text(f"\n{name} has records that no other table of its route takes: {_counts(progress.rest_records)}")
    if progress.ignored_records:
        kinds = _counts(progress.ignored_records)
        yield Text(f"\n{name} has ignored records that change no row: {kinds}", style="dim")
    for refused in table.derived.refused_changes:
        word = "schema" if len(refused.schemas) == 1 else "schemas"
        by = f"{word} {', '.join(refused.schemas)}: " if refused.schemas else ""
        yield Text(f"\n{name} refuses a change: {by}{refused.change}")
        if refused.remedy:
            yield Text(f"  remedy: {refused.remedy}", style="yellow")


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{count(number)} {name}" for name, number in sorted(numbers.items()))


def _about_expectations(table: TableStatus) -> Iterator[Text]:
    """Yields what is not as `expect` of the table has it."""
    unmet = {name: number for name, number in (table.progress.expectations or {}).items() if number}
    if unmet:
        yield Text(f"\n{table.name} is not as expected: {_counts(unmet)}")
    for name, age_s in table.derived.stale.items():
        yield Text.assemble(
            (f"\nnote: {table.name}", "yellow"), f": the newest record is {duration(age_s)} old ({name})"
        )


def _maintenance_lines(name: str, maintenance: MaintenanceReport) -> Iterator[Text]:
    """Yields due maintenance."""
    if maintenance.due or maintenance.waiting or maintenance.above_cap:
        yield Text(f"\n{name} is due for maintenance", style="dim")
    for words in (*maintenance.due, *(f"waiting: {words}" for words in maintenance.waiting)):
        yield Text(f"  {words}", style="dim")
    for words in maintenance.above_cap:
        yield Text(f"  slows readers down: {words}; run `frazil maintain`", style="yellow")
    if maintenance.slowed_by > 1:
        words = f"commits are up to {maintenance.slowed_by:g} times as far apart until maintenance has caught up"
        yield Text.assemble((f"\nnote: {name}", "yellow"), f": {words}")
    if maintenance.failure:
        yield Text.assemble((f"\nnote: {name}", "yellow"), f": maintenance failed: {maintenance.failure}")


def _verification_lines(name: str, report: VerificationReport, now_ms: int) -> Iterator[Text]:
    """Yields what comparing commits with the topics has found."""
    if report.last_ms is not None:
        what = f"{plural(report.commits, 'commit')} with {plural(report.records, 'record')} compared with the topics"
        yield Text(f"\n{name}: {what}, last {ago(report.last_ms, now_ms)}", style="dim")
    if report.missing or report.surplus:
        style, mark = ("red", "problem") if report.is_equal is False else ("yellow", "note")
        rows = f"{plural(report.missing, 'row')} missing, {plural(report.surplus, 'row')} surplus in these commits"
        yield Text.assemble((f"\n{mark}: {name}", style), f": {rows}; run `frazil verify {name}`")
    if report.reason:
        yield Text(f"\n{name}: not all commits were compared: {report.reason}", style="dim")


def _publishing_lines(name: str, report: PublishReport, now_ms: int) -> Iterator[Text]:
    """Yields what readers of a table with a branch see, and why not more."""
    if report.snapshot_id is None:
        yield Text(f"\n{name} commits to the branch {report.branch}; nothing is published yet", style="dim")
    else:
        when = "" if report.published_ms is None else f", published {ago(report.published_ms, now_ms)}"
        what = f"main has the snapshot {report.snapshot_id}{when}"
        yield Text(f"\n{name} commits to the branch {report.branch}; {what}", style="dim")
    if report.reason:
        colour = "red" if report.state in ("held", "diverged") else "yellow"
        mark = "problem" if report.state in ("held", "diverged") else "note"
        yield from _explain(Problem(f"not published: {report.reason}", report.remedy), f"{mark}: {name}", colour)
    for audit in report.failed_audits:
        yield Text(f"  {audit.name}: {audit.reason}")
        for row in audit.rows:
            yield Text(f"    {row}", style="dim")


def _explain(problem: Problem, mark: str, colour: str) -> Iterator[Text]:
    yield Text.assemble((f"\n{mark}: ", colour), problem.message)
    for word, text in (("where", problem.where), ("remedy", problem.remedy)):
        if text:
            yield Text.assemble((f"  {word}: ", "dim"), text)
