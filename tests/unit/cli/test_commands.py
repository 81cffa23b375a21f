"""The table of commands, and the commands that need neither broker nor table."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from frazil.cli.commands import COMMANDS, GROUPS, OTHER_PANEL, PANELS, every_command
from frazil.cli.main import main
from frazil.cli.output import DEFAULT_FILE, Output, OutputFormat
from frazil.runtime.machine import Check
from frazil.spec import json_schema
from tests.needs import needs_all


@needs_all()
def test_every_command_of_the_table_can_be_loaded() -> None:
    commands = every_command()
    assert [command.load().__name__ for command in commands] == [command.target.split(":")[1] for command in commands]


def test_every_group_of_the_table_is_described() -> None:
    assert {command.name.split()[0] for command in every_command() if " " in command.name} == set(GROUPS)


@needs_all()
def test_every_command_that_reads_the_pipeline_file_names_the_exit_code_of_a_wrong_one() -> None:
    functions = {command.name: command.load() for command in every_command()}
    reading = {
        name: " ".join((function.__doc__ or "").split())
        for name, function in functions.items()
        if inspect.signature(function).parameters.get("file", SimpleNamespace(default=None)).default == DEFAULT_FILE
    }
    assert {"run", "dead-letters list", "dead-letters show", "adopt", "pause", "verify"} <= reading.keys()
    assert [name for name, text in reading.items() if not re.search(r"Exit code:.* 2 (when|for) ", text)] == []


def test_every_command_is_under_a_title_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {name for names in PANELS.values() for name in names}
    assert {command.name.split()[0] for command in COMMANDS} - listed == set()
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert sorted(PANELS, key=lambda title: printed.index(f"─ {title} ─")) == list(PANELS)
    assert OTHER_PANEL not in printed


def test_schema_prints_the_schema_in_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    for form in OutputFormat:
        assert main(["schema", "--output", form]) == 0
        assert json.loads(capsys.readouterr().out) == json_schema()


def test_doctor_exits_one_and_names_the_remedy_when_something_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["doctor"]) == 1
    assert "problem  jars for spark  not fetched yet; run frazil setup\n" in capsys.readouterr().out
    assert main(["doctor", "--output", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert next(check["name"] for check in document["checks"] if not check["ok"]) == "java"


def test_doctor_exits_zero_when_all_is_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.cli.machine.checks", lambda: [Check("java", True, "17")])
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out == "ok       java            17\n"


def test_setup_gives_the_error_of_a_first_run_as_the_reason_for_slower_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("frazil.cli.machine.jars", lambda _: [])
    monkeypatch.setattr("frazil.cli.machine.compile_all", lambda: "")
    told = "level=info event=starting\nerror: the JVM did not start\nwhere: /usr/bin/java\nremedy: read it\n"
    monkeypatch.setattr("frazil.cli.machine.record_start", lambda: told)
    assert main(["setup"]) == 0
    assert capsys.readouterr().out == "ready; starts will be slower: the JVM did not start\n"


def test_setup_takes_one_bundle_at_a_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main(["setup", "--bundle", "a.tar", "--from", "b.tar"]) == 2
    assert "remedy: leave one of the two out" in capsys.readouterr().err
    monkeypatch.setenv("FRAZIL_SETUP_FROM", "b.tar")
    assert main(["setup", "--bundle", "a.tar"]) == 2, "each option can be set with a variable of its own name"
    assert "remedy: leave one of the two out" in capsys.readouterr().err
    assert main(["setup", "--from", str(tmp_path / "b.tar")]) == 1
    assert "error: the bundle cannot be read: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message", "remedy"),
    [
        (
            "sasl.passwd: x",
            'the Kafka client refuses its settings: No such configuration property: "sasl.passwd"',
            "did you mean `sasl.password`?",
        ),
        (
            "sasl.mechanism: OAUTHBEARER, sasl.username: me",
            "kafka `sasl.mechanism: OAUTHBEARER` has nothing to get a token with",
            "write `sasl.oauthbearer.method: oidc`, sasl.oauthbearer.client.id, .client.secret and .token.endpoint.url:"
            " both Kafka clients can do that",
        ),
    ],
)
def test_a_setting_that_a_client_of_kafka_refuses_is_told_with_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, settings: str, message: str, remedy: str
) -> None:
    file = tmp_path / "frazil.yaml"
    lines = [
        "pipeline: p",
        "kafka:",
        '  bootstrap.servers: "127.0.0.1:9"',
        *(f"  {one}" for one in settings.split(", ")),
    ]
    file.write_text("\n".join([*lines, "tables: {a.b: {topic: c}}"]))
    assert main(["status", "-f", str(file)]) == 2
    assert capsys.readouterr().err == f"error: {message}\nwhere: {file}:4\nremedy: {remedy}\n"


def test_a_table_is_drawn_for_people_only(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table  # noqa: PLC0415  (as the port imports it)

    table = Table("name", "state")
    table.add_row("shop.orders", "running")
    Output(OutputFormat.text).result({"tables": []}, table)
    Output(OutputFormat.json).result({"tables": []}, table)
    text, document = capsys.readouterr().out.rsplit("\n", 2)[0:2]
    assert "shop.orders" in text
    assert document == '{"tables": []}'


def _file(target: str) -> Path:
    return Path("src", *target.partition(":")[0].split(".")).with_suffix(".py")


def test_help_imports_nothing_that_only_commands_need() -> None:
    heavy = ("confluent_kafka", "numba", "numpy", "pyarrow", "pydantic", "pyiceberg", "pyspark", "structlog")
    program = "import sys; from frazil.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "dead-letters" in ended.stdout
    assert not set(heavy) & set(ended.stderr.split())
