"""Which offsets a table is adopted at, and what is refused until its remedy is done."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.types import LongType

from frazil.errors import SpecError, UnavailableError
from frazil.ingest.failures import TableStopped
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.schema.evolve import new_schema
from frazil_migrate.adopt.adopt import Origin, Tool, commit, plan_adoptions
from frazil_migrate.adopt.offsets import Services
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.memory_kafka import MemoryGroup
from packages.migrate.tests.unit.adopt.scene import CONTROL, POSITION, SINK, TABLE, TOPIC, Scene
from tests.unit.ingest.test_routes import Routed

_QUERY = {"spark.sql.streaming.queryId": "q"}


def event(kind: int, group: str = SINK, table: str = "a", rows: int = 1) -> bytes:
    """An event of the sink's control topic: Avro behind its schema, with the names that Iceberg gives its types."""
    uuid = {"type": "fixed", "name": "uuid_fixed", "namespace": "", "size": 16}
    file = {"type": "record", "name": "File", "fields": [{"name": "record_count", "type": "long"}]}
    reference = [
        {"name": "namespace", "type": {"type": "array", "items": "string"}},
        {"name": "name", "type": "string"},
    ]
    payload = [
        {"name": "commit_id", "type": "uuid_fixed"},
        {"name": "table_reference", "type": {"type": "record", "name": "TableReference", "fields": reference}},
        {"name": "data_files", "type": ["null", {"type": "array", "items": file}]},
        {"name": "delete_files", "type": ["null", {"type": "array", "items": "org.apache.iceberg.connect.File"}]},
    ]
    fields = [
        {"name": "id", "type": uuid},
        {"name": "type", "type": "int"},
        {"name": "group_id", "type": "string"},
        {"name": "payload", "type": {"type": "record", "name": "DataWritten", "fields": payload}},
    ]
    schema: dict[str, Any] = {
        "type": "record",
        "name": "Event",
        "namespace": "org.apache.iceberg.connect",
        "fields": fields,
    }
    value = {
        "id": bytes(16),
        "type": kind,
        "group_id": group,
        "payload": {
            "commit_id": bytes(16),
            "table_reference": {"namespace": ["n"], "name": table},
            "data_files": [{"record_count": rows}],
            "delete_files": None,
        },
    }
    text = json.dumps(schema).replace('"namespace": "org.apache.iceberg.connect"', '"namespace": ""')
    body = BytesIO()
    plain = json.loads(text.replace("org.apache.iceberg.connect.File", "File"))
    fastavro.schemaless_writer(body, plain, value)
    head = json.dumps(schema).encode()
    return b"\xc2\x01" + len(head).to_bytes(2, "big") + head + body.getvalue()


