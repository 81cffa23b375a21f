"""Records whose timestamp no reader of the table could show."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.dead_letters.record import DEAD_LETTER_TYPES
from frazil.decode.epochs import FIRST_US, LAST_US
from frazil.decode.settings import Reading
from frazil.ingest.tasks.task import read_records
from frazil.ingest.tasks.task_job import Job
from frazil.kafka.port import FARTHEST_MS
from frazil.report import TaskReport
from frazil.spec.settings import MetadataField
from tests.unit.ingest.targets import changed, records_of, run, target_of

_ENDS = (FIRST_US, LAST_US - 1)
_FAR = (FIRST_US - 1, LAST_US, FARTHEST_MS * 1000, -FARTHEST_MS * 1000)
_BEYOND = {_FAR[2]: " or later", _FAR[3]: " or earlier"}
"""What tasks have of timestamps whose microseconds do not fit in 64 bits."""


def _read(root: Path, metadata: tuple[MetadataField, ...]) -> TaskReport:
    dead_letters = target_of(
        root, {name: str(kind) for name, kind in DEAD_LETTER_TYPES.items() if name in _DEAD_LETTER}, name="lake.d"
    )
    reading = Reading(on_bad="dead_letter")
    target = target_of(root, {"id": "long"}, reading=reading, dead_letters=dead_letters, metadata=metadata)
    times = [*_ENDS, *_FAR]
    batch = records_of([{"offset": n, "timestamp": at, "value": b'{"id": %d}' % n} for n, at in enumerate(times)])
    return run(Job({"a": target}), batch)["lake.t"]


_DEAD_LETTER = ("offset", "timestamp", "timestamp_ms", "error_class", "message", "path")


def test_records_with_a_timestamp_outside_of_the_years_1_to_9999_are_dead_letters_where_a_column_holds_it(
    tmp_path: Path,
) -> None:
    report = _read(tmp_path, ("timestamp",))
    (rows,) = (pq.read_table(file.path) for file in report.written.data)
    assert rows["id"].to_pylist() == [0, 1]
    assert rows["_timestamp"].cast(pa.int64()).to_pylist() == list(_ENDS)
    (dead_letters,) = (pq.read_table(file.path).to_pylist() for file in report.written.dead_letters)
    assert dead_letters == [
        {
            "offset": 2 + n,
            "timestamp": None,
            "timestamp_ms": -(-far // 1000) if far < 0 else far // 1000,
            "error_class": "out_of_range",
            "message": f"the record's timestamp of {far // 1000} ms{_BEYOND.get(far, '')} is outside the years 1 to 9999",
            "path": "_timestamp",
        }
        for n, far in enumerate(_FAR)
    ]


@pytest.mark.parametrize("metadata", [(), ("offset",)])
def test_such_records_are_rows_where_no_column_holds_it(tmp_path: Path, metadata: tuple[MetadataField, ...]) -> None:
    report = _read(tmp_path, metadata)
    assert (report.counts.record_count, report.bad_records.count) == (2 + len(_FAR), 0)


def test_an_ignored_tombstone_beside_such_a_record_is_no_row(tmp_path: Path) -> None:
    target = changed(target_of(tmp_path, {"id": "long"}, metadata=("timestamp",)), tombstones="ignore")
    values = [b'{"id": 1}', None, b'{"id": 3}']
    times = [*_ENDS, _FAR[0]]
    batch = records_of([{"timestamp": at, "value": value} for at, value in zip(times, values, strict=True)])
    records = dict(zip(batch.schema.names, batch.columns, strict=True))
    found = read_records(target, "a", records)
    assert found.without_refused().columns[0].to_pylist() == [1]
    assert found.ignored_records == {"tombstone": 1}
