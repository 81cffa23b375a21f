"""The end of a command's JVM: what still refers to it, or waits for it, is left without a word in the log."""

from __future__ import annotations

import gc
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from py4j.protocol import Py4JError

from tests.fixtures.jvms import light_jvm
from tests.fixtures.waiting import wait_until


def keep_objects(commits: bool) -> Exception:
    """Returns an error that was raised while a command had objects of Java's, as every refusal is."""
    try:
        with light_jvm() as running:
            if commits:
                running.listen()
            held = [running.gateway.jvm.java.util.ArrayList() for _ in range(3)]
            raise ValueError(len(held))
    except ValueError as error:
        return error


def interrupt_a_call() -> None:
    """Ends a JVM under a call of another thread, such as one that still tries to read a table of a store that is away."""
    with ThreadPoolExecutor(1) as thread:
        with light_jvm() as running:
            queue = running.gateway.jvm.java.util.concurrent.LinkedTransferQueue()
            waiting = thread.submit(queue.take)
            wait_until(queue.hasWaitingConsumer, "the call is in Java")
        with pytest.raises(Py4JError):
            waiting.result()


@pytest.mark.parametrize("commits", [False, True])
def test_objects_of_java_that_outlive_their_jvm_are_forgotten_in_silence(
    commits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        error = keep_objects(commits)
        assert error.args == (3,)
        del error
        gc.collect()
    assert caplog.records == []


def test_a_call_that_the_end_of_the_jvm_interrupts_is_no_failure_to_report(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        interrupt_a_call()
        gc.collect()
    assert caplog.records == []
