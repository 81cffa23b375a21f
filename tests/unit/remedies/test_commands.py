"""Commands that refuse, and that work once somebody has done what the remedy reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from frazil.cli.main import main
from frazil.errors import UnavailableError
from frazil.kafka.outbox import _failure
from frazil.spec import load_spec
from tests.fixtures.forks import run_to_end
from tests.fixtures.processes import plain_environment
from tests.unit.remedies.followed import is_told
from tests.unit.spec.pipeline_file import with_section

Captured = pytest.CaptureFixture[str]


def reported(capsys: Captured) -> str:
    """The remedy of the error that a command has printed as JSON."""
    return str(json.loads(capsys.readouterr().out)["error"]["remedy"])


def test_usage(capsys: Captured) -> None:
    assert main(["schema", "--outptu", "json", "--output", "json"]) == 2
    shown = reported(capsys)
    assert is_told("see … --help", shown)
    assert main(shown.removeprefix("see frazil ").split()) == 0
    assert "--output" in capsys.readouterr().out


def test_a_bound_for_a_run_without_an_end(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "frazil.yaml"
    assert main(["run", "-f", str(file), "--timeout", "1s", "--output", "json"]) == 2
    assert is_told("add --until-caught-up", reported(capsys))
    assert main(["run", "-f", str(file), "--timeout", "1s", "--until-caught-up", "--output", "json"]) == 2
    assert reported(capsys).startswith(
        "change to its folder, name it with -f FILE"
    )  # It has come to the next question.
    file.write_text(with_section(""))
    assert load_spec(file).tables


def test_a_directory_that_was_deleted(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && {sys.executable} -m frazil.cli.main check"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error: the current directory has been deleted" in done.stderr
    assert "change to a directory that exists, and start the command there" in done.stderr
    followed = run_to_end(["schema"], tmp_path, plain_environment(), 60)
    assert (followed.returncode, json.loads(followed.stdout)["type"]) == (0, "object")


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "create the topic, or correct its name"),
        (KafkaError.MSG_SIZE_TOO_LARGE, "raise the topic's max.message.bytes"),
        (KafkaError._TRANSPORT, "Frazil retries with back-off; look at the service that is named"),
    ],
)
def test_a_topic_of_dead_letters_that_cannot_be_written(code: int, remedy: str) -> None:
    found = _failure(KafkaException(KafkaError(code)), "bad")
    assert isinstance(found, UnavailableError)
    assert found.remedy.startswith(remedy), found.message
