"""What the console says of all tables together, and of what happened to one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from frazil.catalog.table_metadata import MetadataSizes, TableMetadata, TableShape
from frazil_console.overview import total_rate
from frazil_console.table_page import PartitionRow, schema_changes, with_bars
from frazil_console.timeline import StateChanges, asked, timeline


def test_the_rate_of_all_tables_is_their_sum_where_one_is_known() -> None:
    first, second = np.full((3, 4), np.nan, np.float32), np.full((3, 4), np.nan, np.float32)
    first[2], second[2] = (np.nan, 1, 2, 3), (np.nan, np.nan, 10, 20)
    assert np.nan_to_num(total_rate([first, second]), nan=-1).tolist() == [-1, 1, 12, 23]
    assert np.isnan(total_rate([])).all()


def test_only_interruptions_and_their_ends_are_changes_of_state() -> None:
    states = StateChanges()
    for at_ms, state in enumerate(("waiting", "running", "stopped", "stopped", "waiting", "running")):
        states.note(at_ms, "n.a", state, "a bad record" if state == "stopped" else "")
    assert [(event.at_ms, event.what, event.why) for event in states.of("n.a")] == [
        (2, "became stopped", "a bad record"),
        (4, "stopped ended, it continues", ""),
    ]
    assert states.of("n.b") == []


def test_what_people_asked_for_is_read_from_the_audit_log_whatever_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "p.audit.jsonl"
    assert list(asked("n.a", file)) == []
    entry = {
        "at": "2026-01-31T10:05:06.000+00:00", "through": "command", "who": "ann", "place": "here",
        "operation": "resetTable", "arguments": {"table": "n.a", "dry_run": False},
    }  # fmt: skip
    other = {**entry, "arguments": {"table": "n.b"}}
    file.write_text("\n".join([json.dumps(entry), json.dumps(other), '{"at": "20', "[]", "5", '{"at": 1}', ""]))
    states = StateChanges()
    states.note(10**13, "n.a", "paused", "")
    events = timeline("n.a", file, states, [])
    assert [(event.at_ms, event.what, event.by, event.why) for event in events] == [
        (10**13, "became paused", "the pipeline", ""),
        (1_769_853_906_000, "resetTable", "ann (command)", "dry_run False"),
    ]


def test_each_schema_shows_what_it_added_changed_and_removed() -> None:
    def field(number: int, name: str, kind: object, is_required: bool = False) -> dict[str, object]:
        return {"id": number, "name": name, "type": kind, "required": is_required}

    before = [field(1, "id", "int", True), field(2, "note", "string"), field(3, "at", "date")]
    user = {"type": "struct", "fields": [field(5, "name", "string")]}
    after = [field(1, "id", "long"), field(4, "user", user), field(3, "day", "date")]
    commented = [{**after[0], "doc": "the key"}, *after[1:]]
    schemas = [{"schema-id": number, "fields": fields} for number, fields in enumerate((before, after, commented))]
    metadata = TableMetadata("n.a", "u", "/n/a", 2, MetadataSizes(0), {}, {}, None, shape=TableShape(tuple(schemas)))
    shown = {change.id: [(one.kind, one.text) for one in change.changes] for change in schema_changes(metadata, [])}
    assert shown == {
        2: [],
        1: [
            ("added", "user: struct"),
            ("added", "user.name: string"),
            ("changed", "id: int, required → long"),
            ("changed", "at is now day"),
            ("removed", "note: string"),
        ],
        0: [("created", "created")],
    }


def test_the_largest_lag_has_the_longest_bar() -> None:
    rows = [PartitionRow("t", number, 0, end, None) for number, end in enumerate((100, 50, None))]
    assert [re.findall(r'width="(\d+)"', bar) for _, bar in with_bars(rows)] == [["300"], ["150"], ["0"]]
