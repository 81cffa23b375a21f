"""What a terminal is shown: texts, and nothing in them that would move its cursor or colour it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from frazil.cli.main import main
from frazil.cli.output import Output, OutputFormat
from frazil.errors import UnavailableError
from frazil.kafka.topics import KafkaTopics
from tests.fixtures.forks import start
from tests.fixtures.processes import plain_environment
from tests.fixtures.slices import sliced
from tests.needs import has_package, needs

if has_package("http"):
    from frazil_http.problems import problem_of

HOSTILE = "a\x1b[31mred\x9b2J\x7f\ud800"


def _table() -> Table:
    table = Table(box=None)
    table.add_column("column")
    table.add_row(HOSTILE)
    return table


@pytest.mark.parametrize("text", [f"one\n\t{HOSTILE}", Text(HOSTILE, style="red"), Group(Text("one"), _table())])
def test_what_a_record_brings_is_spelt_out(text: RenderableType) -> None:
    results, notes = io.StringIO(), io.StringIO()
    output = Output(results=results, notes=notes)
    output.result({}, text)
    output.note(HOSTILE)
    for shown in (results.getvalue(), notes.getvalue()):
        assert "a\\x1b[31mred\\x9b2J\\x7f\\ud800" in shown
        assert all(line.replace("\t", "").isprintable() for line in shown.splitlines())


def test_lines_and_styles_stay_as_they_are() -> None:
    results = io.StringIO()
    output = Output(results=results)
    output.result({}, Group(Text("é × …"), Text("two", style="red")))
    output.result({}, "one\ntwo")
    assert results.getvalue() == "é × …\ntwo\none\ntwo\n"


def test_json_reports_all_of_it() -> None:
    results = io.StringIO()
    Output(OutputFormat.json, results=results).result({"reason": HOSTILE[:-1]}, "")
    assert json.loads(results.getvalue()) == {"reason": HOSTILE[:-1]}


@pytest.mark.parametrize(
    ("secret", "kind"), [("-----BEGIN\r\nabc\r\n-----END", str), ("a\\b\xa0c", str), ("a\\b\xa0c", Text)]
)
def test_secrets_that_would_be_spelt_out_are_masked_all_the_same(secret: str, kind: type[str | Text]) -> None:
    results, notes = io.StringIO(), io.StringIO()
    output = Output(results=results, notes=notes)
    output.hide([secret])
    output.result({}, kind(f"reason: {secret}"))
    output.note(f"reason: {secret}")
    assert results.getvalue() == "reason: ***\n"
    assert notes.getvalue() == "reason: ***\n"


@pytest.mark.parametrize("command", ["check", "plan", "status", "run"])
def test_every_mistake_of_a_file_is_shown_with_its_line_and_its_remedy(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.yaml"
    table = "{topic: c, mode: upset, start: x, limits: {columns: 0}}"
    file.write_text(
        f"pipeline: p\nkafka: {{bootstrap.servers: b:1}}\ntables:\n  a.b: {table}\n  a.c: {{topik: d, start: x}}\n"
    )
    assert main([command, "-f", str(file)]) == 2
    reported = capsys.readouterr().err.splitlines()
    places = [line.removeprefix(f"where: {file}:") for line in reported if line.startswith("where: ")]
    assert sorted(places) == ["4", "4", "4", "5", "5"]
    assert len([line for line in reported if line.startswith("error: ")]) == 5
    assert len([line for line in reported if line.startswith("remedy: ")]) == 5
    assert main([command, "-f", str(file), "--output", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert sorted(error["others"][0]) == ["message", "remedy", "type", "where"]
    assert len(error["others"]) == 4


def ended(words: Sequence[str], out: IO[bytes]) -> tuple[int, str]:
    """The exit code of a command, in a process of its own, and what it has written beside its result."""
    with TemporaryFile() as notes:
        code = start(words, Path.cwd(), plain_environment(), out, notes).wait(60)
        notes.seek(0)
        return code, notes.read().decode()


@pytest.mark.parametrize(
    "command",
    [
        "schema", "schema --output json", "status --file p.yaml",
        "status --help --output json", "--help", "import --help",
    ],
)  # fmt: skip
def test_a_full_disk_under_standard_output_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also under text that rich draws, and under help, which is not written as results are."""
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text("pipeline: p\nkafka: {bootstrap.servers: '127.0.0.1:1'}\ntables: {a.b: {topic: c}}\n")
    with Path("/dev/full").open("wb") as full:
        code, notes = ended(command.split(), full)
    assert code == 1
    assert "error: the result of the command cannot be written: No space left on device" in notes
    assert "Traceback" not in notes


