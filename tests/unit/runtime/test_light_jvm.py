"""Ctrl-C while a command waits for Java."""

from __future__ import annotations

import os
import signal
import socket
import threading

import pytest
from py4j.java_gateway import GatewayParameters

from frazil.cli.logging import configure_logging
from frazil.cli.output import LogFormat, LogLevel, Redaction
from frazil.runtime.light_jvm import Gateway


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
def test_ctrl_c_during_a_call_of_java_is_only_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.text, LogLevel.info, Redaction())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # That of a run, of an earlier test.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        gateway = Gateway(gateway_parameters=GatewayParameters(port=silent.getsockname()[1]))
        presses = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        presses.start()
        with pytest.raises(KeyboardInterrupt):
            gateway.jvm.java.lang.System.currentTimeMillis()
        presses.join()
    signal.signal(signal.SIGINT, before)
    assert capsys.readouterr() == ("", "")
