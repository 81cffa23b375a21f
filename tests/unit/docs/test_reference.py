"""What a user can meet is written down: commands, settings, errors, summary keys, log events, failpoints, variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pytest

from docs import outputs
from docs.generate import REFERENCE, is_written, stale_pages
from docs.meanings import ENVIRONMENT, FAILPOINTS, LOG_EVENTS, REPLAY_KEYS, SUMMARY_KEYS
from docs.scan import environment_variables, failpoints, log_events
from docs.texts import LIKE, SECTIONS
from frazil import errors
from frazil.catalog import progress
from frazil.catalog.progress import to_summary
from frazil.cli.commands import every_command
from frazil.dead_letters.record import DEAD_LETTER_TYPES, HELD_AT
from frazil.error_classes import ErrorClass
from frazil.ingest.loop.leadership import Alone
from frazil.ingest.tables.table import Table
from frazil.kafka.port import ReadRecord
from frazil.ledger import Ledger
from frazil.maintenance.health import TableHealth
from frazil.maintenance.plan import Action, Plan
from frazil.maintenance.run import Outcome
from frazil.ops.check import Finding
from frazil.ops.lineage import TableLineage
from frazil.ops.maintenance import TableRound, document_of_rounds
from frazil.ops.pipeline_status import (
    MaintenanceReport,
    PipelineReport,
    Process,
    TableStatus,
    VerificationReport,
    as_document,
    ended_document,
    status_of,
)
from frazil.ops.plan import PlannedTable
from frazil.ops.publishing import FailedAudit, PublishReport
from frazil.ops.reports import to_json
from frazil.spec import TableSpec, json_schema
from frazil.types import (
    Balance,
    CommittedBatch,
    DerivedTable,
    LastDelete,
    OrderProgress,
    PendingDeadLetters,
    Progress,
    Resolved,
    RestProgress,
    Totals,
    Watermark,
)
from frazil_deadletters.documents import DeadLetterClass, class_document, dead_letter_document
from frazil_migrate.adopt.adopt import Handover
from frazil_migrate.import_commands import import_document
from frazil_migrate.imports.draft import Imported
from frazil_publish.commands import watermark_document
from frazil_replay.command import replay_document
from frazil_replay.replay import ReplayProgress, Request
from frazil_start.init_command import init_document
from frazil_start.size_command import size_document
from frazil_start.sizing import Load, Prices
from frazil_testing.compare import Verdict
from frazil_testing.trial import TriedTable
from frazil_testing.tried_record import TriedRecord
from frazil_testing.try_command import tried_document, try_document


def test_the_generated_pages_are_fresh() -> None:
    assert list(stale_pages()) == [], "run make docs"


def test_every_summary_key_has_a_meaning() -> None:
    full = Progress(
        watermark=Watermark({"a": {0: 1}}, 1),
        batch=CommittedBatch(
            {"a": {0: (1, 2)}}, lookups={"a": {"table": "b.c", "snapshot-id": 1}}, balance=Balance(1, 1)
        ),
        dead_letters=PendingDeadLetters("a.b", ()),
        totals=Totals(1, {"delete": 1}, {"positive": 1}),
        order=OrderProgress(
            {"a": {0: "b"}}, "b", (LastDelete("a", 0, 1, "k"),), Watermark({"a": {0: 1}}, 1), windows_complete_to_us=1
        ),
        rest=RestProgress((DerivedTable("shop.order", ("order",), {"t": {0: 0}}),), {"limit": 1}),
        released_to="spark",
        ledger=Ledger(),
    )
    assert sorted(key.removeprefix("frazil.p.") for key in to_summary("p", full)) == sorted(SUMMARY_KEYS)


def test_every_summary_key_of_a_replay_has_a_meaning() -> None:
    assert sorted(REPLAY_KEYS) == sorted([progress.REPLAY, progress.REPLAY_ID, progress.REMOVED, progress.REWRITE_ID])


def test_every_column_and_class_of_dead_letters_has_a_meaning() -> None:
    columns, classes = (REFERENCE / "dead-letters.md").read_text().split("## Classes of error")
    assert re.findall(r"^\| `(\w+)` \|", columns, re.MULTILINE) == [*DEAD_LETTER_TYPES, HELD_AT]
    assert re.findall(r"^\| `(\w+)` \|", classes, re.MULTILINE) == list(ErrorClass)


@pytest.mark.parametrize(
    ("found", "described"),
    [(log_events, LOG_EVENTS), (failpoints, FAILPOINTS), (environment_variables, ENVIRONMENT)],
    ids=["log events", "failpoints", "environment variables"],
)
def test_every_name_has_a_meaning_and_every_meaning_a_name(
    found: Callable[[], Iterable[str]], described: dict[str, str]
) -> None:
    assert sorted(found()) == sorted(described)


def test_every_key_of_json_output_has_a_meaning() -> None:
    status = as_document(PipelineReport("p", Process(), (), (TableStatus("a.b"),), 0))
    action = Action("compact", "a.b", "c", "d")
    rounds = TableRound("a.b", Plan("a.b", TableHealth(), (action,)), (Outcome(action, 1.0),))
    rounds = document_of_rounds([rounds], dry_run=False)["tables"]["a.b"]
    found = {
        outputs.STATUS: status,
        outputs.PROCESS: status["process"],
        outputs.LEADERSHIP: to_json(Alone("one", "1", 0).state),
        outputs.TABLE: status["tables"]["a.b"],
        outputs.LAST_UPSERT: to_json(Resolved()),
        outputs.MAINTENANCE: to_json(MaintenanceReport()),
        outputs.VERIFICATION: to_json(VerificationReport()),
        outputs.PUBLISHING: to_json(PublishReport()),
        outputs.FAILED_AUDIT: to_json(FailedAudit("a", "b")),
        outputs.WATERMARK: watermark_document(PublishReport()),
        outputs.RUN: ended_document(status_of(Table(TableSpec(name="a.b", topics=())))),
        outputs.PLAN: PlannedTable("a.b", "none").document(),
        outputs.CHECK: to_json(Finding("a", True, "b", "c")),
        outputs.SIZE: size_document(Load(1), Prices()),
        outputs.ADOPT: Handover("a.b").document(),
        outputs.LINEAGE: TableLineage("a.b", ()).document(),
        outputs.INIT: init_document(None, "", (), ()),
        outputs.REPLAY: replay_document(
            Request("", "", "", None, None, "", "", (), ()), "", ReplayProgress(1), ReplayProgress(1)
        ),
        outputs.IMPORT: import_document(Imported("", (), (), {}, ())),
        outputs.TRY: try_document("p", TriedTable("a.b")),
        outputs.TEST: to_json(Verdict("a", "b", 1, 0.0)) | {"ok": True},
        outputs.TRIED_RECORD: tried_document(TriedRecord(ReadRecord("a", 0, 0, None), "a.b")),
        outputs.MAINTAIN: rounds,
        outputs.ACTION: rounds["actions"][0],
        outputs.HEALTH: rounds["health"],
        outputs.DEAD_LETTER_CLASS: class_document(DeadLetterClass("a")),
    }
    assert [document.title for document, keys in found.items() if sorted(document.keys) != sorted(keys)] == []
    assert list(found) == [document for document in outputs.DOCUMENTS if document is not outputs.DEAD_LETTER]
    assert list(dead_letter_document(dict.fromkeys(DEAD_LETTER_TYPES))) == list(DEAD_LETTER_TYPES)


def test_every_setting_is_described() -> None:
    schema = json_schema()
    sections = {"": schema, **schema["$defs"]}
    settings = {
        (name, key): setting for name, found in sections.items() for key, setting in found["properties"].items()
    }
    assert [place for place, setting in settings.items() if not setting.get("description")] == []


def test_keys_that_the_page_has_once_mean_the_same_in_both_sections() -> None:
    found = {name: section["properties"] for name, section in json_schema()["$defs"].items()}
    assert [
        (section, key)
        for section, like in LIKE.items()
        for key in found[section].keys() & found[like].keys()
        if found[section][key] != found[like][key]
    ] == []
    without = {section: found[like].keys() - found[section].keys() for section, like in LIKE.items()}
    named = {section: set(re.findall(r"`(\w+)`", SECTIONS[section][1].partition("except")[2])) for section in LIKE}
    assert [section for section in LIKE if not without[section] <= named[section]] == []


def test_every_command_and_error_has_its_place() -> None:
    cli, kinds = (REFERENCE / "cli.md").read_text(), (REFERENCE / "errors.md").read_text()
    assert [command.name for command in every_command() if f"## frazil {command.name}\n" not in cli] == []
    assert [command.name for command in every_command() if is_written(command) and not command.load().__doc__] == []
    names = [kind.__name__ for kind in errors.FrazilError.__subclasses__() if kind.__module__ == errors.__name__]
    assert [name for name in names if f"`{name}`" not in kinds] == []
