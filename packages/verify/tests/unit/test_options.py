"""The options of `frazil verify` in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

import frazil


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"digests": True}, "--digests compares the rows that --rows reads"),
        ({"level": "ledger", "scratch": "s3://a/b"}, "--scratch is where a copy is made"),
        ({"scratch": "s3://a/b"}, "`spark.master` names none"),
    ],
)
def test_an_option_of_another_level_or_without_a_cluster_is_refused(
    tmp_path: Path, options: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # Another test's, which would be refused first.
    file = tmp_path / "frazil.yaml"
    file.write_text("pipeline: p\nkafka: {bootstrap.servers: '127.0.0.1:9'}\ntables: {n.t: {topic: t}}\n")
    with pytest.raises(frazil.SpecError, match=reason):
        frazil.load(file).verify(**options)
