"""The report of a task on one table: JSON on its way to the driver, where the reports of all tasks are merged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from frazil.report.bad_records import MOST_BAD, BadRecords
from frazil.report.changes import ChangeReport
from frazil.report.counts import Counts
from frazil.report.files import WrittenFiles
from frazil.report.schema_requests import SchemaRequests


@dataclass(frozen=True)
class TaskReport:
    """The results of a task, or of all tasks of a batch after `merge_reports`, for one table's ranges."""

    #: `namespace.table`.
    table: str
    #: Numbers and sizes of the records that were read.
    counts: Counts = field(default_factory=Counts)
    #: The files that were written.
    written: WrittenFiles = field(default_factory=WrittenFiles)
    #: Schema changes, key columns and registry schemas that the records need.
    schema: SchemaRequests = field(default_factory=SchemaRequests)
    #: The number of bad records, and the first of them.
    bad_records: BadRecords = field(default_factory=BadRecords)
    #: The changes of an upsert table.
    changes: ChangeReport = field(default_factory=ChangeReport)


def merge_reports(table: str, reports: Iterable[TaskReport], limit: int = MOST_BAD) -> TaskReport:
    """Returns the reports of all tasks of one batch for `table` as one report, with the first `limit` bad records by
    position.
    """
    mine = [report for report in reports if report.table == table]
    return TaskReport(
        table,
        Counts.merge([report.counts for report in mine]),
        WrittenFiles.merge([report.written for report in mine]),
        SchemaRequests.merge([report.schema for report in mine]),
        BadRecords.merge([report.bad_records for report in mine], limit),
        ChangeReport.merge([report.changes for report in mine]),
    )


def dump_report(report: TaskReport) -> str:
    """Returns a report as JSON."""
    return json.dumps(asdict(report), default=sorted)


def load_report(text: str) -> TaskReport:
    """Returns the report that `dump_report` wrote."""
    fields = json.loads(text)
    return TaskReport(
        fields["table"],
        Counts.load(fields["counts"]),
        WrittenFiles.load(fields["written"]),
        SchemaRequests.load(fields["schema"]),
        BadRecords.load(fields["bad_records"]),
        ChangeReport.load(fields["changes"]),
    )
