"""Changes of a source that are subtracted from the rows they were merged into: a service on the ports in memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.tables.state import RunState
from packages.state.tests.unit.merge.merging import Merging

_SETTINGS = "mode: upsert, envelope: debezium, key_columns: [city], merge: {amount: sum, orders: count}"


def _row(number: int, city: str | None, amount: int | None, name: str = "n") -> dict[str, Any]:
    return {"id": number, "city": city, "amount": amount, "name": name}


class Source:
    """A source's table whose changes Debezium sends with the rows before them."""

    def __init__(self, merging: Merging) -> None:
        self.merging = merging
        self.rows: dict[int, dict[str, Any]] = {}

    def put(self, row: dict[str, Any], op: str = "") -> None:
        before = self.rows.get(row["id"])
        self.rows[row["id"]] = row
        self._send(row["id"], {"op": op or ("c" if before is None else "u"), "before": before, "after": row})

    def delete(self, number: int, *, with_tombstone: bool = True) -> None:
        self._send(number, {"op": "d", "before": self.rows.pop(number), "after": None})
        if with_tombstone:
            self._send(number, None)

    def _send(self, number: int, value: dict[str, Any] | None) -> None:
        key = {"id": number}
        self.merging.put(value, key=key, partition=number % len(self.merging.source.by_name["a"].partitions))

    def groups(self) -> list[tuple[Any, ...]]:
        """What a query over the source's table would give."""
        cities = sorted({row["city"] for row in self.rows.values()})
        of_city = {city: [row for row in self.rows.values() if row["city"] == city] for city in cities}
        return [(city, sum(row["amount"] or 0 for row in rows), len(rows)) for city, rows in of_city.items()]


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("is_cut", [True, False])
def test_updates_and_deletes_are_taken_off(tmp_path: Path, tasks: int, is_cut: bool) -> None:
    merging = Merging(tmp_path, _SETTINGS, partitions=2, tasks=tasks)
    source = Source(merging)

    def check() -> None:
        if is_cut:
            merging.catch_up()
            assert merging.table_rows("city", "amount", "orders") == source.groups()

    source.put(_row(1, "Bonn", 5), "r")
    source.put(_row(2, "Bonn", 7))
    check()
    source.put(_row(1, "Bonn", 6))
    source.put(_row(2, "Ulm", 7))
    check()
    source.put(_row(3, "Ulm", None))
    source.delete(1)
    check()
    source.put(_row(2, "Kiel", 1))
    source.delete(3, with_tombstone=False)
    source.put(_row(1, "Bonn", 2))
    check()
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == source.groups() == [("Bonn", 2, 1), ("Kiel", 1, 1)]
    assert merging.catalog.load("n.t__dead_letters") is None


def test_a_truncate_empties_all_groups(tmp_path: Path) -> None:
    merging = Merging(tmp_path, _SETTINGS)
    source = Source(merging)
    source.put(_row(1, "Bonn", 5))
    source.put(_row(2, "Ulm", 5))
    merging.catch_up()
    source.put(_row(3, "Ulm", 5))
    merging.put({"op": "t"})
    source.rows.clear()
    source.put(_row(4, "Ulm", 3))
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Ulm", 3, 1)]
    merging.put({"op": "t"})
    merging.catch_up()
    assert merging.table_rows("city") == []


def test_a_change_that_cannot_be_read_stops_the_table_and_counts_once_the_cause_is_repaired(tmp_path: Path) -> None:
    declared = "columns: {{id: long, city: string, amount: {}}}"
    merging = Merging(tmp_path, f"{_SETTINGS}, {declared.format('int')}")
    source = Source(merging)
    source.put(_row(1, "Bonn", 5))
    merging.catch_up()
    source.put(_row(1, "Bonn", 2**40))
    source.put(_row(1, "Bonn", 7))
    table = merging.catch_up()
    assert table.status.run_state is RunState.STOPPED
    assert table.status.reason.startswith("field after.amount: integer 1099511627776 is out of the range of int")
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", 5, 1)]
    again = Merging(tmp_path / "again", f"{_SETTINGS}, {declared.format('long')}")
    again.source.by_name["a"] = merging.source.by_name["a"]
    again.catch_up()
    assert again.table_rows("city", "amount", "orders") == [("Bonn", 7, 1)]


def test_an_update_without_the_row_before_it_is_a_dead_letter_and_not_guessed(tmp_path: Path) -> None:
    merging = Merging(tmp_path, f"{_SETTINGS}, on_bad_record: dead_letter")
    merging.put({"op": "c", "before": None, "after": _row(1, "Bonn", 5)}, key={"id": 1})
    merging.put({"op": "u", "before": None, "after": _row(1, "Bonn", 6)}, key={"id": 1})
    merging.put({"op": "d", "before": None, "after": None}, key={"id": 1})
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", 5, 1)]
    reason = "the operation needs the row before the change, and the record lacks it"
    assert [message for _, message in merging.dead_letters()] == [reason, reason]


def test_a_row_without_a_group_is_a_dead_letter_and_joins_its_group_later(tmp_path: Path) -> None:
    merging = Merging(tmp_path, f"{_SETTINGS}, on_bad_record: dead_letter")
    source = Source(merging)
    source.put(_row(1, "Bonn", 1))
    source.put(_row(2, None, 5))
    source.put(_row(2, "Ulm", 5))
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", 1, 1), ("Ulm", 5, 1)]
    assert len(merging.dead_letters()) == 1


