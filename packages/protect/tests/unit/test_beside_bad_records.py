"""Fields are protected whatever bad records are read with theirs: a service on the ports in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from packages.state.tests.unit.merge.merging import Merging


@pytest.mark.parametrize(
    ("settings", "bad"),
    [
        ("mode: upsert, key_columns: [id]", {"id": None, "new": 5}),
        ("columns: {id: int, email: string}", {"id": "x", "email": "b", "new": {"field": [5]}}),
        ("mode: upsert, key_columns: [id], order_by: at, columns: {at: long}", {"id": 3, "at": None, "new": 5}),
    ],
)
def test_a_bad_record_with_a_new_field_leaves_no_other_unprotected(
    tmp_path: Path, settings: str, bad: dict[str, object]
) -> None:
    (tmp_path / "key").write_text("0123456789abcdef" * 2)
    protect = f'protect: {{email: hash}}, protect_key: "${{file:{tmp_path / "key"}}}"'
    merging = Merging(tmp_path / "a", f"{settings}, {protect}")
    merging.put({"id": 1, "email": "ann@example.org", "at": 1}, key={"id": 1})
    merging.catch_up()
    merging.put({"id": 2, "email": "ann@example.org", "at": 1}, key={"id": 2})
    merging.put(bad, key={"id": bad["id"]})
    merging.catch_up()
    (first, hashed), (second, hashed_later) = merging.table_rows("id", "email")
    assert (first, second) == (1, 2)
    assert hashed == hashed_later
    assert len(hashed) == 64
    assert len(merging.dead_letters()) == 1
