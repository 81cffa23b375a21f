"""Every field of every record is found in one place: a column, `_rescued`, what a setting leaves out, or a dead letter.

FRAZIL_SEED: judge the topic of this seed alone, of the formats in FRAZIL_FORMATS.
"""

from __future__ import annotations

import ast
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from frazil.clock import SystemClock
from frazil_verify.model import rows
from tests.fixtures.slices import sliced
from tests.simulation.judge.formats import FORMATS, Cuts, judge, judge_topic
from tests.simulation.judge.many_names import SETTINGS, many_names
from tests.simulation.judge.verdict import Verdict

_SEED = os.environ.get("FRAZIL_SEED")
_FORMATS = os.environ.get("FRAZIL_FORMATS", " ".join(FORMATS)).replace(",", " ").split()
_SECONDS = float(os.environ.get("FRAZIL_SOAK_SECONDS", "3600"))
_QUICK_RECORDS = 200
_MOST_SHOWN = 20
_SLICE: list[tuple[str, int]] = [
    *((name, 0) for name in FORMATS),
    # Local times of a zone, by every name that Kafka Connect and Debezium have for them.
    ("connect", 11),
    ("debezium", 19),
    # Hundreds of names in each chunk, and fields that differ in case alone.
    ("json", 45),
    # The same again.
    ("avro", 27),
    ("connect", 23),
    ("json", 50),
    ("json", 5),
    ("json", 20),
]
_QUICK = len(FORMATS) + 3
_COSTLY = ("limit", "struct")
"""Settings whose thousands of columns are a table's, as in tests of rows."""
_MODEL_IMPORTS = {
    "__future__", "ast", "base64", "binascii", "collections", "dataclasses", "datetime", "decimal", "fastavro", "functools",
    "google", "importlib", "io", "itertools", "json", "math", "pathlib", "re", "struct", "subprocess", "sys", "tempfile",
    "typing", "uuid", "zoneinfo",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    with capture_logs():
        yield


def _assert_none(found: Verdict) -> None:
    shown = "\n".join(found.faults[:_MOST_SHOWN])
    assert not found.faults, f"{len(found.faults)} faults, {found.unaccounted} fields in no place:\n{shown}"


def test_the_model_shares_no_code_with_what_it_judges() -> None:
    paths = list(Path(str(rows.__file__)).parent.glob("*.py"))
    assert len(paths) > 10
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert name.startswith("frazil_verify.model") or name.split(".")[0] in _MODEL_IMPORTS, path


@pytest.mark.parametrize(("name", "seed"), sliced(_SLICE, _QUICK))
def test_every_field_of_a_topic_is_in_one_place(name: str, seed: int, tmp_path: Path) -> None:
    found = judge(tmp_path, name, seed, _QUICK_RECORDS)
    _assert_none(found)
    assert found.records == 2 * _QUICK_RECORDS


@pytest.mark.parametrize("kind", sliced(sorted(SETTINGS, key=_COSTLY.__contains__), len(SETTINGS) - len(_COSTLY)))
def test_no_value_is_lost_where_each_record_has_a_name_of_its_own(kind: str, tmp_path: Path) -> None:
    cuts = Cuts(first=100, of_two=(20_000, 1000), of_one=20_000)
    _assert_none(judge_topic(tmp_path, many_names(kind), 2100, cuts))


def test_a_record_without_a_timestamp_has_none_in_its_row(tmp_path: Path) -> None:
    cuts = Cuts(first=10, of_two=(20, 20), of_one=20)
    _assert_none(judge_topic(tmp_path, many_names("map"), 40, cuts, without_time=frozenset({3, 30})))


@pytest.mark.soak
@pytest.mark.timeout(_SECONDS * 2 + 600)
def test_every_field_of_a_million_records_is_in_one_place(tmp_path: Path) -> None:
    clock, totals, place = SystemClock(), {name: Verdict() for name in _FORMATS}, 0
    seed, end_s = int(_SEED or "0"), clock.monotonic_s() + _SECONDS
    spent_s = dict.fromkeys(_FORMATS, 0.0)
    while clock.monotonic_s() < end_s:
        name = min(_FORMATS, key=spent_s.__getitem__)
        began_s = clock.monotonic_s()
        totals[name].add(judge(tmp_path / "topic", name, seed + place))
        shutil.rmtree(tmp_path / "topic")
        spent_s[name] += clock.monotonic_s() - began_s
        place += 1
    for name, found in totals.items():
        sys.stdout.write(
            f"{name}: {found.records:,} records judged, {found.rows:,} rows, {found.dead:,} dead letters, "
            f"{found.rescued:,} values rescued, {found.unaccounted} fields in no place, {len(found.faults)} faults, "
            f"{found.records / max(spent_s[name], 1):.0f} records/s\n"
        )
    every = Verdict()
    for found in totals.values():
        every.add(found)
    _assert_none(every)
