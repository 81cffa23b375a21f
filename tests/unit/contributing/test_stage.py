"""docs/contributing/stage.md: a stage of a package, from the pipeline file to rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.decode.settings import Reading
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of as target_of_table
from frazil.ingest.tasks.task import read_records
from frazil.ingest.tasks.task_job import Job
from frazil.ops.plan import describe_stages
from frazil.plugins.stages import STAGES, TABLE_STAGES
from frazil.queries.program import Call, Field, Program, Project
from frazil.spec import json_schema
from frazil.spec.models import STAGE_SETTINGS
from frazil.stages.changes import DELETE, UPSERT, Changes
from frazil.stages.notes import StageNote
from frazil.stages.row_stage import RowStage
from frazil.stages.settings import StageSettings
from frazil.stages.stage import TableStage
from frazil.stages.watch import StageWatch
from frazil.write.target import ChangeReading, TableQuery, TableTarget
from tests.needs import has_package, needs
from tests.unit.contributing.conftest import Install
from tests.unit.ingest.targets import records_of, run, target_of
from tests.unit.spec.pipeline_file import HEAD, Load, Refuse, with_table

if has_package("cluster"):
    from frazil_cluster import ship

COLUMNS = {"id": "long", "note": "string"}
ROWS = ({"id": 1, "note": "all well"}, {"id": 2, "note": "a secret"}, {"id": 3}, {"id": 4, "note": "secret secret"})


def stage(action: str) -> tuple[TableStage, ...]:
    kind = STAGES.get("forbidden_words")
    settings = kind.load("settings")(column="note", words=("secret",), action=action)
    return (kind.load("stage").make("forbidden_words", settings),)


def read(target: TableTarget, *rows: dict[str, Any] | None) -> Changes:
    values = [None if row is None else json.dumps(row).encode() for row in rows]
    batch = records_of({"offset": n, "key": b'{"id": 1}', "value": value} for n, value in enumerate(values))
    return read_records(target, "t", dict(zip(batch.schema.names, batch.columns, strict=True)))


def test_a_stage_changes_values(example: Install, tmp_path: Path) -> None:
    example("stage.md")
    changes = read(target_of(tmp_path, COLUMNS, stages=stage("mask")), *ROWS)
    assert changes.columns[1].to_pylist() == ["all well", "a ***", None, "*** ***"]
    assert changes.ignored_records == {}


def test_a_stage_drops_rows_by_a_name_that_counts_them(example: Install, tmp_path: Path) -> None:
    example("stage.md")
    target = target_of(tmp_path, COLUMNS, stages=stage("drop"))
    assert read(target, *ROWS).columns[0].to_pylist() == [1, 3]
    batch = records_of({"offset": n, "value": json.dumps(row).encode()} for n, row in enumerate(ROWS))
    counts = run(Job({"t": target}), batch)["lake.t"].counts
    assert (counts.record_count, counts.written_count, counts.ignored_records) == (4, 2, {"forbidden_words": 2})


def test_a_stage_refuses_rows(example: Install, tmp_path: Path) -> None:
    example("stage.md")
    changes = read(target_of(tmp_path, COLUMNS, stages=stage("refuse")), *ROWS, {"id": "x"})
    assert changes.without_refused().columns[0].to_pylist() == [1, 3]
    assert [(one.row, one.kind, one.path, one.reason) for one in changes.decoded.mismatches[:2]] == [
        (1, "refused_by_stage", "note", "forbidden_words: the text has a forbidden word"),
        (3, "refused_by_stage", "note", "forbidden_words: the text has a forbidden word"),
    ]
    assert [one.row for one in changes.decoded.mismatches] == [1, 3, 4]


def test_a_stage_sees_what_the_query_makes(example: Install, tmp_path: Path) -> None:
    example("stage.md")
    text, number = Field("text", pa.string()), Field("id", pa.int64())
    lower = Call("Lower", (text,), pa.string(), (), "lower(text)")
    program = Program((Project((("id", number), ("note", lower))),), (number, Field("note", pa.string())))
    source = target_of(tmp_path, {"id": "long", "text": "string"})
    target = target_of(tmp_path, COLUMNS, query=TableQuery(source, program), stages=stage("mask"))
    assert read(target, {"id": 1, "text": "A SECRET"}).columns[1].to_pylist() == ["a ***"]


def test_a_stage_sees_no_delete_of_an_upsert_table(example: Install, tmp_path: Path) -> None:
    example("stage.md")
    changes = ChangeReading(Reading(), ("id",), is_key_of_record=True)
    target = target_of(tmp_path, COLUMNS, changes=changes, stages=stage("mask"))
    made = read(target, {"id": 1, "note": "secret"}, None)
    assert (made.ops.tolist(), made.columns[1].to_pylist()) == ([UPSERT, DELETE], ["***", None])
    dropping = target_of(tmp_path, COLUMNS, changes=changes, stages=stage("drop"))
    assert read(dropping, {"id": 1, "note": "secret"}, None).ops.tolist() == [DELETE]


def test_a_stage_cannot_change_a_key(example: Install, tmp_path: Path) -> None:
    example("stage.md")
    changes = ChangeReading(Reading(), ("note",))
    target = target_of(tmp_path, COLUMNS, changes=changes, stages=stage("mask"))
    with pytest.raises(
        SpecError, match="the stage `forbidden_words` returns values that are not those of the table: rows=1"
    ):
        read(target, {"id": 1, "note": "secret"})


def test_a_pipeline_file_has_the_key_of_a_stage(example: Install, load: Load, refuse: Refuse) -> None:
    written = with_table("forbidden_words: {column: note, words: [a, b], action: drop}")
    assert refuse(written).message == "unknown key `forbidden_words` in table `shop.x`"
    example("stage.md")
    table = load(written).tables[0]
    (made,) = target_of_table(Table(table)).stages
    assert isinstance(made, RowStage)
    assert made.settings_json == '{"column":"note","words":["a","b"],"action":"drop"}'
    assert "forbidden_words" in json_schema()["$defs"]["table"]["properties"]
    assert list(describe_stages(table)) == ["forbidden_words: drops 2 forbidden words in note"]
    block = "  shop.x:\n    topic: a\n    forbidden_words:\n      column: note\n      words: []\n      action: hide\n"
    error = refuse(f"{HEAD}tables:\n{block}")
    assert error.message == "`forbidden_words.action` cannot be `hide`"
    assert error.remedy == "write one of: mask, drop, refuse"
    assert error.where.endswith(":9")
    misspelt = refuse(with_table("forbiden_words: {column: note}"))
    assert misspelt.remedy == "did you mean `forbidden_words`?"
    inner = refuse(with_table("forbidden_words: {column: note, words: [], actoin: drop}"))
    assert (inner.message, inner.remedy) == ("unknown key `actoin` in `forbidden_words`", "did you mean `action`?")
    assert refuse(with_table("forbidden_words: {column: note}")).message == "`forbidden_words.words` is missing"
    assert refuse(with_table("forbidden_words: note")).message == (
        "`forbidden_words` is text where a mapping is expected"
    )
    words = refuse(with_table("forbidden_words: {column: [note], words: a}"))
    assert (words.message.partition(" (and")[0], words.remedy) == (
        "`forbidden_words.column` is a list where text is expected",
        "write text after `forbidden_words.column:`",
    )
    assert [other.message for other in words.others] == ["`forbidden_words.words` is text where a list is expected"]


@needs("cluster")
def test_packages_of_stages_are_sent_to_clusters(
    example: Install, site: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    example("stage.md")
    load(with_table("forbidden_words: {column: note, words: [a]}"))
    monkeypatch.setattr(ship, "_ROOTS", ())
    next(iter(site.rglob("RECORD"))).write_text("frazil_forbidden_words-1.0.dist-info/METADATA,,\n")
    with pytest.raises(UnavailableError, match="package=frazil-forbidden-words"):
        ship.packages_archive()


@needs("blobs", "expect", "protect")
def test_frazils_own_stages_and_those_of_packages_are_made_of_the_same_classes(example: Install) -> None:
    example("stage.md")
    kinds = {name: table.get(name) for table in (TABLE_STAGES, STAGES) for name in table.added()}
    assert sorted(kinds) == ["blobs", "expect", "forbidden_words", "protect"]
    for kind in kinds.values():
        assert issubclass(kind.load("settings"), StageSettings)
        assert issubclass(kind.load("stage"), TableStage)
        assert kind.watch is None or issubclass(kind.load("watch"), StageWatch)
        assert kind.note is None or issubclass(kind.load("note"), StageNote)
    assert {name: TABLE_STAGES.get(name).load("settings") for name in TABLE_STAGES.added()} == STAGE_SETTINGS


LATER = """
from frazil.plugins.stages import StageKind
from frazil.spec.syntax.problems import Mistake
from frazil.stages.notes import StageNote
from frazil.stages.row_stage import RowStage
from frazil.stages.settings import StageSettings
from frazil.stages.watch import StageWatch


