"""docs/contributing/envelope.md: an envelope of a package, from the pipeline file to changes."""

from __future__ import annotations

import json
from typing import Any

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import Envelope
from frazil.spec import json_schema
from frazil.stages.changes import DELETE, TRUNCATE, UPSERT, Changes
from tests.unit.cdc.envelope_reference import records_of, target_for
from tests.unit.contributing.conftest import Install
from tests.unit.spec.pipeline_file import Load, Refuse, with_table

ROW = {"id": 7, "name": "bolt"}


def message(operation: str, before: Any = None, after: Any = None) -> bytes:
    images = {name: image for name, image in (("before", before), ("after", after)) if image is not None}
    return json.dumps({"table": "SHOP.ITEMS", "op_type": operation, "pos": "0000012", **images}).encode()


def read(*messages: bytes, **settings: Any) -> Changes:
    envelope = Envelope("goldengate", keys=(("id",),), **settings)
    return read_envelope(target_for(envelope, {"id": "long", "name": "string"}), records_of(list(messages)))


def test_changes_in_an_envelope_of_a_package_are_read(example: Install) -> None:
    example("envelope.md")
    changes = read(
        message("I", after=ROW), message("U", ROW, {"id": 7, "name": "nut"}), message("D", before=ROW), is_upsert=True
    )
    rows = zip(changes.ops.tolist(), *(column.to_pylist() for column in changes.columns), strict=True)
    assert [(op, number) for op, number, _ in rows] == [(UPSERT, 7), (UPSERT, 7), (DELETE, 7)]
    assert changes.columns[1].to_pylist()[:2] == ["bolt", "nut"]
    assert read(message("T", before={}), is_upsert=True).ops.tolist() == [TRUNCATE]


def test_bad_messages_have_the_reasons_of_every_envelope(example: Install) -> None:
    example("envelope.md")
    found = read(message("X", after=ROW), message("U"), b"{}", message("D", after=ROW), is_upsert=True).decoded
    assert [(one.row, one.kind) for one in found.mismatches] == [
        (0, "unknown_operation"),
        (1, "not_an_envelope"),
        (2, "not_an_envelope"),
        (3, "missing_image"),
    ]


def test_a_pipeline_file_takes_the_envelope_of_a_package(example: Install, load: Load, refuse: Refuse) -> None:
    example("envelope.md")
    [table] = load(with_table("envelope: goldengate, mode: upsert, metadata: [position, source_table]")).tables
    assert table.changes.envelope is not None
    assert (table.changes.envelope.kind, table.metadata["position"]) == ("goldengate", "_position")
    choices = json_schema()["$defs"]["table"]["properties"]["envelope"]["anyOf"]
    assert choices[0]["enum"] == ["none", "debezium", "maxwell", "canal", "dms", "cloudevents", "outbox", "goldengate"]
    error = refuse(with_table("envelope: goldengat"))
    assert (error.message, error.remedy) == ("`envelope` cannot be `goldengat`", "did you mean `goldengate`?")
    error = refuse(with_table("envelope: goldengate, value: {format: text}"))
    assert error.message == "`envelope`: goldengate is not read from the format text"
    error = refuse(with_table("envelope: goldengate, metadata: [source_ts]"))
    assert error.message == "`source_ts` in `metadata` is not contained in the envelope goldengate"


def test_a_changelog_table_has_the_images_of_its_messages(example: Install) -> None:
    example("envelope.md")
    changes = read(message("U", ROW, {"id": 7, "name": "nut"}), is_log=True)
    assert changes.columns[1].to_pylist() == ["bolt", "nut"]
