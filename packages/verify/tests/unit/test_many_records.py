"""Records of JSON that are read many at once have the rows that the rules make of them one by one, whatever is there."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil_verify.findings import Kind
from frazil_verify.independent import parts
from frazil_verify.independent.judge import Judge, Judgement
from frazil_verify.independent.matching import Sums
from frazil_verify.independent.rules import Format, RowMaker, Rules
from frazil_verify.independent.topic import Range, Record
from frazil_verify.kept import Kept
from frazil_verify.model.settings import Settings, table_of
from frazil_verify.model.types import Plain
from packages.verify.tests.unit.planted import MemoryRows

KINDS = {"id": "long", "n": "int", "x": "double", "name": "string", "ok": "boolean"}
ARROW = {"long": pa.int64(), "int": pa.int32(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}
SCHEMA = pa.schema(
    [
        pa.field(name, kind, metadata={b"PARQUET:field_id": b"%d" % number})
        for number, (name, kind) in enumerate(
            [*((name, ARROW[kind]) for name, kind in KINDS.items()), ("_offset", pa.int64())], 1
        )
    ]
)
GOOD = b'{"id": 7, "n": 1, "x": 0.5, "name": "a\\"\\u00e9", "ok": true}'
ODD = [
    None, b"", b"null", b"[1]", b"{}", b"{", b"}", b"{}{}", b'{"id":1}{"id":2}', b'{"id":1}\n', b' {"id":1}', b'{"id":\n1}',
    b'\xef\xbb\xbf{"id":1}', b'{"id":1}\0{"id":2}', b'{"id":1} x', b'{"id":1}//{}', b'{"id":1,}', b"{'id':1}",
    b'{"id":1,"id":2}', b'{"id":1,"ID":2}', b'{"ID":1}', b'{"\\u0069d":1}', b'{"other":1}', b'{"id":null,"x":null}',
    b'{"id":1.0}', b'{"id":1e2}', b'{"id":-0}', b'{"id":01}', b'{"id":+1}', b'{"id":"1"}', b'{"id":true}', b'{"id":[1]}',
    b'{"id":9223372036854775808}', b'{"id":1.5}', b'{"n":2147483648}', b'{"n":-2147483648}', b'{"ok":1}', b'{"ok":"true"}',
    b'{"x":-0}', b'{"x":-0.0}', b'{"x":0}', b'{"x":1e400}', b'{"x":-1e400}', b'{"x":1e-400}', b'{"x":NaN}',
    b'{"x":Infinity}', b'{"x":9007199254740993}', b'{"x":9007199254740992}', b'{"x":0.1000000000000000055511151231257827}',
    b'{"x":1e22}', b'{"x":2.2250738585072011e-308}', b'{"x":2.4703282292062328e-324}', b'{"x":179769313486231580793e289}',
    b'{"x":"1"}', b'{"x":1' + b"0" * 400 + b"}", b'{"x":0.' + b"0" * 400 + b"1}", b'{"x":.5}', b'{"x":5.}',
    b'{"name":"\xff"}', b'{"name":"\xc3"}', b'{"name":"\\ud800"}', b'{"name":"\\ud83d\\ude00"}', b'{"name":"a\\u0000b"}',
    b'{"name":"a\tb"}', b'{"name":"\\x"}', b'{"name":"}\n{"}', b'{"name":5}', b'{"name":{"id":1}}', b'{"name":""}',
    b'{"name":"' + b"long " * 10_000 + b'"}',
]  # fmt: skip


def rules() -> Rules:
    """Those of a table with a column for each kind of value, and one of metadata."""
    settings = Settings(metadata={"offset": "_offset"})
    table = table_of({name: Plain(kind) for name, kind in KINDS.items()}, {}, settings)
    return Rules(settings, table, SCHEMA, Format("json"))


def maker() -> RowMaker:
    """A maker of that table's rows."""
    return RowMaker(rules())


def records(values: Sequence[bytes | None]) -> list[Record]:
    """Records with these values."""
    return [Record("t", 0, offset, value, None, None) for offset, value in enumerate(values)]


def made(values: Sequence[bytes | None]) -> tuple[dict[int, Mapping[str, Any]], list[int]]:
    """The rows by their records' offsets, and the offsets of dead letters, as the maker has them."""
    result = maker().make(records(values))
    rows = dict(sorted(zip(result.sources.tolist(), result.rows.to_pylist(), strict=True)))
    assert len(rows) == result.rows.num_rows
    assert all(row["_offset"] == offset for offset, row in rows.items())
    return rows, sorted(result.dead)


