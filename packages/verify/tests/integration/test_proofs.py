"""The levels of `frazil verify` on real parts: whole tables differ in nothing, and faults in their files are found."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from packages.verify.tests.integration.files import replace_rows
from tests.acceptance.topics import Topics
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger, Pipeline, ended

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]
EVENTS, PEOPLE = "l.events", "l.people"


class Scene:
    """An append table and an upsert table of two runs, each over two partitions."""

    def __init__(self, broker: EmbeddedBroker, jvm: Jvm, folder: Path) -> None:
        servers = broker.bootstrap_servers
        self.events, self.people = (Ledger(servers, new_id(), 2).topic for _ in range(2))
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        metadata = ["partition", "offset"]
        tables: dict[str, Any] = {
            EVENTS: {"topic": self.events, "metadata": metadata},
            PEOPLE: {"topic": self.people, "key": {"format": "json"}, "mode": "upsert", "metadata": metadata},
        }
        document = {"pipeline": "l", "kafka": {"bootstrap.servers": servers}, "tables": tables}
        self.pipeline = Pipeline(folder, document, jvm=jvm)
        for first in (0, 60):
            self.send(first, 60)
            self.pipeline.run()

    def send(self, first: int, count: int) -> None:
        """Sends events, two of them damaged, and changes of twenty people, who are sometimes deleted."""
        for number in range(first, first + count):
            event = {"id": number, "amount": number + 0.25, "name": f"n{number}", "at": {"day": number % 7}}
            text = b"{" if number % 40 == 7 else json.dumps(event).encode()
            self._producer.produce(self.events, text, partition=number % 2)
            key = number * 7 % 20
            person = None if number % 19 == 0 else json.dumps({"id": key, "name": f"n{number}"}).encode()
            self._producer.produce(self.people, person, json.dumps({"id": key}).encode(), partition=key % 2)
        assert self._producer.flush(30) == 0

    def verify(self, *words: str) -> tuple[int, dict[str, Any]]:
        """The exit code, and what was found of each table."""
        done, printed = self.pipeline.command("verify", *words)
        assert "tables" in printed, done.stderr
        return done.returncode, printed["tables"]

    def file_of(self, table: str) -> Path:
        """The largest data file of a table."""
        folder = self.pipeline.file.parent / "frazil-data" / "warehouse"
        files = folder.glob(f"**/{table.partition('.')[2]}/data/**/*.parquet")
        return max(files, key=lambda path: path.stat().st_size)


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The tables, which tests leave as they are."""
    return Scene(broker, jvm, tmp_path_factory.mktemp("levels"))


def test_nothing_differs_in_whole_tables_at_any_level(scene: Scene) -> None:
    for level in ("--ledger", "--rows", "--independent"):
        code, tables = scene.verify(level)
        assert (code, {name: table["counts"] for name, table in tables.items()}) == (0, {EVENTS: {}, PEOPLE: {}}), (
            tables
        )
        assert tables[EVENTS]["seen"].get("records", 120) == 120
    assert tables[EVENTS]["notes"] == []
    assert tables[EVENTS]["seen"] == {"records": 120, "rows": 117, "dead_letters": 3}


def test_a_part_of_a_table_is_verified_by_offsets(scene: Scene) -> None:
    code, tables = scene.verify(EVENTS, "--independent", "--from", "0:50")
    assert (code, tables[EVENTS]["counts"], tables[EVENTS]["seen"]["records"]) == (0, {}, 70)
    code, tables = scene.verify(EVENTS, "--rows", "--from", "10", "--to", "20")
    assert (code, tables[EVENTS]["seen"]["offsets"]) == (0, 20)


@pytest.fixture
def damaged(scene: Scene) -> Iterator[dict[tuple[int, int], str]]:
    """The faults that are planted in a file, by partition and offset."""
    path = scene.file_of(EVENTS)
    whole = path.read_bytes()
    rows = pq.ParquetFile(path).read()
    lost, changed, doubled = (rows.slice(place, 1) for place in (0, 1, 2))
    place = rows.schema.get_field_index("amount")
    other = changed.set_column(place, rows.schema.field(place), pa.array([0.5]))
    replace_rows(path, pa.concat_tables([other, doubled, rows.slice(2)]))
    kinds = ((lost, "missing"), (changed, "changed"), (doubled, "doubled"))
    yield {(row["_kafka_partition"][0].as_py(), row["_offset"][0].as_py()): kind for row, kind in kinds}
    path.write_bytes(whole)


