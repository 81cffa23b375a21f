"""What a page says of its own example is what the example makes: rows of records, and the output of commands."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.scan import ROOT
from frazil.cli.main import main

GUIDES = ROOT / "docs" / "guides"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _blocks(page: str, language: str) -> list[str]:
    return [text for name, text in _BLOCK.findall((GUIDES / page).read_text()) if name == language]


def _play(pipeline: str, table: str, case: Mapping[str, Any], **keys: Any) -> int:
    """Returns the exit code of `frazil test` for one case."""
    Path("frazil.yaml").write_text(pipeline)
    Path("cases.yaml").write_text(yaml.safe_dump({"table": table, **keys, "cases": {"the page": dict(case)}}))
    return main(["test", "cases.yaml"])


def test_a_shaped_record_becomes_the_row_of_the_page(capsys: Captured) -> None:
    text = " ".join((GUIDES / "shape.md").read_text().split())
    (record,) = re.findall(r"The record `(\{.*?\})` becomes a row", text)
    words = (
        "`order_id` 1, `total` 9.90, `order_note` x, `customer_name` ann, `region` eu, and `trace` and `_key` from its"
    )
    assert words in text
    sent = {"json": record, "key": "k", "headers": {"traceparent": "t"}}
    row = {"order_id": 1, "total": "9.90", "order_note": "x", "customer_name": "ann", "region": "eu", "trace": "t"}
    case = {"records": [sent], "rows": [row | {"_key": "k", "_offset": 0, "seen_at": None}]}
    assert _play(_blocks("shape.md", "yaml")[0], "shop.orders", case) == 0, capsys.readouterr().out


def test_a_rescued_record_becomes_the_row_of_the_page(folder: Path, capsys: Captured) -> None:
    page = (GUIDES / "rescue.md").read_text()
    (rescued,) = re.findall(r"^\| null \| 12.50 \| `(.*)` \|$", page, re.MULTILINE)
    kinds = {"id": "string", "amount": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}}
    fields = [{"name": name, "type": kind} for name, kind in (kinds | {"note": "string"}).items()]
    (folder / "ledger.avsc").write_text(json.dumps({"type": "record", "name": "Entry", "fields": fields}))
    sent = {"value": {"id": "n/a", "amount": "12.50", "note": "cash"}}
    case = {"records": [sent], "rows": [{"id": None, "amount": "12.50", "_rescued": rescued}]}
    (pipeline,) = _blocks("rescue.md", "yaml")
    assert _play(pipeline, "shop.ledger", case, schemas={"value": "ledger.avsc"}) == 0, capsys.readouterr().out


def test_the_versions_of_a_row_are_those_of_the_page(capsys: Captured) -> None:
    page = (GUIDES / "history.md").read_text()
    rows = re.findall(r"^\| (7) \| (\w+) \| (\w+) \| (\S+ \S+) \| (\S+ \S+)? ?\| (\w+) \|$", page, re.MULTILINE)
    assert len(rows) == 2
    records = [
        {"value": {"id": int(key), "name": name, "city": city}, "timestamp": f"{begin.replace(' ', 'T')}:00Z"}
        for key, name, city, begin, _, _ in rows
    ]
    versions = [
        {
            "id": int(key),
            "name": name,
            "city": city,
            "valid_from": f"{begin.replace(' ', 'T')}:00Z",
            "valid_to": f"{end.replace(' ', 'T')}:00Z" if end else None,
            "is_current": is_current == "true",
        }
        for key, name, city, begin, end, is_current in rows
    ]
    case = {"records": records, "rows": versions}
    assert _play(_blocks("history.md", "yaml")[0], "shop.customer_history", case) == 0, capsys.readouterr().out


def test_the_file_is_shown_as_on_the_page(folder: Path, capsys: Captured) -> None:
    (pipeline,) = _blocks("environments.md", "yaml")
    (shown,) = _blocks("environments.md", "")
    (folder / "frazil.yaml").write_text(pipeline)
    calls = [line for text in _blocks("environments.md", "sh") for line in text.splitlines()]
    (command,) = [call for call in calls if call.endswith(" --show")]
    assert main(command.split()[1:]) == 0
    assert capsys.readouterr().out.partition("\n\n")[0] == shown.rstrip()
    with_values = [shlex.split(call)[1:-1] for call in calls if " --set " in call and call != command]
    assert [main([*words, "check", "--offline"]) for words in with_values] == [0, 0], capsys.readouterr().err
