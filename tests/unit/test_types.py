"""Vectors and reports: the same in, the same out."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.error_classes import ErrorClass
from frazil.ingest.tables.state import SchemaState
from frazil.ingest.tables.table import Table
from frazil.ops.state_file import StateFile
from frazil.report import (
    BadRecords,
    ChangeReport,
    Counts,
    FirstTombstone,
    SchemaRequests,
    TaskReport,
    Touched,
    WrittenFiles,
    dump_report,
    load_report,
    merge_reports,
)
from frazil.spec import TableSpec, TopicSelector
from frazil.types import (
    MAX_REMEMBERED_NAMES,
    MORE_NAMES,
    BadRecord,
    Batch,
    DataFile,
    LastDelete,
    OffsetRange,
    add_names,
    advance,
    as_json,
    dump_offsets,
    later,
    list_names,
    load_offsets,
)
from frazil_testing.twins import FakeClock

_vectors = st.dictionaries(
    st.text(max_size=5), st.dictionaries(st.integers(0, 99), st.integers(0, 2**62), max_size=4), max_size=4
)


@settings(max_examples=50, deadline=None)
@given(_vectors)
def test_an_offset_vector_survives_its_text_and_equal_vectors_are_equal_texts(
    vector: dict[str, dict[int, int]],
) -> None:
    backwards = {topic: dict(reversed(partitions.items())) for topic, partitions in reversed(vector.items())}
    assert load_offsets(dump_offsets(vector)) == vector
    assert dump_offsets(backwards) == dump_offsets(vector)


def test_partitions_are_ordered_by_number() -> None:
    assert dump_offsets({"b": {10: 1, 9: 2}, "a": {}}) == '{"a":{},"b":{"9":2,"10":1}}'


def test_advancing_moves_what_was_read_and_nothing_else() -> None:
    before = {"a": {0: 5, 1: 7}, "b": {0: 1}}
    after = advance(before, [OffsetRange("a", 1, 7, 9), OffsetRange("c", 0, 0, 3)])
    assert after == {"a": {0: 5, 1: 9}, "b": {0: 1}, "c": {0: 3}}
    assert before == {"a": {0: 5, 1: 7}, "b": {0: 1}}


def test_the_later_of_two_vectors_is_the_greater_number_of_each_partition() -> None:
    assert later({"a": {0: 5, 1: 7}}, {"a": {0: 6, 1: 2}, "b": {0: 0}}) == {"a": {0: 6, 1: 7}, "b": {0: 0}}


def test_a_batch_knows_its_topics_and_its_span() -> None:
    batch = Batch("t", (OffsetRange("a", 0, 2, 5), OffsetRange("b", 0, 0, 1)))
    assert (batch.topics, batch.span) == (frozenset({"a", "b"}), 4)


def test_reports_are_merged_for_one_table_with_the_first_bad_records_by_place() -> None:
    def bad(partition: int, offset: int) -> BadRecord:
        return BadRecord("a", partition, offset, ErrorClass.MALFORMED, "x", "no")

    files = [DataFile(f"/{n}.parquet", n, n * 10, "{}") for n in range(3)]
    reports = [
        TaskReport(
            "t",
            Counts(10, 700, {"a": {1: 5}}),
            WrittenFiles((files[0],), (files[1],)),
            SchemaRequests(("w1",), frozenset({"l"}), dropped=frozenset({"p"})),
            BadRecords((bad(1, 9), bad(1, 11)), 2),
        ),
        TaskReport("other", Counts(99), WrittenFiles((files[1],))),
        TaskReport(
            "t",
            Counts(5, 70, {"a": {0: 3, 1: 4}}),
            WrittenFiles((files[2],)),
            SchemaRequests(("w1", "w2"), dropped=frozenset({"q"})),
            BadRecords((bad(0, 70),), 1),
        ),
    ]
    assert merge_reports("t", reports, limit=2) == TaskReport(
        "t",
        Counts(15, 770, {"a": {0: 3, 1: 5}}),
        WrittenFiles((files[0], files[2]), (files[1],)),
        SchemaRequests(("w1", "w2"), frozenset({"l"}), dropped=frozenset({"p", "q"})),
        BadRecords((bad(0, 70), bad(1, 9)), 3),
    )
    assert merge_reports("t", []) == TaskReport("t")


def test_a_report_survives_its_way_to_the_driver() -> None:
    deleted = LastDelete("a", 0, 1, "k")
    report = TaskReport(
        "t",
        Counts(1, 99, {"a": {3: 4}}, {"tombstone": 2}, 3, 4, {"read": 5}),
        WrittenFiles((DataFile("/é.parquet", 1, 2, '{"a": 1}'),), (DataFile("/l.parquet", 1, 2, "{}"),), ("x", "y")),
        SchemaRequests(
            ("w",), frozenset({'["x"]'}), ("id",), frozenset({"7"}), frozenset({"column x: no"}), frozenset({"x", "y"})
        ),
        BadRecords((BadRecord("a", 0, 1, ErrorClass.INVALID_TEXT, "p", "\udcff is no text"),), 1),
        ChangeReport(
            (Touched("k", "b", ("/é.parquet",), 3), Touched("k", first=FirstTombstone("a", 0, 1, "k"))),
            (deleted,),
            {"truncates": (["e", [["a", 0, 2]]],)},
        ),
    )
    assert load_report(dump_report(report)) == report


def test_a_report_keeps_a_name_that_is_no_unicode() -> None:
    report = TaskReport("n.t", schema=SchemaRequests(dropped=frozenset({"half \ud800"})))
    assert load_report(dump_report(report)) == report


def test_summaries_are_compact_and_sorted() -> None:
    assert as_json({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'


def test_a_hundred_names_are_remembered_however_many_come(tmp_path: Path) -> None:
    known: frozenset[str] = frozenset()
    for batch in range(1000):
        known = add_names(known, {f"{batch:04}.{number}" for number in range(3)})
    assert len(known) == MAX_REMEMBERED_NAMES + 1
    assert list_names(known)[0] == "0000.0"
    assert list_names(known)[-1] == MORE_NAMES
    table = Table(
        TableSpec(name="s.t", topics=(TopicSelector(literal="t"),)), schema=SchemaState(dropped=known, refusals=known)
    )
    StateFile(tmp_path, "p", FakeClock(), str).write([table])
    assert (tmp_path / "p.json").stat().st_size < 5000


def test_names_that_a_task_has_left_out_are_not_forgotten() -> None:
    of_task = add_names(frozenset(), map(str, range(MAX_REMEMBERED_NAMES + 1)))
    assert MORE_NAMES in of_task
    assert add_names(frozenset(), of_task) == of_task
    assert add_names(frozenset({"x"}), [MORE_NAMES]) == {"x", MORE_NAMES}
    assert add_names(frozenset({"x"}), ["x"]) == {"x"}
    assert MORE_NAMES not in add_names(frozenset(), map(str, range(MAX_REMEMBERED_NAMES)))
