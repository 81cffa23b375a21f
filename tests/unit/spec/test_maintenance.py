"""`maintenance`: at the top for every table, in a table for that table."""

from __future__ import annotations

import pytest

from frazil.errors import SpecError
from frazil.spec.settings import MaintenanceSpec, OrphansSpec, SnapshotsSpec
from frazil.spec.syntax.forms import YOUNGEST_ORPHAN_VARIABLE
from tests.unit.spec.pipeline_file import HEAD, Load

TOP = "maintenance: {cores: 2, window: '22:00-06:00', snapshots: {age: 1h, count: 50}, orphans: {age: 24h}}\n"


def test_what_a_table_leaves_out_is_taken_from_the_top(load: Load) -> None:
    spec = load(
        HEAD + TOP + "tables:\n"
        "  a.plain: {topic: a}\n"
        "  a.own: {topic: b, maintenance: {sort: [id, at desc], min_input_files: 5, small_file_share: 20%}}\n"
        "  a.off: {topic: c, maintenance: false}\n"
    )
    snapshots, orphans = SnapshotsSpec(age_s=3600.0, kept=50), OrphansSpec(age_s=86400.0)
    top = MaintenanceSpec(cores=2, window=(1320, 360), snapshots=snapshots, orphans=orphans)
    own = {"sort": ("id", "at desc"), "order_lines": (6, 6), "min_input_files": 5, "small_file_share": 0.2}
    expected = [top, top.model_copy(update=own), top.model_copy(update={"is_on": False})]
    assert [table.maintenance for table in spec.tables] == expected
    assert spec.maintenance == top


def test_maintenance_is_on_unless_the_file_reports_otherwise(load: Load) -> None:
    assert load(HEAD + "tables: {a.b: {topic: a}}").tables[0].maintenance == MaintenanceSpec()
    assert not load(HEAD + "maintenance: false\ntables: {a.b: {topic: a}}").tables[0].maintenance.is_on


def test_tests_may_have_younger_orphans_removed(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(YOUNGEST_ORPHAN_VARIABLE, "1m")
    assert load(HEAD + "maintenance: {orphans: {age: 1m}}\ntables: {a.b: {topic: a}}").maintenance.orphans.age_s == 60.0
    with pytest.raises(SpecError, match="`59s` is too short"):
        load(HEAD + "maintenance: {orphans: {age: 59s}}\ntables: {a.b: {topic: a}}")


_TYPES = "{id: long, at: timestamp, price: 'decimal(9,2)', tags: list<string>, deep: 'struct<a: long>'}"


@pytest.mark.parametrize(
    ("order", "message", "remedy"),
    [
        ("sort: [idd]", "`maintenance.sort` names a column that the table does not have: `idd`", "did you mean `id`?"),
        (
            "sort: [tags desc]",
            "`maintenance.sort` names a column that is not a single value: `tags`",
            "name a column that",
        ),
        ("sort: [id, deep.b]", "`maintenance.sort` names a column that the table does not have: `deep.b`", "did you"),
        ("zorder: [idd]", "`maintenance.zorder` names a column that the table does not have: `idd`", "did you mean"),
        ("zorder: [price]", "`maintenance.zorder` names a column that has no place on a Z-curve: `price`", "name col"),
        (
            "zorder: [id, tags]",
            "`maintenance.zorder` names a column that has no place on a Z-curve: `tags`",
            "name col",
        ),
        (
            "zorder: [deep.a]",
            "`maintenance.zorder` names a column that has no place on a Z-curve: `deep.a`",
            "name col",
        ),
    ],
)
@pytest.mark.parametrize("place", ["top", "table"])
def test_columns_that_rows_cannot_be_ordered_by_are_refused_with_their_line(
    load: Load, order: str, message: str, remedy: str, place: str
) -> None:
    top, own = (f"maintenance: {{{order}}}\n", "") if place == "top" else ("", f"    maintenance: {{{order}}}\n")
    table = f"tables:\n  a.b:\n    topic: a\n    unknown_fields: drop\n    columns: {_TYPES}\n"
    with pytest.raises(SpecError) as caught:
        load(HEAD + top + table + own)
    assert caught.value.message == f"table `a.b`: {message}"
    assert caught.value.remedy.startswith(remedy)
    line = HEAD.count("\n") + 1 if place == "top" else (HEAD + table).count("\n") + 1
    assert caught.value.where.rpartition(":")[2] == str(line)


@pytest.mark.parametrize(
    ("settings", "order"),
    [
        ("unknown_fields: drop", "{sort: [id, at desc, deep.a, price, _offset, _headers]}"),
        ("unknown_fields: drop", "{zorder: [at, id, _offset, _key.id]}"),
        ("unknown_fields: rescue", "{sort: [_rescued]}"),
        ("unknown_fields: add", "{sort: [later]}"),
        ("unknown_fields: add", "{zorder: [later]}"),
    ],
)
def test_columns_that_are_there_or_may_come_are_taken(load: Load, settings: str, order: str) -> None:
    metadata = "metadata: [offset, headers, key], key: {format: json}"
    table = f"{{topic: a, {settings}, {metadata}, columns: {_TYPES}, maintenance: {order}}}"
    assert load(HEAD + f"tables: {{a.b: {table}}}").tables[0].maintenance.order_lines


def test_where_maintenance_is_off_the_order_of_rows_is_nobody_s_business(load: Load) -> None:
    table = "{topic: a, unknown_fields: drop, columns: {id: long}, maintenance: false}"
    assert not load(HEAD + f"maintenance: {{sort: [x]}}\ntables: {{a.b: {table}}}").tables[0].maintenance.is_on