def test_the_latest_value_is_that_of_the_newest_row_that_was_put_on(tmp_path: Path) -> None:
    merging = Merging(tmp_path, _SETTINGS)
    source = Source(merging)
    source.put(_row(1, "Bonn", 5, "a"))
    source.put(_row(2, "Bonn", 5, "b"))
    merging.catch_up()
    source.delete(2)
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders", "name") == [("Bonn", 5, 1, "b")]


def test_changes_of_maxwell_are_taken_off(tmp_path: Path) -> None:
    merging = Merging(tmp_path, _SETTINGS.replace("debezium", "maxwell"))

    def send(kind: str, data: dict[str, Any], old: dict[str, Any] | None = None) -> None:
        others = {} if old is None else {"old": old}
        merging.put({"database": "d", "table": "t", "type": kind, "ts": 1, "data": data, **others})

    send("insert", _row(1, "Bonn", 5))
    send("insert", _row(2, "Bonn", 7))
    send("update", _row(1, "Ulm", 6), {"city": "Bonn", "amount": 5})
    send("update", _row(2, "Bonn", 8), {"amount": 7})
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", 8, 1), ("Ulm", 6, 1)]
    send("delete", _row(1, "Ulm", 6))
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", 8, 1)]


def test_changes_of_canal_are_taken_off(tmp_path: Path) -> None:
    settings = _SETTINGS.replace("debezium", "canal") + ", columns: {city: string, amount: long}"
    merging = Merging(tmp_path, settings)

    def send(kind: str, data: list[dict[str, Any]], old: list[dict[str, Any]] | None = None) -> None:
        texts = [{name: None if value is None else str(value) for name, value in row.items()} for row in data]
        names = {"database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "es": 1, "ts": 1}
        types = {"mysqlType": {"id": "bigint", "city": "text", "amount": "bigint", "name": "text"}}
        merging.put({"type": kind, "data": texts, "old": old, **names, **types})

    send("INSERT", [_row(1, "Bonn", 5), _row(2, "Bonn", 7)])
    send("UPDATE", [_row(1, "Ulm", 6), _row(2, "Bonn", 8)], [{"city": "Bonn", "amount": "5"}, {"amount": "7"}])
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", 8, 1), ("Ulm", 6, 1)]
    send("DELETE", [_row(1, "Ulm", 6)])
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", 8, 1)]


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_group_that_lacks_what_is_taken_off_has_its_key_and_one_row(tmp_path: Path, is_cut: bool) -> None:
    merging = Merging(tmp_path, _SETTINGS)
    for number in range(3):
        merging.put({"op": "d", "before": _row(number, "Bonn", 5), "after": None}, key={"id": number})
        if is_cut:
            merging.catch_up()
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", -15, -3)]
    merging.put({"op": "c", "before": None, "after": _row(9, "Bonn", 7)}, key={"id": 9})
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders", "name") == [("Bonn", -8, -2, "n")]


@pytest.mark.parametrize("kind", ["decimal(3,0)", "decimal(10,2)", "decimal(38,30)", "double", "float", "int"])
def test_a_sum_of_any_type_of_number_follows_deletes(tmp_path: Path, kind: str) -> None:
    merging = Merging(tmp_path, f'{_SETTINGS}, columns: {{id: long, city: string, amount: "{kind}"}}')
    source = Source(merging)
    for number, amount in enumerate([5, 7, None]):
        source.put(_row(number, "Bonn", amount))
    merging.catch_up()
    source.delete(0)
    source.put(_row(1, "Ulm", 8))
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", 0, 1), ("Ulm", 8, 1)] == source.groups()


def test_what_is_subtracted_of_an_infinite_sum_leaves_it_until_its_group_is_empty(tmp_path: Path) -> None:
    merging = Merging(tmp_path, _SETTINGS + ", columns: {amount: double}")
    source = Source(merging)
    for number in (1, 2):
        source.put({"id": number, "city": "Bonn", "amount": 1e308, "name": "n"})
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", math.inf, 2)]
    source.delete(1)
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", math.inf, 1)]
    source.delete(2)
    source.put({"id": 3, "city": "Bonn", "amount": 2.5, "name": "n"})
    merging.catch_up()
    assert merging.table_rows("city", "orders") == [("Bonn", 1)]
    source.delete(3)
    merging.catch_up()
    source.put({"id": 4, "city": "Bonn", "amount": 2.5, "name": "n"})
    merging.catch_up()
    assert merging.table_rows("city", "amount", "orders") == [("Bonn", 2.5, 1)]


def test_an_infinite_sum_less_an_infinite_sum_is_not_a_number(tmp_path: Path) -> None:
    merging = Merging(tmp_path, _SETTINGS + ", columns: {amount: double}")
    source = Source(merging)
    for number in (1, 2):
        source.put({"id": number, "city": "Bonn", "amount": 1e308, "name": "n"})
    merging.catch_up()
    source.delete(1)
    source.delete(2)
    source.put({"id": 3, "city": "Bonn", "amount": 2.5, "name": "n"})
    table = merging.catch_up()
    assert table.status.run_state is RunState.WAITING
    ((amount, orders),) = merging.table_rows("amount", "orders")
    assert (math.isnan(amount), orders) == (True, 1)