class Settings(StageSettings):
    column: str

    @property
    def counted(self):
        return ("later",)

    def check(self, table):
        if self.column in table.changes.key_columns:
            yield Mistake("later", f"`later` has the key column {self.column}", "name another column")


class Watch(StageWatch):
    pass


STAGE = StageKind(Settings, RowStage, watch=Watch)
"""


def test_a_stage_of_a_package_may_do_what_frazils_own_do(package: Install, load: Load, refuse: Refuse) -> None:
    package("later", LATER, "frazil.stages", "later = later:STAGE")
    clashing = f"{HEAD}tables:\n  shop.x: {{topic: a, mode: upsert, key_columns: [id], later: {{column: id}}}}\n"
    assert refuse(clashing).remedy == "name another column"
    table = Table(load(with_table("later: {column: note}")).tables[0])
    assert [name for stage in table.spec.stage_settings.values() for name in stage.counted] == ["later"]
    assert [type(watch).__name__ for watch in table.watches] == ["Watch"]
    assert [type(stage) for stage in target_of_table(table).stages] == [RowStage]


def test_settings_of_another_model_are_refused(package: Install, refuse: Refuse) -> None:
    code = LATER.replace("Settings(StageSettings)", "Settings(BaseModel)").replace(
        "\nfrom", "\nfrom pydantic import BaseModel\nfrom", 1
    )
    package("plain", code, "frazil.stages", "plain = plain:STAGE")
    error = refuse(with_table("plain: {column: note}"))
    assert error.message == (
        "the stage `plain` of the package plain cannot be imported: TypeError: Settings is not a subclass of StageSettings"
    )
