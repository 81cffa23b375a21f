"""Tables of a route that are alike: decoded at once, their records become what each table makes of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.decode.settings import Reading
from frazil.error_classes import ErrorClass
from frazil.ingest.tasks.task_job import Job
from frazil.report import TaskReport
from frazil.routes import divide
from frazil.routes.share import Division, Share, parse_template
from frazil.routes.together import Together
from frazil.schema.projection import Shaping
from frazil.types import BadRecord, DerivedTable
from frazil.write.target import TableTarget
from tests.unit.ingest.targets import changed, records_of, run, target_of

COLUMNS = {"id": "long", "kind": "string", "place": "struct<city: string>", "tags": "list<string>"}
KINDS = ("a", "b", "c", "d")
Record = dict[str, Any] | bytes


def job_of(folder: Path, *, by: str = "kind", unlike: int = 0, **settings: Any) -> Job:
    """A route to four tables and the rest, of which the last `unlike` have a column more."""
    division = Division("lake.rest", parse_template(f"lake.${{{by}}}"), 200)
    settings = {"metadata": ("topic", "offset"), "reading": Reading(on_bad="dead_letter"), **settings}

    def table(name: str, columns: Mapping[str, str], *own: Any) -> TableTarget:
        dead_letters = target_of(folder, COLUMNS, name=f"{name}__dead_letters")
        share = Share(division, *own)
        return target_of(folder, columns, name=name, share=share, dead_letters=dead_letters, **settings)

    derived = tuple(DerivedTable(f"lake.{kind}", (kind,)) for kind in KINDS)
    more = {**COLUMNS, "more": "int"}
    tables = tuple(
        table(one.name, more if n >= len(KINDS) - unlike else COLUMNS, one.values) for n, one in enumerate(derived)
    )
    return Job({"t": table("lake.rest", COLUMNS, (), derived)}, beside={"t": tables})


def records(seed: int, count: int, *others: Record) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, len(KINDS), count)
    good: list[Record] = [
        {"id": n, "kind": KINDS[kinds[n]], "place": {"city": f"c{n}"} if n % 3 else None, "tags": ["x"] * (n % 4)}
        for n in range(count)
    ]
    values = [*good, *others]
    order = rng.permutation(len(values)).tolist()
    raw = [json.dumps(one).encode() if isinstance(one := values[n], dict) else one for n in order]
    return records_of({"value": value, "offset": n, "key": b"k", "timestamp": n * 1000} for n, value in enumerate(raw))


def outcome(reports: Mapping[str, TaskReport]) -> dict[str, Any]:
    """What tables get and report, but for the names and sizes of files."""
    found = {}
    for name, report in reports.items():
        files = [pq.ParquetFile(file.path).read().to_pylist() for file in report.written.data]
        rows = sorted((row for rows in files for row in rows), key=lambda row: row["_offset"])
        count = report.written.dead_letter_count
        others = asdict(replace(report, written=type(report.written)(), times=()))
        found[name] = {**others, "rows": rows, "dead_letters": count}
    return found


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs a job twice, and returns the outcome after comparing it with that of tables that read their own records."""

    def ran(job: Job, *batches: pa.RecordBatch, at_once: bool = True) -> dict[str, Any]:
        made: list[bool] = []
        make_rows = Together.make_rows

        def noted(self: Together, topic: str, some: pa.RecordBatch) -> Any:
            made.append((found := make_rows(self, topic, some)) is not None)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Together, "make_rows", noted)
            patch.setattr(divide, "_MANY_BYTES", 2000)
            found = outcome(run(job, *batches))
        with monkeypatch.context() as patch:
            patch.setattr(Together, "make_rows", lambda *_: None)
            assert found == outcome(run(job, *batches))
        assert made[0] is at_once
        return found

    return ran


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "others",
    [
        (),
        ({"id": 7}, {"id": 8, "kind": None}, {"id": 9, "kind": "no name"}, {"id": 10, "Kind": "a"}),
        (b"{", {"id": "x", "kind": "a"}, {"id": 2**70, "kind": "rest"}, {"id": "y", "kind": None}),
    ],
    ids=["good", "of the rest", "bad"],
)
@pytest.mark.parametrize("unlike", [0, 1])
def test_tables_get_the_same_rows_and_report_the_same(
    tmp_path: Path, both: Any, seed: int, others: tuple[Record, ...], unlike: int
) -> None:
    found = both(job_of(tmp_path, unlike=unlike), *(records(seed * 10 + n, 60, *others) for n in range(4)))
    assert sum(len(one["rows"]) + one["dead_letters"] for one in found.values()) == 4 * (60 + len(others))


@pytest.mark.parametrize(
    ("other", "asking"),
    [({"id": 1, "kind": "a", "new": 5}, "lake.a"), ({"id": 1, "kind": "rest", "new": 5}, "lake.rest")],
)
def test_only_the_table_of_a_record_is_asked_for_the_columns_that_it_needs(
    tmp_path: Path, both: Any, other: Record, asking: str
) -> None:
    found = both(job_of(tmp_path), records(1, 50, other), records(2, 50), at_once=False)
    assert [name for name, one in found.items() if one["schema"]["requested_fields"]] == [asking]


def test_a_new_value_makes_a_table_and_takes_its_records_from_the_rest(tmp_path: Path, both: Any) -> None:
    found = both(job_of(tmp_path), records(1, 50, {"id": 1, "kind": "e"}))
    (new,) = found["lake.rest"]["share"]["new_values"]
    assert (new["values"], new["topic"], new["count"]) == (("e",), "t", 1)


def test_tables_begin_at_offsets_of_their_own(tmp_path: Path, both: Any) -> None:
    starts = {f"lake.{kind}": {"t": {0: 10 * n}} for n, kind in enumerate((*KINDS, "rest"))}
    found = both(replace(job_of(tmp_path), starts=starts), records(1, 80, {"id": 1}))
    assert min(row["_offset"] for row in found["lake.d"]["rows"]) >= 30


@pytest.mark.parametrize(
    "settings",
    [
        {"by": "place.city"},
        {"by": "header.kind"},
        {"by": "topic"},
        {"by": "id"},
        {"shaping": Shaping(fields=(("kind", ("place", "city")),), exclude=(("kind",),))},
        {"reading": Reading(on_bad="skip", aliases=((("kind",), ("sort",)),))},
        {"tombstones": "ignore"},
        {"tombstones": "row"},
    ],
    ids=str,
)
def test_values_are_those_of_the_records_whatever_columns_they_become(
    tmp_path: Path, both: Any, settings: dict[str, Any]
) -> None:
    batch = records(3, 50, b"null")
    headers = pa.array([[{"key": "kind", "value": KINDS[n % 4].encode()}] for n in range(batch.num_rows)])
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    both(job_of(tmp_path, **settings), batch.append_column("headers", headers.cast(kind)))


def test_a_record_that_ends_tasks_is_read_by_no_table(tmp_path: Path, both: Any) -> None:
    job = job_of(tmp_path)
    crashing = (BadRecord("t", 0, 5, ErrorClass.CRASHES_DECODER, "", "too much memory"),)
    tables = tuple(changed(one, crashing=crashing) if one.name == "lake.a" else one for one in job.beside["t"])
    found = both(replace(job, beside={"t": tables}), records(1, 50), at_once=False)
    assert found["lake.a"]["bad_records"]["count"] == 1
