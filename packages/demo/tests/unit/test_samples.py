"""What the generator of the tutorials' data reports when a service of the tutorial is missing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import typer

from frazil_demo.samples import _register, sensor_schema, shop_statements


class _NotFound(BaseHTTPRequestHandler):
    """A web server without a registry at its root, such as Apicurio's."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(404)

    def log_message(self, *words: object) -> None:
        """Requests are not logged."""


@pytest.fixture
def another_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _NotFound) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def printed_for(registry: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(typer.Exit) as ended:
        _register(registry, "machine-001-value", sensor_schema(has_unit=False))
    assert ended.value.exit_code == 1
    return capsys.readouterr().err


def test_a_registry_at_another_path_is_reported_with_the_option_that_names_it(
    another_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = printed_for(another_server, capsys)
    assert printed.startswith(
        f"error: no schema registry with Confluent's API answers at {another_server} (HTTP Error 404"
    )
    assert "--registry, such as http://localhost:8081/apis/ccompat/v7 for Apicurio" in printed


def test_a_registry_that_is_not_started_is_reported_without_a_stack(capsys: pytest.CaptureFixture[str]) -> None:
    printed = printed_for("http://127.0.0.1:1", capsys)
    assert "(<urlopen error [Errno 111] Connection refused>); start it" in printed


@pytest.mark.parametrize("is_later", [False, True])
def test_sql_that_is_loaded_twice_fails_before_it_changes_a_row(is_later: bool) -> None:
    first, *_ = shop_statements(is_later)
    assert first.startswith(("create table ", "alter table customers add column "))
