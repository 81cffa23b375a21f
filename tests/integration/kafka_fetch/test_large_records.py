"""Records that are larger than every buffer, between small ones, read in a process with little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.integration.kafka_fetch.logs import Written

MIB = 1 << 20
_LARGE = {"max.message.bytes": str(90 * MIB)}
_HEAP = {"message.max.bytes": str(90 * MIB), "replica.fetch.max.bytes": str(90 * MIB), "fetch.max.bytes": str(90 * MIB)}
_LIMIT_MIB = 600
Logs = Callable[[int, str, bool], Written]


def _slow(*codecs: str) -> list[Any]:
    return [pytest.param(codec, marks=pytest.mark.slow) for codec in codecs]


@pytest.fixture(scope="module")
def large_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("large"), properties=_HEAP) as running:
        yield running


@pytest.fixture(scope="module")
def logs(large_broker: EmbeddedBroker) -> Logs:
    """See between_small_ones. To write a record takes as long as to read it: the tests that read the same one share it."""
    return cache(partial(between_small_ones, large_broker))


def chance(size: int) -> bytes:
    """Bytes that no codec makes fewer."""
    return np.random.default_rng(size).bytes(size)


def read(log: Written, most: int, end: int = 3, limit_mib: int = _LIMIT_MIB, **more: Any) -> dict[str, Any]:
    words = [log.servers, log.name, str(end), str(most), str(limit_mib)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fixtures.large_reader", *words],
        capture_output=True,
        text=True,
        check=False,
        **more,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    return dict(json.loads(done.stdout))


def between_small_ones(broker: EmbeddedBroker, size_mib: int, codec: str, is_chance: bool) -> Written:
    """A log with a value of this size, of chance or of zeros, between small ones."""
    value = chance(size_mib * MIB) if is_chance else bytes(size_mib * MIB)
    log = Written(broker, properties=_LARGE)
    most = {"message.max.bytes": 999_999_999, "queue.buffering.max.kbytes": 2**20, "linger.ms": 50}
    for one in (b"before", value, b"behind"):
        log.write(one, codec=codec, settings=most)
    return log


@pytest.mark.parametrize("codec", [*_slow("none", "gzip", "snappy", "zstd"), "lz4"])
def test_a_record_of_40_mib(logs: Logs, codec: str) -> None:
    log = logs(40, codec, True)
    cut = read(log, MIB)
    assert cut["found"] == [[0, 6, 0], [1, None, 40 * MIB], [2, 6, 0]]
    assert cut["taken_mib"] < 250
    if codec != "lz4":
        return
    whole = read(log, 50 * MIB)
    assert whole["found"] == [[0, 6, 0], [1, 40 * MIB, 0], [2, 6, 0]]
    assert whole["taken_mib"] < 300


@pytest.mark.parametrize("codec", [*_slow("lz4"), "zstd"])
def test_a_record_of_300_mib_that_is_compressed_to_little(logs: Logs, codec: str) -> None:
    log = logs(300, codec, False)
    cut = read(log, MIB)
    assert cut["found"] == [[0, 6, 0], [1, None, 300 * MIB], [2, 6, 0]]
    # Pages of the file that it was decompressed to, which the system may take back.
    assert cut["taken_mib"] < 450


def test_an_answer_of_80_mib_goes_to_a_file(logs: Logs) -> None:
    log = logs(80, "none", True)
    cut = read(log, MIB, limit_mib=400)
    assert cut["found"] == [[0, 6, 0], [1, None, 80 * MIB], [2, 6, 0]]


@pytest.mark.parametrize(("size_mib", "codec", "is_chance"), [(80, "none", True), (300, "zstd", False)])
def test_a_disk_that_is_full_is_an_error(logs: Logs, size_mib: int, codec: str, is_chance: bool) -> None:
    log = logs(size_mib, codec, is_chance)
    # The shell's limit of a file's size: what a full disk does, without one.
    limited = (
        "import resource, runpy, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)); "
        "runpy.run_module('tests.fixtures.large_reader', run_name='__main__')"
    )
    words = [log.servers, log.name, "3", str(MIB), str(_LIMIT_MIB)]
    done = subprocess.run([sys.executable, "-c", limited, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    assert json.loads(done.stdout)["error"] == "a large batch of records has no room: File too large"
