"""The verifier itself: a table is damaged on purpose in every way it must notice, and mended again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.acceptance import verifier
from tests.acceptance.ledger import events
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.verifier import data_files, verify
from tests.fixtures.readers import IN_PROCESS, read_with_duckdb

pytestmark = pytest.mark.timeout(600)

COMMITS = 3


class Victim:
    """A table of several snapshots, whole. files: the oldest first."""

    def __init__(self, pipeline: Pipeline, table: str, topic: str) -> None:
        self.pipeline = pipeline
        self.table = table
        self.topic = topic
        metadata = pipeline.metadata(table)
        assert metadata is not None
        self.metadata = metadata
        self.files = sorted(data_files(metadata), key=lambda file: file.stat().st_mtime_ns)

    def problems(self, metadata: Path | None = None) -> list[str]:
        """What the verifier reports now."""
        return verify(metadata or self.metadata, self.pipeline.name, self.pipeline.ledger.records).problems

    @contextmanager
    def damaged(self, file: Path) -> Iterator[pa.Table]:
        """The rows of a data file, which may be replaced while the block lasts."""
        kept = file.with_suffix(".kept")
        shutil.copyfile(file, kept)
        try:
            yield pq.read_table(file, partitioning=None)
        finally:
            kept.replace(file)


@pytest.fixture(scope="module")
def victim(shared_pipeline: Pipeline) -> Victim:
    """Three commits of a hundred records, seen to be whole."""
    table, topic = shared_pipeline.add_fed_table("victim", partitions=1)
    run = shared_pipeline.run()
    for number in range(COMMITS):
        shared_pipeline.feed.produce(topic, events(100, number * 100))
        shared_pipeline.wait_for_commit_of(table, run)
    assert run.stop() == 0
    made = Victim(shared_pipeline, table, topic)
    assert made.problems() == []
    assert len(made.files) >= COMMITS
    return made


def test_a_row_that_is_missing_is_lost(victim: Victim) -> None:
    with victim.damaged(victim.files[0]) as rows:
        place = verifier.place_of(rows.slice(0, 1).to_pylist()[0])
        pq.write_table(rows.slice(1), victim.files[0])
        problems = victim.problems()
    assert len(problems) >= 2, "a snapshot and the second reader"
    assert all(f"lost 1 ([{place}])" in problem for problem in problems)


def test_a_row_that_is_there_twice_is_doubled(victim: Victim) -> None:
    with victim.damaged(victim.files[0]) as rows:
        pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), victim.files[0])
        problems = victim.problems()
    assert problems
    assert all("doubled 1 (" in problem for problem in problems)


def test_a_changed_value_is_a_mismatch(victim: Victim) -> None:
    with victim.damaged(victim.files[-1]) as rows:
        at = rows.schema.get_field_index("text")
        texts = pa.array(["changed", *rows["text"].to_pylist()[1:]])
        pq.write_table(rows.set_column(at, rows.schema.field(at), texts), victim.files[-1])
        problems = victim.problems()
    assert problems
    assert all("mismatched 1 (" in problem for problem in problems)


def test_a_value_that_went_missing_is_a_mismatch(victim: Victim) -> None:
    with victim.damaged(victim.files[-1]) as rows:
        at = rows.schema.get_field_index("where")
        empty = pa.nulls(rows.num_rows, rows.schema.field(at).type)
        pq.write_table(rows.set_column(at, rows.schema.field(at), empty), victim.files[-1])
        problems = victim.problems()
    assert problems
    assert all(f"mismatched {rows.num_rows} (" in problem for problem in problems)


def test_a_row_that_nobody_produced_is_invented(victim: Victim) -> None:
    with victim.damaged(victim.files[0]) as rows:
        at = rows.schema.get_field_index("_offset")
        offsets = pa.array([10_000, *rows["_offset"].to_pylist()[1:]], pa.int64())
        pq.write_table(rows.set_column(at, rows.schema.field(at), offsets), victim.files[0])
        problems = victim.problems()
    assert problems
    assert all("lost 1 (" in problem for problem in problems)
    assert all(f"invented 1 ([('{victim.topic}', 0, 10000)])" in problem for problem in problems)


def test_a_row_of_an_aborted_transaction_is_invented(victim: Victim) -> None:
    records = victim.pipeline.ledger.records
    place, value = records.popitem()
    try:
        problems = victim.problems()
    finally:
        records[place] = value
    assert problems
    assert all("invented 1 (" in problem for problem in problems)


def test_a_file_committed_twice_is_doubled(victim: Victim, operator: Operator) -> None:
    path = victim.files[0]
    count = pq.read_metadata(path).num_rows
    table = operator.open(victim.pipeline.folder, victim.table)
    before = table.snapshot_ids[-1]
    table.append_again(path)
    damaged = victim.pipeline.metadata(victim.table)
    assert damaged is not None
    problems = victim.problems(damaged)
    table.roll_back(before)
    assert any(f"doubled {count} (" in problem for problem in problems)
    assert any("is in the table 2 times" in problem for problem in problems)


def test_a_snapshot_that_cannot_say_how_far_it_goes_may_lack_rows_and_nothing_else(victim: Victim) -> None:
    document = json.loads(victim.metadata.read_text())
    *_, silent, newest = sorted(document["snapshots"], key=lambda one: one["sequence-number"])
    silent["summary"] = {"operation": "replace"}
    document |= {"snapshots": [silent, newest], "snapshot-log": [], "metadata-log": []}
    doctored = victim.metadata.with_name("doctored.metadata.json")
    doctored.write_text(json.dumps(document))
    assert victim.problems(doctored) == []
    with victim.damaged(victim.files[0]) as rows:
        pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), victim.files[0])
        problems = [problem for problem in victim.problems(doctored) if problem.startswith("snapshot")]
    assert any(f"snapshot {silent['sequence-number']} at {{}}: doubled 1 (" in problem for problem in problems)


def test_a_snapshot_with_a_file_that_is_gone_cannot_be_read(victim: Victim) -> None:
    with victim.damaged(victim.files[0]):
        victim.files[0].unlink()
        problems = victim.problems()
    assert problems
    assert all("cannot be read" in problem for problem in problems)


def test_a_file_that_the_metadata_does_not_lead_to_is_unnamed(victim: Victim) -> None:
    before = verifier.unnamed_metadata(victim.metadata)
    stray = victim.metadata.with_name("stray.avro")
    shutil.copyfile(victim.metadata, stray)
    assert verifier.unnamed_metadata(victim.metadata) - before == {str(stray)}
    document = json.loads(victim.metadata.read_text())
    named = [document["snapshots"][0]["manifest-list"], document["metadata-log"][0]["metadata-file"]]
    assert before.isdisjoint({str(victim.metadata), *(str(verifier.local_path(path)) for path in named)})
    stray.unlink()


def test_a_table_that_no_test_has_shown_to_readers_is_shown_to_them_in_the_end(victim: Victim) -> None:
    pipeline, table = victim.pipeline, victim.table
    blind = {**IN_PROCESS, "blind": lambda metadata, snapshot: read_with_duckdb(metadata, snapshot).slice(1)}
    pipeline.readers[table] = blind
    with pytest.raises(AssertionError, match=rf"DuckDB reads {COMMITS * 100} rows, blind {COMMITS * 100 - 1}"):
        pipeline.check_all_readers()
    del pipeline.readers[table]
    pipeline.check_all_readers()
    pipeline.readers[table] = blind
    pipeline.check_all_readers()
    del pipeline.readers[table]


def test_the_verifier_shares_no_code_with_the_product() -> None:
    text = Path(verifier.__file__).read_text()
    assert not re.search(r"^\s*(from|import)\s+(frazil|tests)\b", text, re.MULTILINE)
