"""What is known of a table's files between one batch and the next."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.catalog.scans import LiveFile, Scan, after_commit
from frazil.types import Commit, DeleteFile, Progress, RowDelta

_COUNT = 300


def _file(path: str) -> LiveFile:
    """With bounds of many columns, as Iceberg tells them."""
    ids = list(range(1, _COUNT + 1))
    described: dict[str, Any] = {"file-path": path, "partition": [7], "spec-id": 0, "file-format": "parquet"}
    described |= {name: {"keys": ids, "values": ids} for name in ("column-sizes", "value-counts", "null-value-counts")}
    bounds = {"keys": ids, "values": [f"{number:032X}" for number in ids]}
    return LiveFile(path, 10, json.dumps({**described, "lower-bounds": bounds, "upper-bounds": bounds}))


def test_of_the_columns_of_a_file_only_what_was_asked_for_is_kept() -> None:
    file = _file("a")
    assert file.description == {"file-path": "a", "partition": [7], "spec-id": 0, "file-format": "parquet"}
    assert file.column_metrics(17)["lower-bounds"] == f"{17:032X}"
    assert file.column_metrics(17)["null-value-counts"] == 17
    assert file.column_metrics(_COUNT + 1) == {}
    assert LiveFile("b", 1, '{"lower-bounds": {"keys": [], "values": []}}').column_metrics(1) == {}
    kept = {name: held for name, held in vars(file).items() if name not in ("content", "deletes")}
    assert len(repr(kept)) < len(file.content) / 20


def test_a_file_that_gets_deletes_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    files, read, loads = (_file("a"), _file("b")), list[str](), json.loads
    scan = Scan(1, files)
    told = [(file.description, file.column_metrics(1)) for file in files]

    def counted(text: str) -> Any:
        read.append(text)
        return loads(text)

    monkeypatch.setattr("frazil.catalog.scans.json.loads", counted)
    delete = DeleteFile("d", "vector", "a", 1, "{}")
    delta = RowDelta(1, (delete,), touched=("a",))
    scan = after_commit(scan, Commit("n.t", (), Progress(), Progress(), delta), 2, {})
    assert [file.deletes for file in scan.files] == [(delete,), ()]
    assert [(file.description, file.column_metrics(1)) for file in scan.files] == told
    assert read == []
    assert scan.files[0].column_metrics(2)["upper-bounds"] == f"{2:032X}"
    assert len(read) == 1