def test_a_full_disk_under_a_completion_is_named() -> None:
    """Which is that of the shell above."""
    words = ["bash", "-c", '"$0" -m frazil.cli.main --show-completion; exit $?', sys.executable]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, env=plain_environment(), text=True, check=False
        )
    assert done.returncode == 1
    assert "error: the result of the command cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_reader_that_has_enough_is_no_error(form: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as out:
        assert ended(["schema", "--output", form], out) == (141, "")


@pytest.mark.parametrize("encoding", sliced(["ascii", "latin-1"], 1))
def test_a_character_that_the_locale_lacks_is_escaped(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("pipeline: p\nkafka: {bootstrap.servers: b:1}\ntables: {n.ž: {topic: t}}\n")
    command = [sys.executable, "-m", "frazil.cli.main", "lineage", "--file", str(tmp_path / "p.yaml")]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, r"n.\u017e: no column is known yet"), done.stderr


def test_an_error_is_a_line_of_a_log_in_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.yaml").write_text(
        "pipeline: p\nkafka: {bootstrap.servers: b:1}\ntables: {n.t: {topik: t, start: x}}\n"
    )
    assert main(["run", "--file", str(tmp_path / "p.yaml"), "--log-format", "json"]) == 2
    first, second = map(json.loads, capfd.readouterr().err.splitlines())
    assert (first["event"], first["level"], first["exit_code"]) == ("command_failed", "error", 2)
    assert (first["where"], first["remedy"]) == (f"{tmp_path / 'p.yaml'}:3", "did you mean `topic`?")
    assert first["message"].startswith("unknown key `topik` in table `n.t`")
    assert second["message"] == "`start` cannot be `x`"


def test_an_error_that_cannot_be_written_as_json_is_a_note() -> None:
    with Path("/dev/full").open("wb") as full:
        code, notes = ended(["status", "--file", "/nothing.yaml", "--output", "json"], full)
    assert (code, notes.splitlines()[0]) == (2, "error: the pipeline file does not exist")
    assert "Traceback" not in notes


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_that_shows_text_is_cleared() -> None:
    written = []
    for form, stream in (
        (OutputFormat.text, Screen()),
        (OutputFormat.text, io.StringIO()),
        (OutputFormat.json, Screen()),
    ):
        Output(form, results=stream).clear()
        written.append(stream.getvalue())
    assert written == ["\x1b[H\x1b[2J", "", ""]


def test_the_type_of_an_error_is_a_name_that_another_program_can_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever private class a module raises."""
    results = io.StringIO()
    Output(OutputFormat.json, results=results).error(_unavailable(monkeypatch), debug=False)
    assert json.loads(results.getvalue())["error"]["type"] == "UnavailableError"


@needs("http")
def test_the_http_service_has_the_same_name_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert problem_of(_unavailable(monkeypatch)).code == "UnavailableError"


def _unavailable(monkeypatch: pytest.MonkeyPatch) -> UnavailableError:
    monkeypatch.setattr("frazil.kafka.topics._PROMPT_S", 0.1)
    topics = KafkaTopics({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=0.2)
    with pytest.raises(UnavailableError) as raised:
        topics.cluster_id()
    return raised.value
