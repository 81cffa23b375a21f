"""The commands that act on a running pipeline, as processes of the loop in this one see them."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from frazil.cli.output import Output, OutputFormat
from frazil.errors import ConflictError, UnavailableError
from frazil.spec import load_spec
from frazil_http.commands import pause, reset, resume
from frazil_http.server import open_server
from packages.http.tests.unit.running_scene import RunningScene, wait_for
from tests.fixtures.certificates import EXPIRED, Authority

TOKEN = "t" * 32


@pytest.fixture
def port() -> int:
    """A port that no process has."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        found: int = one.getsockname()[1]
    return found


def write(folder: Path, http: str, name: str = "p") -> Path:
    """A pipeline file with this section."""
    file = folder / "frazil.yaml"
    file.write_text(
        f"pipeline: {name}\nkafka: {{bootstrap.servers: 'x:1'}}\ntables: {{n.a: {{topic: a}}}}\nhttp: {http}\n"
    )
    return file


def called(command: Any, *words: Any, **options: Any) -> tuple[int, Any]:
    """The exit code of a command, and what it printed."""
    printed = io.StringIO()
    code = command(Output(OutputFormat.json, results=printed), *words, **options)
    return code or 0, json.loads(printed.getvalue())


@pytest.fixture
def file(tmp_path: Path, port: int) -> Iterator[Path]:
    """The pipeline file of a process that runs, with a table of two rows."""
    made = Authority(tmp_path).make("service")
    tls = f"{{certificate: {made.certificate}, key: {made.key}}}"
    file = write(tmp_path, f"{{listen: '127.0.0.1:{port}', tokens: {{operate: {TOKEN}}}, tls: {tls}}}")
    scene = RunningScene(tmp_path, "a")
    scene.feed("a", {"id": 1}, {"id": 2})
    server = open_server(load_spec(file).process.http, "frazil_http.app:make_app", scene.pipeline)
    assert server is not None
    server.start()
    server.begin()
    with scene.running() as service:
        wait_for(lambda: service.tables[0].counts.records == 2)
        yield file
    server.stop()


def test_a_command_names_the_certificate_that_has_expired(file: Path, tmp_path: Path) -> None:
    expired = Authority(tmp_path, "other").make("service", until=EXPIRED)
    assert str(expired.certificate) in file.read_text()
    with pytest.raises(UnavailableError, match="is refused: certificate has expired") as no:
        called(pause, "n.a", file)
    assert no.value.remedy == "renew the files of `http.tls`, or set this machine's clock"


def test_a_table_is_paused_reset_and_resumed(file: Path) -> None:
    code, paused = called(pause, "n.a", file)
    assert (code, paused["state"]) == (0, "paused")
    code, shown = called(reset, "n.a", file)
    assert (code, shown["dry_run"], shown["read_again"]) == (1, True, 2)
    code, done = called(reset, "n.a", file, yes=True)
    assert (code, done["dry_run"], done["read_again"]) == (0, False, 2)
    assert called(resume, "n.a", file)[1]["state"] != "paused"
    with pytest.raises(ConflictError, match=r"no table `n\.b`"):
        called(pause, "n.b", file)


def test_a_reset_names_the_command_with_which_the_table_continues(file: Path) -> None:
    called(pause, "n.a", file)
    printed = io.StringIO()
    assert reset(Output(results=printed), "n.a", file, yes=True) == 0
    assert printed.getvalue().splitlines()[-1] == "run `frazil resume n.a` next"
    assert called(resume, "n.a", file)[1]["state"] != "paused"


def test_a_command_that_reaches_no_process_of_the_pipeline_reports_what_to_do(file: Path, port: int) -> None:
    write(file.parent, file.read_text().partition("http: ")[2], name="other")
    with pytest.raises(UnavailableError, match="runs another pipeline: `p`") as refused:
        called(pause, "n.a", file)
    assert refused.value.remedy == "give each pipeline an address of its own: `http: {listen: …}`"
    write(file.parent, f"{{listen: '127.0.0.1:{1 if port != 1 else 2}'}}")
    with pytest.raises(UnavailableError, match="no running pipeline answers at") as refused:
        called(resume, "n.a", file)
    assert refused.value.remedy == "start `frazil run`, on this machine and with this pipeline file"
    write(file.parent, "false")
    with pytest.raises(UnavailableError, match="`http` is false") as refused:
        called(reset, "n.a", file)
    assert refused.value.remedy == "remove `http: false`, and start the pipeline again"


@pytest.mark.parametrize("body", [b"<html>", b'["pipeline"]', b'{"status": "ok"}', b"\xff"])
def test_another_program_at_the_address_is_named(tmp_path: Path, body: bytes) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        file = write(tmp_path, f"{{listen: '127.0.0.1:{server.server_port}'}}")
        with pytest.raises(UnavailableError, match=r"^another program answers at") as refused:
            called(pause, "n.a", file)
    assert refused.value.remedy == "end the other process, or write another address under `http.listen`"
