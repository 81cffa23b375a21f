"""docs/contributing/format.md: a format of a package, from the pipeline file to columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.types import NestedField, StringType

from frazil.decode.settings import Reading
from frazil.errors import UnavailableError
from frazil.plugins.formats import FORMATS
from frazil.rows.decoder import decode_values
from frazil.runtime.setup import closure
from frazil.spec import json_schema
from tests.needs import has_package, needs
from tests.unit.contributing.conftest import Install
from tests.unit.spec.pipeline_file import Load, Refuse, with_table

if has_package("cluster"):
    from frazil_cluster import ship

VALUES = pa.array([b"level=info user=7", None, b'level=warn msg="all well"', b"no pairs", b"\xff=1"], pa.binary())


def test_a_format_of_a_package_makes_columns(example: Install) -> None:
    example("format.md")
    found = decode_values(Reading(format="logfmt"), (), {"value": VALUES})
    assert found.requested_fields == {(): {"level": StringType(), "msg": StringType(), "user": StringType()}}
    fields = tuple(NestedField(n, name, StringType(), required=False) for n, name in enumerate(("level", "user"), 1))
    found = decode_values(Reading(format="logfmt"), fields, {"value": VALUES})
    assert [column.to_pylist() for column in found.columns] == [
        ["info", None, "warn", None, None],
        ["7", None, None, None, None],
    ]
    assert [(one.row, one.kind, one.reason) for one in found.mismatches] == [
        (3, "malformed", "the value is not logfmt"),
        (4, "malformed", "the value is not logfmt"),
    ]


def test_records_that_are_all_bad_have_no_columns(example: Install) -> None:
    example("format.md")
    found = decode_values(Reading(format="logfmt"), (), {"value": VALUES[3:]})
    assert (found.requested_fields, found.refused.tolist()) == ({}, [True, True])


def test_a_pipeline_file_takes_the_format_of_a_package(example: Install, load: Load, refuse: Refuse) -> None:
    example("format.md")
    assert load(with_table("value: {format: logfmt}")).tables[0].source.value.format == "logfmt"
    assert "logfmt" in json_schema()["$defs"]["value"]["properties"]["format"]["enum"]
    error = refuse(with_table("value: {format: logfm}"))
    assert (error.message, error.remedy) == ("`value.format` cannot be `logfm`", "did you mean `logfmt`?")
    error = refuse(with_table("value: {format: logfmt, subject: x}"))
    assert error.message == "`value.subject` has no effect with the format logfmt"
    error = refuse(with_table("value: {format: logfmt}, envelope: debezium"))
    assert error.message == "`envelope`: debezium is not read from the format logfmt"
    error = refuse(with_table("value: {format: json}, key: {format: logfmt}"))
    assert error.message == "`key.format` cannot be `logfmt`"


def test_a_header_is_read_in_formats_of_frazil_alone(example: Install, refuse: Refuse, load: Load) -> None:
    example("format.md")
    file = with_table("columns: {trace: {type: string, header: t, value: {format: logfmt}}}")
    error = refuse(file)
    assert error.message == ("`columns.trace`: the format logfmt is read from records' values alone, not from headers")
    assert error.remedy == "write one of: avro, protobuf, json_schema, json, text, raw"
    assert load(file.replace("logfmt", "json"))


def test_without_the_package_its_format_is_unknown(refuse: Refuse) -> None:
    error = refuse(with_table("value: {format: logfmt}"))
    assert error.message == "`value.format` cannot be `logfmt`"
    assert error.remedy == "write one of: avro, protobuf, json_schema, json, text, raw"


@needs("cluster")
def test_a_cluster_gets_the_packages_whose_formats_are_used(example: Install) -> None:
    example("format.md")
    assert FORMATS.packages == set()
    FORMATS.get("logfmt")
    assert FORMATS.packages == {"frazil-logfmt"}
    found = closure((*ship._ROOTS, "frazil-logfmt"), ship._NOT_SHIPPED)
    assert {name for name, _ in ship._files_of(found) if "logfmt" in name} == {
        "frazil_logfmt.py",
        "frazil_logfmt-1.0.dist-info/METADATA",
        "frazil_logfmt-1.0.dist-info/RECORD",
        "frazil_logfmt-1.0.dist-info/entry_points.txt",
    }


@needs("cluster")
def test_a_package_without_recorded_files_is_not_sent(
    example: Install, site: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    example("format.md")
    FORMATS.get("logfmt")
    monkeypatch.setattr(ship, "_ROOTS", ())
    record = next(iter(site.rglob("RECORD")))  # type: ignore[attr-defined]
    complete = record.read_text()
    record.write_text("frazil_logfmt-1.0.dist-info/METADATA,,\n")
    with pytest.raises(UnavailableError) as caught:
        ship.packages_archive()
    assert caught.value.message == (
        "the files of a package are not recorded, so it cannot be packed: package=frazil-logfmt"
    )
    assert caught.value.remedy == "install it from its wheel, and not as an editable package"
    record.write_text(complete)
    assert ship.packages_archive().exists()