def found(table: dict[str, Any]) -> dict[tuple[int, int], str]:
    """The kinds of differences by partition and offset."""
    return {(finding["partition"], finding["offset"]): finding["kind"] for finding in table["findings"]}


def test_faults_in_files_are_found_with_their_offsets(scene: Scene, damaged: dict[tuple[int, int], str]) -> None:
    code, tables = scene.verify(EVENTS, "--independent")
    assert (code, found(tables[EVENTS])) == (4, damaged)
    (finding,) = (finding for finding in tables[EVENTS]["findings"] if finding["kind"] == "changed")
    assert (finding["columns"], finding["actual"]["amount"], finding["topic"]) == (["amount"], 0.5, scene.events)
    _, tables = scene.verify(EVENTS, "--rows")
    assert found(tables[EVENTS]) == {place: kind for place, kind in damaged.items() if kind != "changed"}


def test_rows_are_compared_with_the_ledger_without_the_topic(scene: Scene, damaged: dict[tuple[int, int], str]) -> None:
    _, tables = scene.verify(EVENTS, "--rows", "--digests")
    places = {(of["kind"], of.get("partition"), of.get("offset")) for of in tables[EVENTS]["findings"]}
    assert places >= {(kind, *place) for place, kind in damaged.items() if kind != "changed"}
    texts = [of["text"] for of in tables[EVENTS]["findings"] if of["kind"] == "changed"]
    assert len(texts) == 1
    assert "are others than it wrote" in texts[0]


def test_whole_rows_are_those_of_the_ledger(scene: Scene) -> None:
    code, tables = scene.verify("--rows", "--digests")
    assert (code, tables[EVENTS]["counts"], tables[EVENTS]["notes"]) == (0, {}, [])
    assert any("no digest of its rows" in note for note in tables[PEOPLE]["notes"])


