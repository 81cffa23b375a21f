"""The server: where it listens, and what it does when it cannot."""

from __future__ import annotations

import datetime
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.ops.running import RunningPipeline
from frazil.ops.state_file import StateFile
from frazil.spec.connections import HttpSpec, HttpTlsSpec
from frazil.spec.syntax.forms import Address
from frazil_http import connections
from frazil_http.certificate import Validity
from frazil_http.observer import check_http
from frazil_http.server import open_server
from packages.http.tests.unit.running_scene import RunningScene
from tests.fixtures.certificates import EXPIRED, Authority, Files
from tests.unit.ingest.service_scene import Scene

APP = "frazil_http.app:make_app"


@pytest.fixture
def taken() -> Iterator[Address]:
    """An address that another process has."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield Address("127.0.0.1", other.getsockname()[1])


def free() -> Address:
    """An address that no process has."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return Address("127.0.0.1", one.getsockname()[1])


@contextmanager
def served(folder: Path) -> Iterator[Address]:
    """Serves a pipeline with one table, whose loop does not turn; yields where."""
    address, scene = free(), RunningScene(folder, "a")
    server = open_server(HttpSpec(listen=address), APP, scene.pipeline)
    assert server is not None
    server.start()
    server.begin()
    try:
        yield address
    finally:
        server.stop()


def ask(address: Address, path: str) -> Any:
    """The JSON of an answer."""
    with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
        return json.load(answer)


def test_an_address_or_a_certificate_that_cannot_be_used_is_named_with_its_remedy(
    taken: Address, tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match="another process listens there") as refused:
        open_server(HttpSpec(listen=taken, is_declared=True), APP, None)
    assert refused.value.remedy == "end the other process, or write another address under `http.listen`"
    with capture_logs() as logs:
        assert open_server(HttpSpec(listen=taken), APP, None) is None
    (event,) = logs
    assert (event["event"], event["log_level"], event["address"]) == ("http_unavailable", "warning", str(taken))
    assert event["remedy"] == "write an address under `http: {listen: …}`, or `http: false`"
    (tmp_path / "c").write_text("no certificate")
    for path in (tmp_path / "c", tmp_path / "missing"):
        with pytest.raises(SpecError, match=r"`http\.tls` cannot be used") as wrong:
            open_server(HttpSpec(listen=free(), tls=HttpTlsSpec(certificate=str(path), key=str(path))), APP, None)
        assert wrong.value.remedy == "name a certificate and its key, both as PEM and without a password"
    assert open_server(None, APP, None) is None


def test_a_key_with_a_password_is_refused_and_no_terminal_is_asked_for_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    locked = Authority(tmp_path).make("server", password="secret")
    missing = tmp_path / "missing"
    for key, reason in ((locked.key, "the key has a password"), (missing, "No such file or directory")):
        tls = HttpTlsSpec(certificate=str(locked.certificate), key=str(key))
        with pytest.raises(SpecError) as wrong:
            open_server(HttpSpec(listen=free(), tls=tls), APP, None)
        assert (wrong.value.message, wrong.value.where) == (f"`http.tls` cannot be used: {reason}", str(key))
    assert capfd.readouterr().err == ""


def test_check_tries_a_declared_address_and_its_certificate(taken: Address, tmp_path: Path) -> None:
    def found(http: HttpSpec) -> list[tuple[bool, str, str]]:
        spec = Scene(tmp_path, "a").spec("a").model_copy(update={"http": http})
        return [(one.is_ok, one.found, one.remedy) for one in check_http(spec, {})]

    remedy = "end the other process, or write another address under `http.listen`"
    message = f"the HTTP service cannot listen on {taken}: another process listens there"
    assert found(HttpSpec(listen=taken, is_declared=True)) == [(False, message, remedy)]
    address = free()
    assert found(HttpSpec(listen=address, is_declared=True)) == [(True, f"can listen on {address}", "")]
    with socket.create_server(address):  # It was left free.
        assert found(HttpSpec(listen=address)) == []  # Not declared: a run continues without the service.
    missing = HttpTlsSpec(certificate=str(tmp_path / "c"), key=str(tmp_path / "k"))
    ((is_ok, text, remedy),) = found(HttpSpec(listen=address, is_declared=True, tls=missing))
    assert (is_ok, remedy) == (False, "name a certificate and its key, both as PEM and without a password")
    assert "`http.tls` cannot be used" in text
    # Beside a running process of the pipeline the address is its own.
    StateFile(tmp_path, "p", SystemClock(), str).write([])
    assert found(HttpSpec(listen=taken, is_declared=True)) == []


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    def files(number: int) -> Files:
        (tmp_path / f"{number}").mkdir()
        return Authority(tmp_path / f"{number}", f"authority-{number}").make("server")

    def served() -> str:
        return ssl.get_server_certificate(address)

    old, new = files(1), files(2)
    used = Files(tmp_path / "tls.crt", tmp_path / "tls.key")
    for one, other in ((old.certificate, used.certificate), (old.key, used.key)):
        other.write_bytes(one.read_bytes())
    address, scene = free(), Scene(tmp_path, "a")
    running = RunningPipeline(
        scene.spec("a"), StateFile(tmp_path, "p", scene.clock, str), scene.clock, lambda found: found
    )
    tls = HttpTlsSpec(certificate=str(used.certificate), key=str(used.key))
    server = open_server(HttpSpec(listen=address, tls=tls), APP, running)
    assert server is not None
    server.start()
    server.begin()
    try:
        assert served() == old.certificate.read_text()
        used.certificate.write_bytes(new.certificate.read_bytes())
        assert served() == old.certificate.read_text()  # Its key is yet to follow.
        used.key.write_bytes(new.key.read_bytes())
        assert served() == new.certificate.read_text()
        used.key.unlink()
        assert served() == new.certificate.read_text()
        used.key.write_bytes(Authority(tmp_path).make("locked", password="secret").key.read_bytes())
        assert served() == new.certificate.read_text()
    finally:
        server.stop()


