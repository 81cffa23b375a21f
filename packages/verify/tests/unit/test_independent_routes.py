"""Which records a table of a route takes, by plain rules: those with its values, and for the rest all that are left."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from frazil_verify.independent.routes import Route
from frazil_verify.independent.rules import Format, RowMaker, Rules
from frazil_verify.independent.topic import Record
from frazil_verify.model.debezium import Envelope
from frazil_verify.model.settings import Settings, table_of
from frazil_verify.model.types import Plain

BY_KIND = (("field", ("type",)),)
TABLE = table_of({"order_no": Plain("long")}, {}, Settings())


def record(value: Any, offset: int = 0, **more: Any) -> Record:
    """A record of partition 0."""
    text = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return Record("t", 0, offset, text, None, None, **more)


def taken(route: Route, *records: Record) -> list[int]:
    """The offsets of the records that the table takes."""
    rules = Rules(Settings(), TABLE, pa.schema([("order_no", pa.int64())]), Format("json"), route=route)
    return [of.offset for of in RowMaker(rules).taken(records)]


def test_a_table_takes_the_records_with_its_value_and_the_rest_all_others() -> None:
    records = [
        record({"type": "order"}, 0), record({"type": "refund"}, 1), record({"type": None}, 2), record(b"{", 3),
        record({}, 4), record(None, 5), record({"Type": "order"}, 6),
    ]  # fmt: skip
    assert taken(Route(BY_KIND, ("order",)), *records) == [0, 6]
    assert taken(Route(BY_KIND, others={("order",): {}}), *records) == [1, 2, 3, 4, 5]


def test_records_from_before_a_table_of_their_value_belong_to_the_rest() -> None:
    rest = Route(BY_KIND, others={("order",): {"t": {0: 2}}})
    assert taken(rest, *(record({"type": "order"}, offset) for offset in range(4))) == [0, 1]


@pytest.mark.parametrize(("value", "text"), [(7, "7"), (True, "true"), ("7", "7"), (1.5, "1.5")], ids=str)
def test_numbers_and_booleans_count_as_text(value: Any, text: str) -> None:
    assert taken(Route(BY_KIND, (text,)), record({"type": value})) == [0]


def test_a_header_and_a_field_of_an_envelope_name_tables() -> None:
    headers = (("kind", b"old"), ("kind", b"new"))
    assert taken(Route((("header", ("kind",)),), ("new",)), record({}, headers=headers), record({}, 1)) == [0]
    of_source = Route((("field", ("source", "table")),), ("people",))
    assert taken(of_source, record({"op": "c", "source": {"table": "people"}})) == [0]


def test_a_change_is_judged_by_the_key_of_its_own_table() -> None:
    value = json.dumps({"op": "c", "before": None, "after": {"order_no": 3}, "source": {}}).encode()
    images = Envelope("upsert", False, {}, ("order_no",)).images(Settings(), TABLE, value)
    assert (images[""].kinds, images[""].row) == (set(), {"order_no": 3})
    lacking = Envelope("upsert", False, {}, ("id",)).images(Settings(), TABLE, value)
    assert "no_key" in lacking[""].kinds
