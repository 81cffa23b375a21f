"""Arguments of `frazil replay` that are refused before a JVM is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.cli.main import main
from frazil_testing.twins import MemorySource

_FILE = """pipeline: shop
kafka: {bootstrap.servers: "127.0.0.1:1"}
namespace: shop
topics: [clicks]
tables: {shop.orders: {topic: orders}}
routes: [{topic: events, by: type, to: "routed.${type}", rest: routed.rest}]
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemorySource:
    """The topics, with a pipeline file in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "frazil.yaml").write_text(_FILE)
    found = MemorySource()
    monkeypatch.setattr("frazil_replay.command.open_topics", lambda _: found)
    return found


def test_each_refused_argument_is_accepted_once_its_remedy_is_done(
    source: MemorySource, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refusal(*words: str) -> str:
        assert main(["replay", "shop.orders", *words]) == 2
        return capsys.readouterr().err

    assert "write records a second, such as 5000/s" in refusal("--to", "orders", "--rate", "9")
    assert "write NAME=VALUE" in refusal("--to", "orders", "--rate", "9/s", "--header", "a")
    assert "add `registry`" in refusal("--to", "orders", "--header", "a=b", "--format", "avro")
    (tmp_path / "frazil.yaml").write_text(_FILE + "registry: {url: 'http://127.0.0.1:1'}\n")
    assert "write to another topic" in refusal("--to", "orders", "--format", "avro")
    assert "create it" in refusal("--to", "again")
    source.create("again", 1)
    assert "the catalog has no table `shop.orders`" in refusal("--to", "again")
    (tmp_path / "frazil.yaml").write_text(_FILE.partition("tables:")[0])
    assert "remedy: name a table that the catalog has\n" in refusal("--to", "again")


@pytest.mark.parametrize(("table", "topic"), [("shop.clicks", "clicks"), ("routed.order", "events")])
def test_a_topic_that_the_table_reads_in_another_way_is_refused_too(
    source: MemorySource, table: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source.create(topic, 1)
    assert main(["replay", table, "--to", topic]) == 2
    assert "without end" in capsys.readouterr().err
