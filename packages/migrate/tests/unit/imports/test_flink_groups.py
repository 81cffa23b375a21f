"""Queries of Flink SQL with groups, windows and ROW_NUMBER, imported and read as a pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from frazil.spec import load_spec
from frazil_migrate.imports.draft import Imported
from frazil_migrate.imports.flink_sql import import_script

_HEAD = """
CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = 'rest', 'uri' = 'http://c');
CREATE TABLE orders (
  id BIGINT, user_id STRING, amount DECIMAL(12, 2), ts TIMESTAMP_LTZ(3), proctime AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'b:9092', 'format' = 'json');
"""


def _imported(query: str) -> Imported:
    return import_script(f"{_HEAD}INSERT INTO lake.shop.t {query};", None)


def _table(query: str, folder: Path) -> dict[str, Any]:
    """The table that a query becomes; the file is one that Frazil reads."""
    imported = _imported(query)
    path = folder / "frazil.yaml"
    path.write_text(imported.text)
    load_spec(path, {})
    table: dict[str, Any] = yaml.safe_load(imported.text)["tables"]["shop.t"]
    return {key: table[key] for key in ("select", "mode", "key_columns", "order_by", "late", "dedupe") if key in table}


_OF_FUNCTION = (
    "SELECT user_id, window_start, window_end AS until, COUNT(*) AS n FROM TABLE({})"
    " GROUP BY user_id, window_start, window_end"
)


@pytest.mark.parametrize(
    ("query", "select"),
    [
        (
            _OF_FUNCTION.format("TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTES)"),
            "select user_id, window.start AS window_start, window.end AS until, COUNT(*) AS n from records"
            " GROUP BY user_id, window(ts, '1 minutes')",
        ),
        (
            _OF_FUNCTION.format("HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)"),
            "select user_id, window.start AS window_start, window.end AS until, COUNT(*) AS n from records"
            " GROUP BY user_id, window(ts, '10 minutes', '5 minutes')",
        ),
        (
            "SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) AS h, SUM(amount) AS total FROM orders WHERE amount > 0"
            " GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
            "select window.start AS h, SUM(amount) AS total from records WHERE amount > 0 GROUP BY window(ts, '1 hours')",
        ),
        (
            _OF_FUNCTION.format("SESSION(TABLE orders PARTITION BY user_id, DESCRIPTOR(ts), INTERVAL '5' MINUTE)"),
            "select user_id, session_window.start AS window_start, session_window.end AS until, COUNT(*) AS n from records"
            " GROUP BY user_id, session_window(ts, '5 minutes')",
        ),
        (
            "SELECT user_id, SESSION_START(ts, INTERVAL '1' HOUR) AS s, SESSION_END(ts, INTERVAL '1' HOUR) AS e,"
            " SUM(amount) AS total FROM orders GROUP BY user_id, SESSION(ts, INTERVAL '1' HOUR)",
            "select user_id, session_window.start AS s, session_window.end AS e, SUM(amount) AS total from records"
            " GROUP BY user_id, session_window(ts, '1 hours')",
        ),
    ],
)
def test_windows_become_those_of_spark_with_the_watermark_as_late(tmp_path: Path, query: str, select: str) -> None:
    assert _table(query, tmp_path) == {"select": select, "late": "5s"}


def test_groups_without_a_window_have_no_late_records(tmp_path: Path) -> None:
    query = "SELECT user_id, COUNT(*) AS n, AVG(amount) AS mean FROM orders GROUP BY user_id"
    assert _table(query, tmp_path) == {
        "select": "select user_id, COUNT(*) AS n, AVG(amount) AS mean from records GROUP BY user_id"
    }


@pytest.mark.parametrize(
    ("order", "settings"),
    [
        ("ts DESC", {"mode": "upsert", "key_columns": ["id"], "order_by": "ts"}),
        ("proctime DESC", {"mode": "upsert", "key_columns": ["id"]}),
        ("proctime ASC", {"dedupe": {"by": ["id"]}}),
    ],
)
def test_the_first_of_each_key_is_an_upsert_or_a_dropped_duplicate(
    tmp_path: Path, order: str, settings: dict[str, Any]
) -> None:
    query = (
        "SELECT id, user_id, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY {}) AS rn FROM orders)"
        " WHERE rn = 1"
    )
    assert _table(query.format(order), tmp_path) == {"select": "select id, user_id, ts from records", **settings}


@pytest.mark.parametrize(
    "query",
    [
        _OF_FUNCTION.format("CUMULATE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)"),
        "SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id HAVING COUNT(*) > 1",
        "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts ASC) AS rn FROM orders) WHERE rn = 1",
    ],
)
def test_what_has_no_such_form_is_reported(query: str) -> None:
    script = f"{_HEAD}INSERT INTO lake.shop.u SELECT id FROM orders; INSERT INTO lake.shop.t {query};"
    assert "INSERT INTO lake.shop.t" in str(import_script(script, None))