def test_a_certificate_out_of_date_is_logged_and_a_problem_of_check(tmp_path: Path) -> None:
    authority, address, scene = Authority(tmp_path), free(), Scene(tmp_path, "a")
    soon = datetime.datetime.fromtimestamp(SystemClock().now_ms() // 1000 + 3 * 24 * 3600, datetime.UTC)
    expired, ending, good = (
        authority.make("expired", until=EXPIRED), authority.make("ending", until=soon), authority.make("good"),
    )  # fmt: skip

    def found(files: Files) -> list[tuple[str, bool, str, str]]:
        http = HttpSpec(listen=address, tls=HttpTlsSpec(certificate=str(files.certificate), key=str(files.key)))
        spec = scene.spec("a").model_copy(update={"http": http})
        return [(one.name, one.is_ok, one.found, one.remedy) for one in check_http(spec, {})]

    listens = ("http", True, f"can listen on {address}", "")
    remedy = "renew the files of `http.tls`, or set this machine's clock"
    reason = "the certificate has expired at 2021-01-01 00:00+00:00"
    warning = f"the certificate expires at {soon.isoformat(sep=' ', timespec='minutes')}"
    assert found(expired) == [("http certificate", False, reason, remedy), listens]
    assert found(ending) == [("http certificate", True, f"warning: {warning}; {remedy}", ""), listens]
    assert found(good) == [("http certificate", True, "clients accept its dates", ""), listens]

    used = Files(tmp_path / "tls.crt", tmp_path / "tls.key")
    tls = HttpTlsSpec(certificate=str(used.certificate), key=str(used.key))

    def serve(files: Files) -> None:
        for one, other in ((files.certificate, used.certificate), (files.key, used.key)):
            other.write_bytes(one.read_bytes())

    serve(expired)
    running = RunningPipeline(
        scene.spec("a"), StateFile(tmp_path, "p", scene.clock, str), scene.clock, lambda found: found
    )
    server = open_server(HttpSpec(listen=address, tls=tls), APP, running)
    assert server is not None
    with capture_logs() as logs:
        server.start()
        server.begin()
        try:
            for files in (expired, expired, ending, good):
                if files is not expired:
                    serve(files)
                assert ssl.get_server_certificate(address) == files.certificate.read_text()
        finally:
            server.stop()
    told = [(one["event"], one["reason"], one["remedy"]) for one in logs if "reason" in one]
    assert told == [
        ("http_certificate_invalid", reason, remedy),
        ("http_certificate_expiring", warning, remedy),
    ]


def test_a_certificate_is_about_to_expire_in_two_weeks_or_a_tenth_of_its_time() -> None:
    day_ms = 24 * 3600 * 1000
    year, short = Validity(0, 365 * day_ms), Validity(0, 10 * day_ms)
    assert [year.warning(at * day_ms) is not None for at in (350, 352, 366)] == [False, True, False]
    assert [short.warning(at * day_ms) is not None for at in (1, 8, 9.5)] == [False, False, True]
    early = Validity(day_ms, 2 * day_ms)
    assert early.refusal(0) == "the certificate is not valid before 1970-01-02 00:00+00:00"
    assert (early.warning(0), early.refusal(day_ms)) == (None, None)


def test_connections_without_a_whole_request_do_not_keep_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 0.5)
    with served(tmp_path) as address:
        kept = http.client.HTTPConnection(*address, timeout=20)
        kept.request("GET", "/healthz")
        assert kept.getresponse().read() == b'{"ok":true}'
        silent = [socket.create_connection(address, 20) for _ in range(210)]
        for begun, one in enumerate(silent):
            if begun % 2:
                one.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        kept.sock.sendall(b"GET /healthz HTTP")  # In a connection that has had an answer.
        assert [one.recv(1) for one in (*silent, kept.sock)] == [b""] * 211
        assert ask(address, "/healthz") == {"ok": True}
        kept.close()
        for one in silent:
            one.close()


def test_the_server_answers_until_it_is_stopped(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    address = free()
    running = RunningPipeline(
        scene.spec("a"), StateFile(tmp_path, "p", scene.clock, str), scene.clock, lambda found: found
    )
    server = open_server(HttpSpec(listen=address), APP, running)
    assert server is not None
    server.start()
    server.begin()
    try:
        assert ask(address, "/healthz") == {"ok": True}
    finally:
        server.stop()
    with pytest.raises(urllib.error.URLError):
        ask(address, "/healthz")