def by_rules(values: Sequence[bytes | None]) -> tuple[dict[int, Mapping[str, Any]], list[int]]:
    """The same by the rules alone."""
    outcomes = [maker().outcome_of(record)[""] for record in records(values)]
    rows: dict[int, Mapping[str, Any]] = {
        offset: {name: outcome.row.get(name) for name in KINDS} | {"_offset": offset}
        for offset, outcome in enumerate(outcomes)
        if not outcome.kinds
    }
    return rows, [offset for offset, outcome in enumerate(outcomes) if outcome.kinds]


@pytest.mark.parametrize("odd", ODD, ids=lambda value: repr(value)[:30])
def test_a_record_among_others_has_the_row_that_the_rules_make_and_so_have_the_others(odd: bytes | None) -> None:
    for values in ([odd], [GOOD, odd, GOOD], [odd, GOOD], [GOOD, odd], [odd, odd]):
        assert repr(made(values)) == repr(by_rules(values))


def test_any_two_records_beside_each_other_have_the_rows_that_the_rules_make() -> None:
    for values in pairwise([*ODD, *ODD[::-1], *ODD[::7], *ODD[::-11]]):
        assert repr(made(values)) == repr(by_rules(values))


def test_after_records_that_need_rules_many_are_read_at_once_again() -> None:
    own = maker()
    for values in ([b'{"id":1.0}', GOOD], [GOOD] * 3, [b'{"id":2,"name":"a","x":1e400}'] * 2, *[[GOOD] * 3] * 9):
        result = own.make(records(values))
        assert result.rows.num_rows + len(result.dead) == len(values)


def test_sums_of_the_same_rows_are_equal_in_any_order_and_one_other_row_differs() -> None:
    hashes = np.random.default_rng(5).integers(0, 2**64, 5000, np.uint64)
    one, other = Sums(), Sums()
    one.add(hashes)
    for part in (hashes[3000:], hashes[:3000][::-1]):
        other.add(part)
    assert not one.differing(other).any()
    assert (one.count, one.digest) == (5000, int(hashes.sum()))
    for changed in (hashes[:-1], np.append(hashes, hashes[0]), np.append(hashes[:-1], hashes[-1] ^ np.uint64(1))):
        third = Sums()
        third.add(changed)
        assert one.differing(third).sum() == 1


def test_memory_does_not_grow_with_records_that_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_OFFSETS", 2_000)
    peaks = []
    for count in (4_000, 20_000):
        tracemalloc.start()
        try:
            judgement = judged(tmp_path / str(count), Files(count))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert (judgement.findings.counts, judgement.records, judgement.rows) == ({}, count, count)
    assert peaks[1] - peaks[0] < 2 * 16_000  # Two bytes a row, where hash and place alone have twenty on each side.


def test_a_file_that_cannot_be_read_to_its_end_has_no_rows(tmp_path: Path) -> None:
    judgement = judged(tmp_path, Files(3_000, damaged="file 1000"))
    assert judgement.findings.counts == {Kind.UNREADABLE: 1, Kind.MISSING: 1_000}
    assert {finding.offset for finding in judgement.findings.first[1:]} <= set(range(1_000, 2_000))


@dataclass
class Files:
    """The rows of a table, in files of a thousand. damaged: the name of a file whose last rows cannot be read."""

    count: int
    damaged: str = ""
    unreadable: dict[str, str] = field(default_factory=dict)

    def parts(self, names: Sequence[str] | None = None) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
        """See StoredRows."""
        for start in range(0, self.count, 1000):
            yield f"file {start}", self._batches(f"file {start}", range(start, start + 1000), names)

    def batches(self, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """See StoredRows."""
        for _, batches in self.parts(names):
            yield from batches

    def is_unreadable(self, name: str) -> bool:
        """See StoredRows."""
        return name in self.unreadable

    def _batches(self, name: str, numbers: range, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        rows = [{"id": number, "name": f"name {number}", "_offset": number} for number in numbers]
        if name == self.damaged:
            yield from MemoryRows(rows[:500], SCHEMA).batches(names)
            self.unreadable[name] = "it ends"
        else:
            yield from MemoryRows(rows, SCHEMA).batches(names)


def judged(folder: Path, stored: Files) -> Judgement:
    """What the judge finds of files whose rows those of a topic are."""
    folder.mkdir(exist_ok=True)

    def read(ranges: Sequence[Range]) -> Iterator[list[Record]]:
        for wanted in ranges:
            for start in range(wanted.start, wanted.end, 1000):
                numbers = range(start, min(wanted.end, start + 1000))
                values = [json.dumps({"id": number, "name": f"name {number}"}).encode() for number in numbers]
                yield [Record("t", 0, start + n, value, None, None) for n, value in enumerate(values)]

    ranges = [Range("t", 0, 0, stored.count)]
    rows: Any = stored
    return Judge(rules(), rows, read, ranges, lambda _: None, keeper=Kept(folder, -1)).run()
