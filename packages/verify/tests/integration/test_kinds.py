"""Every kind of table on real parts: it is judged, or refused with a remedy. Planted faults are found, and nothing is called
a fault after kills, compaction, new columns and roll-backs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from packages.verify.tests.integration.kinds import AT_ONCE, FAULTS, Scene
from tests.fixtures.foreign_spark import ForeignSpark
from tests.integration.pipelines import ended

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(3600)]
SEED = int(os.environ.get("FRAZIL_FIRST_SEED", "0"))
CLEAN = int(os.environ.get("FRAZIL_CLEAN_TABLES", "200"))
KILLS = (
    "job.before",
    "job.after",
    "commit.before",
    "commit.landed",
    "commit.after",
    "dead_letters.before",
    "task.write",
)


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, spark: ForeignSpark, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The tables, filled; tests leave them as they are."""
    filled = Scene(broker, spark, tmp_path_factory.mktemp("kinds"))
    filled.fill()
    return filled


def alarms(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables that differ."""
    return {name: table for name, table in tables.items() if table["equal"] is False}


@pytest.mark.soak
def test_every_kind_of_table_is_judged_or_refused_with_a_remedy(scene: Scene) -> None:
    for word, judges in (("", "is_copied"), ("--independent", "is_judged")):
        _, tables = scene.verify(*([word] if word else []))
        assert alarms(tables) == {}
        judged = {name for name, table in tables.items() if table["equal"]}
        assert judged == {name for name, kind in scene.kinds.items() if getattr(kind, judges)}, tables
        refused = [table for table in tables.values() if table["equal"] is None]
        assert all(table["reason"] and table["remedy"] for table in refused), refused
    for word in ("--rows", "--ledger"):
        _, tables = scene.verify(word)
        assert alarms(tables) == {}
        assert tables["joined"]["equal"] is True, tables["joined"]


def found(table: dict[str, Any], place: str, value: Any) -> bool:
    """Whether what was found of a table names the place of a row."""
    rows = [json.loads(row) for row in (*table.get("missing_rows", ()), *table.get("surplus_rows", ()))]
    named = {row.get(place) for row in rows}
    for finding in table.get("findings", ()):
        named |= {finding.get("offset")} if place == "_offset" else set()
        named |= {(finding.get(side) or {}).get(place) for side in ("expected", "actual")}
    return table["equal"] is False and value in named


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, len(FAULTS), AT_ONCE))
def test_faults_are_found_in_every_kind_of_table_and_name_their_records(scene: Scene, first: int) -> None:
    faults = FAULTS[first : first + AT_ONCE]
    planted = {name: kind for name, kind in scene.kinds.items() if kind.rows and (kind.is_judged or kind.is_copied)}
    heads = {name: scene.head(name) for name in planted}
    values = {
        (name, fault): scene.rows(name, kind.rows[place], kind.place)[0]
        for name, kind in planted.items()
        for place, fault in enumerate(faults)
    }
    try:
        for name in planted:
            for place, fault in enumerate(faults):
                scene.plant(name, fault, place)
        (_, copied), (_, judged) = scene.verify(), scene.verify("--independent")
    finally:
        for name, head in heads.items():
            scene.roll_back(name, head)
    unfound = [
        (name, fault, level)
        for name, kind in planted.items()
        for fault in faults
        for level, tables, judges in (("copy", copied, kind.is_copied), ("judge", judged, kind.is_judged))
        if judges and not found(tables[name], kind.place, values[name, fault])
    ]
    count = len(planted) * len(faults)
    print(f"{', '.join(faults)}: {count} faults in {len(planted)} tables, not found: {unfound}")  # noqa: T201  (what a soak shows)
    assert unfound == []


@pytest.fixture
def whole(scene: Scene) -> Iterator[Path]:
    """The folder of the tables, whose files are afterwards what they were."""
    folder = scene.pipeline.directory / "frazil-data" / "warehouse"
    contents = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    yield folder
    for path, content in contents.items():
        path.write_bytes(content)


def files(folder: Path, kind: str, has_deletes: bool = False) -> list[Path]:
    """The data files of a table, or its files of deletes, the oldest first."""
    every = sorted((folder / "k" / kind).rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    return [path for path in every if ("file_path" in pq.read_schema(path).names) == has_deletes]


@pytest.mark.slow
def test_a_lost_file_is_named_and_its_records_are_found_missing(scene: Scene, whole: Path) -> None:
    lost = files(whole, "append")[0]
    offsets = set(pq.read_table(lost, columns=["_offset"])["_offset"].to_pylist())
    lost.unlink()
    for level in ("--independent", "--rows"):
        _, tables = scene.verify("k.append", level)
        findings = tables["append"]["findings"]
        (unreadable,) = (of for of in findings if of["kind"] == "unreadable")
        assert lost.name in unreadable["text"]
        assert level == "--rows" or {of["offset"] for of in findings if of["kind"] == "missing"} == offsets


@pytest.mark.slow
def test_an_older_file_in_the_place_of_a_newer_one_is_found_with_its_offsets(scene: Scene, whole: Path) -> None:
    older, newer = files(whole, "append")[0], files(whole, "append")[-1]
    gone, doubled = (pq.read_table(path)["_offset"].to_pylist() for path in (newer, older))
    newer.write_bytes(older.read_bytes())
    _, tables = scene.verify("k.append", "--independent")
    findings = tables["append"]["findings"]  # The first hundred.
    assert tables["append"]["counts"] == {"missing": len(gone), "doubled": len(doubled)}
    assert {of["offset"] for of in findings if of["kind"] == "missing"} == set(gone)
    assert {of["offset"] for of in findings if of["kind"] == "doubled"} <= set(doubled)


@pytest.mark.soak
def test_lost_deletes_bring_back_rows_that_are_found_with_their_offsets(scene: Scene, whole: Path) -> None:
    before = {(row["kafka_partition"], row["_offset"]) for row in scene.spark.sql("select * from frazil.k.upsert")}
    for path in files(whole, "upsert", has_deletes=True):
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    _, tables = scene.verify("k.upsert", "--independent")
    findings = tables["upsert"]["findings"]
    assert findings
    assert all((of["partition"], of["offset"]) not in before for of in findings), findings


@pytest.mark.slow
@pytest.mark.usefixtures("whole")
def test_a_gap_and_a_repetition_in_the_progress_are_found_with_their_offsets(scene: Scene) -> None:
    path = scene.metadata("append")
    document = json.loads(path.read_text())
    key = "frazil.k.offsets"
    summaries = [of["summary"] for of in document["snapshots"] if key in of["summary"]]
    offsets = json.loads(summaries[-1][key])
    end = offsets[scene.events]["0"]
    for moved, kind in ((end + 5, "gap"), (1, "overlap")):
        offsets[scene.events]["0"] = moved
        summaries[-1][key] = json.dumps(offsets)
        path.write_text(json.dumps(document))
        code, tables = scene.verify("k.append", "--ledger")
        (finding,) = (of for of in tables["append"]["findings"] if of["kind"] == kind and of["partition"] == 0)
        assert (code, finding["topic"]) == (4, scene.events)
        assert finding["offset"] <= min(end, moved) <= finding["end"]


@pytest.mark.soak
@pytest.mark.last
def test_nothing_is_a_fault_after_kills_compaction_new_columns_and_roll_backs(scene: Scene) -> None:
    rng, count, number = np.random.default_rng(SEED), 0, 0
    while count < CLEAN:
        number += 1
        scene.send(20, **({f"new_{number}": number} if number % 3 == 1 else {}))
        point = str(rng.choice(KILLS))
        words = ("run", "--until-caught-up")
        environment = {VARIABLE: f"{point}=kill@{rng.integers(1, 4)}"}
        ended(scene.pipeline.directory, scene.pipeline.file, *words, environment=environment)
        heads = {name: scene.head(name) for name in ("append", "upsert", "branch", "merged", "once", "log")}
        scene.pipeline.run()
        if number % 3 == 2:
            scene.pipeline.command("maintain")
        if number % 4 == 0:
            for name, head in heads.items():
                scene.roll_back(name, head)
            scene.pipeline.run()
        for level in ((), ("--independent",), ("--ledger",)):
            _, tables = scene.verify(*level)
            assert alarms(tables) == {}, (number, point, level)
            count += sum(table["equal"] is True for table in tables.values()) if not level else 0
        print(f"round {number}, killed at {point}: {count} tables without an alarm")  # noqa: T201  (what a soak shows)
