"""`frazil init` on topics in memory: what it refuses, and what it writes then."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest

from frazil.cli.main import main
from frazil.errors import UnavailableError
from frazil.kafka.port import ReadRecord
from frazil.types import OffsetRange
from frazil_testing.twins import MemorySource


def test_each_refusal_ends_once_its_remedy_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = MemorySource()
    source.create("clicks", 1)

    def sample(_: object, ranges: Iterable[OffsetRange], __: object) -> list[ReadRecord]:
        return [
            ReadRecord(one.topic, one.partition, at, b'{"a": 1}') for one in ranges for at in range(one.start, one.end)
        ]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("frazil_start.init_command.open_topics", lambda _: source)
    monkeypatch.setattr("frazil_start.init_command.read_sample", sample)
    monkeypatch.setattr("frazil_start.init_command.findings_of", lambda _: ())
    named = ["init", "--bootstrap-servers", "b:1"]
    assert main(["init"]) == 2
    assert "give --bootstrap-servers" in capsys.readouterr().err
    assert main(named) == 1
    assert "produce some records first" in capsys.readouterr().err
    source.begin_transaction("clicks", 0)
    source.produce("clicks", 0, b'{"a": 1}')
    assert main(named) == 1
    assert "can be made of; those of clicks wait behind an open transaction\n" in capsys.readouterr().err
    source.end_transaction("clicks", 0)
    source.produce("clicks", 0, b'{"a": 1}')
    assert main([*named, "--kafka", "security.protocol"]) == 2
    assert "write it so, such as --kafka security.protocol=SSL" in capsys.readouterr().err
    assert main([*named, "--kafka", "security.protocol=SSL", "-f", "tls.yaml"]) == 0
    assert main([*named, "--kafka", "sasl.password=hunter2"]) == 2
    assert "write --kafka 'NAME=${env:VARIABLE}'" in capsys.readouterr().err
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    assert main([*named, "--kafka", "sasl.password=${env:KAFKA_PASSWORD}", "-f", "secured.yaml"]) == 0
    assert "hunter2" not in (tmp_path / "secured.yaml").read_text()
    assert main(named) == 0
    assert main(named) == 1
    assert "name another with -f" in capsys.readouterr().err
    assert main([*named, "-f", "conf/second.yaml"]) == 1
    assert "the file's folder does not exist\nwhere: conf/second.yaml\nremedy: create it" in capsys.readouterr().err
    (tmp_path / "conf").mkdir()
    assert main([*named, "-f", "conf/second.yaml"]) == 0
    assert main([*named, "-f", "second.yaml"]) == 0
    assert (tmp_path / "second.yaml").read_text() == (tmp_path / "frazil.yaml").read_text()


@pytest.mark.parametrize(
    ("options", "where", "remedy"),
    [
        (
            ["--bootstrap-servers", "broker"],
            "--bootstrap-servers",
            "write the brokers, such as `--bootstrap-servers broker-1:9092,",
        ),
        (["--bootstrap-servers", "b:1", "--registry", "registry"], "--registry", "begin it with http:// or https://"),
        (["--bootstrap-servers", "b:1", "--warehouse", "s3x://lake"], "--warehouse", "use one of abfs, "),
        (["--bootstrap-servers", "b:1", "--kafka", "security.protocols=SSL"], "--kafka", "did you mean `security.prot"),
        (["--bootstrap-servers", "b:1", "--kafka", "sasl.password=${env:NO_SUCH}"], "--kafka", "set NO_SUCH before"),
        (
            ["--bootstrap-servers", "b:1", "--kafka", "security.protocol"],
            "--kafka",
            "write it so, such as --kafka secu",
        ),
    ],
)
def test_a_wrong_option_is_named_and_not_the_draft_of_the_file(
    options: list[str],
    where: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", *options]) == 2
    error = capsys.readouterr().err
    assert f"\nwhere: {where}\nremedy: {remedy}" in error
    assert re.search(r"`(kafka\.bootstrap|registry\.|catalog\.)", error) is None
    assert list(tmp_path.iterdir()) == []


class _Away:
    """A registry that does not answer."""

    def __init__(self, _: object) -> None:
        pass

    def by_id(self, schema_id: int) -> None:
        remedy = "Frazil retries with back-off; check that the registry is running at `registry.url`"
        raise UnavailableError(f"the schema registry does not return schema {schema_id}", remedy=remedy, where="r:1")

    def close(self) -> None:
        pass


def test_a_registry_that_does_not_answer_is_named_by_its_option_and_is_not_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = MemorySource()
    source.create("orders", 1)
    source.produce("orders", 0, b"x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("frazil_start.init_command.open_topics", lambda _: source)
    monkeypatch.setattr(
        "frazil_start.init_command.read_sample",
        lambda *_: [ReadRecord("orders", 0, 0, b"\0\0\0\0\7value")],
    )
    monkeypatch.setattr("frazil_start.init_command.ConfluentRegistry", _Away)
    assert main(["init", "--bootstrap-servers", "b:1", "--registry", "http://r:1"]) == 1
    assert capsys.readouterr().err == (
        "error: the schema registry does not return schema 7\n"
        "where: r:1\n"
        "remedy: check that the registry is running at `--registry`\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("remedy", "shown"),
    [
        (
            "check sasl.mechanism and the user, password or client secret under `kafka`; Frazil retries with back-off",
            "check sasl.mechanism and the user, password or client secret given with `--kafka`",
        ),
        ("check that a broker listens at `bootstrap.servers`", "check that a broker listens at `--bootstrap-servers`"),
    ],
)
def test_brokers_that_do_not_answer_are_named_by_the_options(
    remedy: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Away(MemorySource):
        def topics(self, _: object) -> NoReturn:
            raise UnavailableError("Kafka is not reachable", remedy=remedy, where="b:1")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("frazil_start.init_command.open_topics", lambda _: Away())
    assert main(["init", "--bootstrap-servers", "b:1"]) == 1
    assert capsys.readouterr().err == f"error: Kafka is not reachable\nwhere: b:1\nremedy: {shown}\n"