def test_a_copy_has_the_rows_of_whole_tables_and_not_those_of_a_damaged_file(scene: Scene) -> None:
    path = scene.file_of(EVENTS)
    whole = path.read_bytes()
    rows = pq.ParquetFile(path).read()
    code, tables = scene.verify()
    assert (code, [table["equal"] for table in tables.values()], tables[EVENTS]["rows"]) == (0, [True, True], 117)
    place = rows.schema.get_field_index("amount")
    others = pa.concat_tables(
        [rows.slice(0, 1).set_column(place, rows.schema.field(place), pa.array([0.5])), rows.slice(1)]
    )
    replace_rows(path, others)
    code, tables = scene.verify(EVENTS)
    path.write_bytes(whole)
    assert (code, tables[EVENTS]["rows"], tables[EVENTS]["missing"], tables[EVENTS]["surplus"]) == (4, 117, 1, 1), (
        tables
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "point"),
    [(("--independent",), "verify.kept"), ((), "commit.landed")],
    ids=["judge", "copy"],
)
@pytest.mark.usefixtures("damaged")
def test_a_comparison_that_is_killed_again_and_again_goes_on_and_finds_the_same(
    scene: Scene, tmp_path: Path, words: tuple[str, ...], point: str
) -> None:
    code, expected = scene.verify(*words)
    assert (code, expected[EVENTS]["equal"]) == (4, False), expected
    pipeline, kills = scene.pipeline, 0
    environment = {"FRAZIL_FAILPOINTS": f"{point}=kill", "TMPDIR": str(tmp_path)}
    while True:
        command = ("verify", *words, "--output", "json")
        done = ended(pipeline.directory, pipeline.file, *command, environment=environment)
        if done.returncode != -signal.SIGKILL:
            break
        kills += 1
        assert kills < 20, "it begins again each time"
    assert kills >= 2
    assert json.loads(done.stdout)["tables"] == expected
    assert not list(tmp_path.glob("frazil-kept-*"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_was_read_of_a_topic_does_not_stand_for_its_successor(broker: EmbeddedBroker, tmp_path: Path) -> None:
    ledger = Ledger(broker.bootstrap_servers, new_id(), 1)
    ledger.produce(20)
    tables = {EVENTS: {"topic": ledger.topic, "metadata": ["offset"]}}
    document = {"pipeline": "l", "kafka": {"bootstrap.servers": broker.bootstrap_servers}, "tables": tables}
    pipeline = Pipeline(tmp_path, {**document, "http": False}, {"TMPDIR": str(tmp_path)})
    pipeline.run()
    words = ("verify", "--foreign", str(pipeline.file))
    environment = {"FRAZIL_FAILPOINTS": "verify.kept=kill", "TMPDIR": str(tmp_path)}
    killed = ended(tmp_path, pipeline.file, *words, environment=environment)
    assert killed.returncode == -signal.SIGKILL
    assert list(tmp_path.glob("frazil-kept-*/*.arrow"))
    Topics(broker.bootstrap_servers).delete(ledger.topic)
    successor = Ledger(broker.bootstrap_servers, ledger.topic, 1)
    successor.count = 20  # Other numbers at the same offsets.
    successor.produce(20)
    done, printed = pipeline.command(*words)
    assert (done.returncode, printed["tables"][EVENTS]["counts"]) == (4, {"changed": 20}), printed
    done, printed = pipeline.command("verify", "--independent")
    assert (done.returncode, printed["tables"][EVENTS]["equal"]) == (1, None), printed
    assert "was deleted and created again" in printed["tables"][EVENTS]["reason"]


@pytest.mark.slow
def test_a_file_that_spark_cannot_read_is_named(scene: Scene) -> None:
    path = scene.file_of(EVENTS)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    code, tables = scene.verify(EVENTS)
    path.write_bytes(whole)
    assert (code, tables[EVENTS]["equal"]) == (1, None), tables
    assert "is not a Parquet file" in tables[EVENTS]["reason"]


def test_a_report_has_every_difference_so_that_a_repair_mends_them_all(scene: Scene, tmp_path: Path) -> None:
    folder, report = scene.file_of(EVENTS).parent, tmp_path / "report.json"
    whole = {path: path.read_bytes() for path in folder.rglob("*.parquet")}
    for path in whole:
        pq.write_table(pq.ParquetFile(path).read().slice(0, 1), path)
    code, tables = scene.verify(EVENTS, "--independent", "--report", str(report))
    for path, content in whole.items():
        path.write_bytes(content)
    count = 117 - len(whole)
    assert (code, tables[EVENTS]["counts"]) == (4, {"missing": count})
    assert len(json.loads(report.read_text())["tables"][EVENTS]["findings"]) == count > 100


@pytest.mark.last
@pytest.mark.usefixtures("damaged")
def test_a_repair_beside_a_batch_that_is_killed_and_repeated_mends_the_table_once(scene: Scene, tmp_path: Path) -> None:
    report, held = tmp_path / "report.json", tmp_path / "held"
    assert scene.verify(EVENTS, "--independent", "--report", str(report))[0] == 4
    words = ("repair", EVENTS, "--from", str(report))
    done, plan = scene.pipeline.command(*words)
    assert (done.returncode, plan["add"], plan["remove"], plan["applied"]) == (4, 2, 2, False), done.stderr

    def killed(points: str) -> bool:
        environment, pipeline = {"FRAZIL_FAILPOINTS": points}, scene.pipeline
        return (
            ended(pipeline.directory, pipeline.file, *words, "--apply", environment=environment).returncode
            == -signal.SIGKILL
        )

    assert killed("repair.written=kill")
    held.touch()
    with ThreadPoolExecutor(1) as beside:
        repairing = beside.submit(killed, f"repair.written=hold@{held};repair.landed=kill")
        wait_until(Path(f"{held}.reached").exists, "the repair is about to be committed")
        scene.send(120, 20)
        scene.pipeline.run()
        held.unlink()
        assert repairing.result()
    done, again = scene.pipeline.command(*words, "--apply")
    assert (done.returncode, again["applied"], again["add"]) == (0, True, 0), done.stderr
    audit = (scene.pipeline.directory / "frazil-data/state/l.audit.jsonl").read_text().splitlines()
    changes = [(line["operation"], line["arguments"]) for line in map(json.loads, audit)]
    assert changes == [("repair", {"table": EVENTS, "report": str(report)})] * 2
    for level in ("--independent", "--rows", "--ledger"):
        code, tables = scene.verify(EVENTS, level)
        assert (code, tables[EVENTS]["counts"]) == (0, {}), tables
    assert any("the repair in snapshot" in note for note in tables[EVENTS]["notes"])
    scene.send(140, 20)
    scene.pipeline.run()
    code, tables = scene.verify(EVENTS, "--independent")
    assert (code, tables[EVENTS]["seen"]["records"]) == (0, 160), tables
