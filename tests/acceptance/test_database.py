"""Tables of a real PostgreSQL under a random load, and their mirrors: equal after every pause, in every reader, whatever
was killed meanwhile.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.databases import Mirrors
from tests.acceptance.pipelines import Pipeline
from tests.fixtures.source import Source, running

pytestmark = pytest.mark.timeout(1800)

_KINDS: dict[str, dict[str, str]] = {
    "without schemas": {"decimal.handling.mode": "string"},
    "with schemas": {
        "time.precision.mode": "microseconds",
        "key.converter.schemas.enable": "true",
        "value.converter.schemas.enable": "true",
    },
}


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [("with schemas", 2), *(pytest.param(kind, 5, marks=pytest.mark.soak) for kind in _KINDS)],
)
def test_mirrors_equal_their_tables_after_every_pause(
    kind: str, rounds: int, pipeline: Pipeline, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    seed = zlib.crc32(kind.encode())
    with running(Source(tmp_path / "connect", broker.bootstrap_servers, seed, _KINDS[kind])) as source:
        mirror = Mirrors(pipeline, source, {"envelope": "debezium"})
        mirror.live_through(rounds, connector_killed_at=rounds - 1, chance=seed)