def checkpoint(folder: Path, commits: int, offsets: dict[int, int]) -> Path:
    """The checkpoint of the query `q`, with these batches."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"q"}')
    for batch, offset in offsets.items():
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"{TOPIC}":{{"0":{offset}}}}}')
    for batch in range(commits + 1):
        (folder / "commits" / str(batch)).write_text("v1\n{}")
    return folder


def test_a_table_of_the_sink_continues_at_the_offsets_of_its_group(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.make_table(**{POSITION: '{"0":1}'})
    scene.has_read(SINK, 4)
    planned = scene.plan(Tool.KAFKA_CONNECT)
    assert (planned.action, planned.place, planned.offsets, planned.unread) == (
        "adopt", f"group {SINK}", {TOPIC: {0: 4}}, 2,
    )  # fmt: skip
    assert len(scene.catalog.ancestors(TABLE)) == 1
    scene.adopt(Tool.KAFKA_CONNECT)
    assert scene.plan(Tool.KAFKA_CONNECT).action == "none"
    scene.catch_up()
    assert [row["id"] for row in scene.rows(TABLE)] == [4, 5]


def test_files_that_the_sink_has_not_committed_are_waited_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.make_table(**{POSITION: '{"0":1}'})
    scene.has_read(SINK, 4)
    for one in (event(1), event(1, group="other"), event(1, table="b"), event(0), event(1, rows=0)):
        scene.source.produce(CONTROL, 0, one)
    assert scene.plan(Tool.KAFKA_CONNECT).action == "adopt"  # The first event is in the table.
    scene.source.produce(CONTROL, 0, event(1))
    refused = scene.adopt(Tool.KAFKA_CONNECT)
    assert refused.problem is not None
    assert "1 file" in refused.problem.message
    assert "pause" in refused.problem.remedy
    scene.catalog.append_foreign(TABLE, summary={POSITION: '{"0":6}'})
    assert scene.adopt(Tool.KAFKA_CONNECT).action == "adopt"


def test_the_first_commit_of_the_sink_is_waited_for_or_every_record_is_read(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.catalog.create(TABLE, new_schema([("id", LongType())]), {}, 2)
    scene.has_read(SINK, 4)
    scene.source.produce(CONTROL, 0, event(1))
    refused = scene.adopt(Tool.KAFKA_CONNECT)
    assert refused.problem is not None
    assert "not committed yet" in refused.problem.message
    assert "first commit" in refused.problem.remedy
    scene.catalog.append_foreign(TABLE, summary={POSITION: '{"0":1}'})
    assert scene.adopt(Tool.KAFKA_CONNECT).action == "adopt"

    without = Scene(tmp_path / "without")
    without.catalog.create(TABLE, new_schema([("id", LongType())]), {}, 2)
    without.has_read(SINK, 4)
    without.catch_up()
    assert [row["id"] for row in without.rows(TABLE)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("value", [b"{}", b"\xc2\x01", b"\xc2\x01\xff\xff{}", b"\xc2\x01\x00\x02{}"])
def test_a_record_of_another_writer_in_the_control_topic_is_named(tmp_path: Path, value: bytes) -> None:
    scene = Scene(tmp_path)
    scene.make_table(**{POSITION: '{"0":0}'})
    scene.has_read(SINK, 4)
    scene.source.produce(CONTROL, 0, value)
    problem = scene.plan(Tool.KAFKA_CONNECT).problem
    assert problem is not None
    assert problem.where == f"topic {CONTROL}, partition 0, offset 0"
    assert problem.remedy == "name another tool with --from, such as group with the sink's --group"
    assert scene.plan(Tool.GROUP, group=SINK).action == "adopt"


def test_a_tool_that_has_read_other_topics_is_refused_until_the_topic_is_corrected(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.make_table(**_QUERY, **{"spark.sql.streaming.epochId": "0"})
    folder = checkpoint(tmp_path / "c", 0, {0: 5})
    offsets = folder / "offsets" / "0"
    right = offsets.read_text()
    offsets.write_text(right.replace(f'"{TOPIC}"', '"other"'))
    refused = scene.adopt(Tool.SPARK, checkpoint=folder)
    assert refused.problem is not None
    assert "no offset of a topic that the table reads" in refused.problem.message
    assert "correct the table's topic" in refused.problem.remedy
    offsets.write_text(right)
    assert scene.adopt(Tool.SPARK, checkpoint=folder).action == "adopt"


def test_a_control_topic_without_a_leader_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    scene.make_table(**{POSITION: '{"0":1}'})
    scene.has_read(SINK, 4)
    with monkeypatch.context() as patched:
        patched.setattr(scene.source, "ends", lambda _: {})
        with pytest.raises(UnavailableError) as missing:
            scene.plan(Tool.KAFKA_CONNECT)
    assert "wait until its broker is back" in missing.value.remedy
    assert scene.plan(Tool.KAFKA_CONNECT).action == "adopt"


def test_a_tool_that_still_runs_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.make_table(**{POSITION: "{}"})
    scene.has_read(SINK, 4)
    scene.group(SINK).has_members = True
    for tool, group in ((Tool.KAFKA_CONNECT, None), (Tool.GROUP, SINK)):
        problem = scene.adopt(tool, group=group).problem
        assert problem is not None
        assert "stop it" in problem.remedy
    scene.group(SINK).has_members = False
    assert scene.adopt(Tool.KAFKA_CONNECT).action == "adopt"


def test_the_table_must_not_move_between_the_look_and_the_commit(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.make_table()
    scene.has_read("g", 4)
    planned = scene.plan(Tool.GROUP, group="g")
    scene.catalog.append_foreign(TABLE)
    assert planned.commit is not None
    assert commit(scene.services, planned).action == "refused"
    assert scene.adopt(Tool.GROUP, group="g").action == "adopt"


@pytest.mark.parametrize(
    ("tool", "remedy"),
    [
        (Tool.AUTOMQ, "--columns"),
        (Tool.FLINK, "savepoint"),
        (Tool.DEBEZIUM_SERVER, "Debezium on Kafka Connect"),
        (Tool.KAFKA_CONNECT, "--from"),
    ],
)
def test_a_tool_whose_offsets_cannot_be_found_needs_a_file(tmp_path: Path, tool: Tool, remedy: str) -> None:
    scene, file = Scene(tmp_path), tmp_path / "offsets.json"
    scene.make_table()
    problem = scene.plan(tool).problem
    assert problem is not None
    assert remedy in problem.remedy
    wrong = ("no json", "{}", *(f'{{"{TOPIC}": {{"0": {offset}}}}}' for offset in ("1.9", "true", "-2", "null", '"x"')))
    for text in wrong:
        file.write_text(text)
        refused = scene.plan(tool, offsets=file)
        assert refused.problem is not None
        assert "next offset of every partition" in refused.problem.remedy
    file.write_text(f'\ufeff{{"{TOPIC}": {{"0": "3"}}}}')  # As editors of Windows write it.
    assert scene.adopt(tool, offsets=file).offsets == {TOPIC: {0: 3}}


def test_what_is_not_named_is_asked_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    problem = scene.plan(Tool.GROUP).problem
    assert problem is not None
    assert "create it" in problem.remedy
    scene.make_table(**{POSITION: "{}", f"kafka.connect.offsets.{CONTROL}.other": "{}"})
    for tool, remedy in ((Tool.GROUP, "give --group"), (Tool.SPARK, "give --checkpoint")):
        with pytest.raises(SpecError) as missing:
            scene.plan(tool)
        assert remedy in missing.value.remedy
    several, unread = scene.plan(Tool.KAFKA_CONNECT).problem, scene.plan(Tool.KAFKA_CONNECT, group=SINK).problem
    assert several is not None
    assert unread is not None
    assert several.remedy == "name the group of one of them with --group"
    assert "--offsets" in unread.remedy
    scene.has_read(SINK, 2)
    assert scene.plan(Tool.KAFKA_CONNECT, group=SINK).action == "adopt"
    with pytest.raises(SpecError, match=r"no table `n\.b`") as unknown:
        scene.plan(Tool.GROUP, "n.b")
    assert unknown.value.remedy == "did you mean `n.a`?"
    assert scene.plan(Tool.KAFKA_CONNECT, None, group=SINK).action == "adopt"


def test_a_query_that_died_in_its_first_batch_is_taken_over_as_well(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.make_table(**_QUERY, **{"spark.sql.streaming.epochId": "0"})
    assert scene.adopt(Tool.SPARK, checkpoint=checkpoint(tmp_path / "c", -1, {0: 5})).offsets == {TOPIC: {0: 5}}


@pytest.mark.parametrize(("epoch", "offset"), [(1, 3), (2, 5)], ids=["batch died", "batch is in the table"])
def test_the_newest_batch_in_the_table_says_how_far_a_query_has_read(tmp_path: Path, epoch: int, offset: int) -> None:
    scene = Scene(tmp_path)
    scene.make_table(**_QUERY, **{"spark.sql.streaming.epochId": str(epoch)})
    folder = checkpoint(tmp_path / "c", 1, {0: 1, 1: 3, 2: 5})
    assert scene.adopt(Tool.SPARK, checkpoint=folder).offsets == {TOPIC: {0: offset}}


def test_a_checkpoint_of_another_query_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.make_table(**_QUERY, **{"spark.sql.streaming.epochId": "0"})
    ahead, several = checkpoint(tmp_path / "ahead", 1, {0: 1, 1: 3}), checkpoint(tmp_path / "several", 0, {0: 1})
    (several / "offsets" / "0").write_text("v1\n{}\n{}\n{}")
    listed, unset = checkpoint(tmp_path / "listed", 0, {0: 1}), checkpoint(tmp_path / "unset", 0, {0: 1})
    (listed / "metadata").write_text("[]")
    (unset / "offsets" / "0").write_text(f'v1\n{{}}\n{{"{TOPIC}": {{"0": null}}}}')
    unreadable = ((folder, "name a folder") for folder in (tmp_path / "none", several, listed, unset))
    for folder, remedy in (*unreadable, (ahead, "format(iceberg)")):
        problem = scene.plan(Tool.SPARK, checkpoint=folder).problem
        assert problem is not None
        assert remedy in problem.remedy
    assert scene.adopt(Tool.SPARK, checkpoint=checkpoint(tmp_path / "right", 0, {0: 1})).action == "adopt"


def test_a_renamed_pipeline_continues_at_the_offsets_of_the_former_name(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.catch_up()
    summary = list(scene.catalog.summaries(TABLE))[-1]
    (tmp_path / "offsets.json").write_text(summary["frazil.p.offsets"])
    renamed = MemoryCatalog(tmp_path, "renamed")
    renamed._tables = scene.catalog._tables
    scene.catalog = renamed
    scene.services = Services(renamed, scene.source, scene.source, scene.group)
    assert scene.adopt(Tool.GROUP, offsets=tmp_path / "offsets.json").action == "adopt"
    scene.feed(TOPIC, {"id": 6})
    scene.catch_up()
    assert [row["id"] for row in scene.rows(TABLE)] == [*range(7)]


def test_offsets_that_the_topic_does_not_have_are_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.make_table()
    scene.has_read("g", 7)
    assert scene.adopt(Tool.GROUP, group="g").action == "refused"
    scene.has_read("g", 2)
    scene.source.trim(TOPIC, 0, 3)
    assert scene.adopt(Tool.GROUP, group="g").action == "refused"
    scene.settings["on_data_loss"] = "skip"
    assert scene.adopt(Tool.GROUP, group="g").action == "adopt"
    scene.catch_up()
    assert [row["id"] for row in scene.rows(TABLE)] == [3, 4, 5]


def test_a_released_table_stops_until_it_is_removed_or_adopted(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.catch_up()
    scene.release(Tool.GROUP, group="g")
    (table,) = scene.start().tables
    service = scene.start()
    service.turn(until_caught_up=True)
    (table,) = service.tables
    assert table.status.run_state is RunState.STOPPED
    assert "frazil adopt" in table.status.remedy
    scene.adopt(Tool.GROUP, group="g")
    scene.feed(TOPIC, {"id": 6})
    scene.catch_up()
    assert [row["id"] for row in scene.rows(TABLE)] == list(range(7))


def test_tables_of_a_route_share_their_progress(tmp_path: Path) -> None:
    scene = Routed(tmp_path)
    scene.feed("t", {"type": "a", "n": 1})
    scene.catch_up()
    discovery = Discovery(scene.spec(), scene.source, scene.catalog)
    discovery.refresh_topics()
    services = Services(scene.catalog, scene.source, scene.source, MemoryGroup)
    noted = list[str]()
    (refused,) = plan_adoptions(discovery, services, None, Origin(Tool.GROUP, "g"), "c", note=noted.append)
    assert noted == [f"looking how far {refused.name} is"]
    assert refused.problem is not None
    assert "an entry of its own" in refused.problem.remedy


def test_a_table_whose_metadata_columns_a_run_would_refuse_is_not_adopted(tmp_path: Path) -> None:
    """Kafka Connect's sink writes Kafka's timestamp as a number, and a run would stop after the offsets have changed."""
    scene = Scene(tmp_path, metadata={"timestamp": "ts"})
    scene.catalog.create(TABLE, new_schema([("id", LongType()), ("ts", LongType())]), {}, 2)
    scene.catalog.append_foreign(TABLE, summary={POSITION: '{"0":0}'})
    scene.has_read(SINK, 4)
    refused = scene.plan(Tool.KAFKA_CONNECT)
    assert (refused.action, refused.commit) == ("refused", None)
    assert refused.problem is not None
    assert refused.problem.message == "`metadata` writes timestamp to `ts` as timestamptz, and the table has it as long"


def test_a_table_whose_query_a_run_would_refuse_is_not_adopted(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.make_table(**{POSITION: '{"0":0}'})
    scene.has_read(SINK, 4)

    def refuse(table: Table) -> None:
        raise TableStopped("the query makes ts as timestamptz", "write it otherwise", table.name)

    discovery = scene.discovery()
    origin, cluster = Origin(Tool.KAFKA_CONNECT), scene.source.cluster_id()
    (refused,) = plan_adoptions(discovery, scene.services, TABLE, origin, cluster, refuse)
    assert (refused.action, refused.commit) == ("refused", None)
    assert refused.problem is not None
    assert refused.problem.remedy == "write it otherwise"
