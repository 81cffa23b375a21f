"""Text that is always a time becomes one where a table asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.decode.lossless import format_type
from frazil.ingest import plan
from frazil.schema.evolve import agree_on_times, merge_requested_fields
from frazil.spec.settings import InferSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.ingest.test_cuts import cut_into
from tests.unit.schema.test_name_case import columns_of, dead_letters_of


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2026-07-01T12:00:00Z", "2026-07-01T12:00:00.123456789+05:30", None], "timestamptz"),
        (["2026-07-01 12:00:00+00"], "timestamptz"),
        (["2026-07-01T12:00:00", "2026-07-01 12:00"], "timestamp"),
        (["2026-07-01", "0001-01-01"], "date"),
        (["2026-07-01T12:00:00Z", "2026-07-01T12:00:00"], "string"),
        (["2026-07-01T12:00:00Z", "2026-07-01"], "string"),
        (["2026-07-01T12:00:00Z", ""], "string"),
        (["2026-02-30"], "string"),
        (["2026-07-01T25:00:00Z"], "string"),
        (["12:00:00"], "string"),
        (["2026"], "string"),
        (["2026-07-01\\u005400:00"], "string"),
    ],
)
def test_only_text_that_is_always_one_kind_of_time_is_one(tmp_path: Path, values: list[str | None], kind: str) -> None:
    scene = Scene(tmp_path, "a", infer=InferSpec(timestamps=True))
    scene.feed("a", *({"ts": value, "o": {"l": [value]}} for value in values))
    only(scene.catch_up())
    assert columns_of(scene) == {"ts": kind, "o": f"struct<l: list<{kind}>>"}
    assert (len(scene.rows("n.a")), dead_letters_of(scene)) == (len(values), [])


def test_without_being_asked_for_text_stays_text(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"ts": "2026-07-01T12:00:00Z"})
    only(scene.catch_up())
    assert columns_of(scene) == {"ts": "string"}


def test_other_text_behind_the_first_batch_counts_wherever_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[Any] = [
        {"ts": "2026-07-01T12:00:00Z", "d": "2026-01-01", "both": "2026-01-01T00:00:00Z"},
        {"ts": "2026-07-02T12:00:00Z", "d": "2026-01-02", "both": "2026-01-01"},
        {"ts": 5},
        {"ts": "2026-07-03T12:00:00Z", "d": "none"},
    ]
    whole = cut_into(tmp_path, 1000, records, monkeypatch, infer=InferSpec(timestamps=True))
    assert whole[0] == {"ts": "timestamptz", "d": "string", "both": "string"}
    for size in (1, 2, 3):
        assert cut_into(tmp_path, size, records, monkeypatch, infer=InferSpec(timestamps=True)) == whole
    assert plan.FIRST_BATCH_RECORDS == 3


def test_pieces_of_records_that_differ_make_text() -> None:
    kinds = ("struct<t: timestamptz, l: list<date>, m: map<string, timestamp>>", "struct<t: string, l: list<date>>")
    united = merge_requested_fields(agree_on_times([{(): {"o": parse_type(kind)}} for kind in kinds]))
    assert format_type(united[()]["o"]) == "struct<t: string, l: list<date>, m: map<string, timestamp>>"
