"""Requests are counted from the log of an S3 store."""

from __future__ import annotations

import pytest

from bench.figures import requests_of

_COMMIT = """\
127.0.0.1 - - [29/Nov/2026 15:00:00] "PUT /lake/bench/t/data/00000.parquet HTTP/1.1" 200 -
127.0.0.1 - - [29/Nov/2026 15:00:00] "PUT /lake/bench/t/metadata/a-m0.avro HTTP/1.1" 200 -
127.0.0.1 - - [29/Nov/2026 15:00:00] "PUT /lake/bench/t/metadata/snap-1.avro HTTP/1.1" 200 -
127.0.0.1 - - [29/Nov/2026 15:00:00] "HEAD /lake/bench/t/metadata/snap-1.avro HTTP/1.1" 200 -
127.0.0.1 - - [29/Nov/2026 15:00:00] "PUT /lake/bench/t/metadata/00002-b.metadata.json HTTP/1.1" 200 -
"""


def test_requests_are_those_of_each_commit() -> None:
    more = '127.0.0.1 - - [29/Nov/2026 15:00:01] "GET /lake/bench/t/metadata/snap-1.avro HTTP/1.1" 200 -\n'
    assert requests_of(_COMMIT * 2 + more) == {"commits": 2, "writes_per_commit": 4.0, "reads_per_commit": 1.5}


def test_a_log_without_a_commit_has_no_figure() -> None:
    with pytest.raises(RuntimeError, match="no commit"):
        requests_of("")
