"""How many calls a commit makes to the JVM: each costs a tenth of a millisecond of a core, and pipelines commit all day.
And what stays of a commit in the JVM's memory: nothing.
"""

from __future__ import annotations

import gc
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection

from frazil.api.running import rehearse_commits
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.validators import Validator
from frazil.clock import SystemClock
from frazil.runtime.jvm import Garbage, Jvm
from frazil.runtime.light_jvm import LightJvm
from frazil_testing.twins import FakeClock
from tests.fixtures.jvms import light_jvm
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.jvm


def test_a_commit_makes_few_calls_and_its_size_none(jvm: Jvm, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearse_commits(jvm.gateway)
    own, sent = threading.current_thread(), list[str]()
    send, commit = ClientServerConnection.send_command, IcebergCatalog.commit

    def send_counted(connection: Any, command: str) -> Any:
        if threading.current_thread() is own:  # Others prepare the session, and let go of what a commit no longer uses.
            sent.append(command)
        return send(connection, command)

    def commit_counted(catalog: IcebergCatalog, *arguments: Any) -> Any:
        sent.clear()
        progress = commit(catalog, *arguments)
        calls.append(len(sent))
        size = catalog.size("rehearsal.t")
        assert (size.row_count, size.file_count, size.snapshot_count) == (len(calls),) * 3
        assert len(sent) == calls[-1]
        return progress

    calls: list[int] = []
    monkeypatch.setattr(ClientServerConnection, "send_command", send_counted)
    monkeypatch.setattr(IcebergCatalog, "commit", commit_counted)
    rehearse_commits(jvm.gateway, count=3)
    assert max(calls[1:]) <= 32, "the first one looks methods up"


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux can be asked to acknowledge at once")
@pytest.mark.parametrize("is_light", [False, True])
def test_long_answers_are_not_waited_for(jvm: Jvm, is_light: bool) -> None:
    with ExitStack() as held:
        gateway = held.enter_context(light_jvm()).gateway if is_light else jvm.gateway
        text, clock, durations_s = gateway.jvm.java.lang.StringBuilder("x" * 20_000), SystemClock(), list[float]()
        for _ in range(20):
            began_s = clock.monotonic_s()
            assert len(text.toString()) == 20_000
            durations_s.append(clock.monotonic_s() - began_s)
    assert min(durations_s) < 0.03, "Linux acknowledges after 40 ms where it is not asked"


@pytest.fixture
def without_cycles() -> Iterator[None]:
    """Python looks for no garbage by itself: in a process with many objects it seldom does."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_cycles")
def test_java_keeps_nothing_of_commits_that_are_over(jvm: Jvm, monkeypatch: pytest.MonkeyPatch) -> None:
    java, clock = jvm.gateway.jvm.java.lang, FakeClock()
    validate, seen, garbage = Validator.validate, list[Any](), Garbage(clock)

    def validate_seen(validator: Validator, snapshots: Any) -> bool:
        seen.append(java.ref.WeakReference(snapshots))  # They refer to the metadata of the table.
        return validate(validator, snapshots)

    def kept() -> int:
        clock.sleep(10)
        garbage.collect()
        java.System.gc()
        return sum(not reference.refersTo(None) for reference in seen[1:])  # The first is Java's only empty list.

    monkeypatch.setattr(Validator, "validate", validate_seen)
    rehearse_commits(jvm.gateway, count=5)
    assert len(seen) >= 5
    wait_until(lambda: not kept(), lambda: f"{kept()} of {len(seen) - 1} are kept", 30)


def test_a_session_leaves_ctrl_c_as_it_is(jvm: Jvm) -> None:
    """PySpark's own handler calls Java once more, perhaps in the middle of a call: a command would go on with its error."""
    jvm.session()
    handler: Any = signal.getsignal(signal.SIGINT)
    assert "pyspark" not in handler.__module__


def test_what_java_logs_of_an_exception_is_one_line_with_the_innermost_cause(tmp_path: Path) -> None:
    own, written = LightJvm({}), tmp_path / "stderr"
    java = own.gateway.jvm
    java.java.lang.System.setErr(java.java.io.PrintStream(str(written)))
    around = java.java.lang.RuntimeException("around it", java.java.io.IOException("no\nspace"))
    log = java.org.apache.logging.log4j.LogManager.getLogger("some.Logger")
    log.atError().withThrowable(around).log("it failed")
    log.atError().log("and so did this")
    own.close()
    assert [line.partition(" event=")[2] for line in written.read_text().splitlines()] == [
        'jvm logger=Logger message="it failed" cause=" java.io.IOException: no"',
        'jvm logger=Logger message="and so did this"',
    ]
