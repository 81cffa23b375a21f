"""Who changed what: one line for each change, in a file that only this user reads, before the change is made."""

from __future__ import annotations

import getpass
import json
import resource
import socket
import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from frazil.errors import UnavailableError
from frazil.ops.audit import Actor, audit_file, record, record_command
from frazil.spec import PipelineSpec, load_spec
from frazil_testing.twins import FakeClock


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineSpec:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUDO_USER", raising=False)
    file = tmp_path / "frazil.yaml"
    file.write_text(
        'pipeline: shop\nkafka: {bootstrap.servers: "x:1", sasl.password: "${env:P}"}\ntables: {a.b: {topic: c}}\n'
    )
    return load_spec(file, {"P": "hush-hush"})


def lines(spec: PipelineSpec) -> list[dict[str, object]]:
    return [json.loads(line) for line in audit_file(spec).read_text().splitlines()]


def test_a_command_is_recorded_with_its_user_in_the_file_and_in_the_log(
    spec: PipelineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture_logs() as logged:
        record_command(spec, "dead-letters drop", table="a.b", topic=None)
        monkeypatch.setenv("SUDO_USER", "ann")
        record_command(spec, "maintain", table=None)
    user, host = getpass.getuser(), socket.gethostname()
    kept = [{name: value for name, value in line.items() if name != "at"} for line in lines(spec)]
    assert kept == [
        {
            "through": "command",
            "who": user,
            "place": host,
            "operation": "dead-letters drop",
            "arguments": {"table": "a.b"},
        },
        {"through": "command", "who": f"{user} (sudo by ann)", "place": host, "operation": "maintain", "arguments": {}},
    ]
    assert [(event["event"], event["operation"]) for event in logged] == [
        ("operator_action", "dead-letters drop"),
        ("operator_action", "maintain"),
    ]
    assert stat.S_IMODE(audit_file(spec).stat().st_mode) == 0o600


def test_a_line_has_the_time_and_no_secret(spec: PipelineSpec) -> None:
    record(spec, Actor("api", "token 3fa9c1d2", "10.0.0.7"), "replay", {"where": "x = 'hush-hush'"}, FakeClock())
    [line] = lines(spec)
    assert (line["at"], line["arguments"]) == ("2026-09-21T14:13:20.000+00:00", {"where": "x = '***'"})


def test_a_change_that_cannot_be_written_down_is_not_made(spec: PipelineSpec) -> None:
    folder = audit_file(spec).parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("in the way")
    with pytest.raises(UnavailableError, match="the audit log cannot be written: ") as raised:
        record_command(spec, "maintain")
    assert raised.value.where == str(audit_file(spec))
    folder.unlink()
    record_command(spec, "maintain")
    assert len(lines(spec)) == 1


def test_a_line_that_a_full_disk_cuts_off_is_not_taken_for_written(spec: PipelineSpec) -> None:
    record_command(spec, "maintain", table="a.b")
    before, (_, most) = audit_file(spec).stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + 40, most))
    try:
        with pytest.raises(UnavailableError, match="the audit log cannot be written: No space left") as raised:
            record_command(spec, "publish", table="a.b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert "nothing was changed" in raised.value.remedy
    record_command(spec, "publish", table="a.b", to=7)
    written = audit_file(spec).read_text().splitlines()
    assert (len(written), len(written[1])) == (3, 40)
    assert json.loads(written[2])["arguments"] == {"table": "a.b", "to": 7}
