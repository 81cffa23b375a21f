"""What writes JSON is loaded before the first batch if it is on disk, and is not compiled unasked."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.raw_memory import is_on_disk
from frazil.rows import writer_schemas
from frazil_protobuf import json_structs
from frazil_protobuf.json_structs import write_structs
from packages.protobuf.tests.unit.protobuf_schemas import read, reader_of


@pytest.mark.parametrize(("compiles_all", "is_there"), [(False, False), (False, True), (True, False)])
def test_what_writes_json_is_loaded_when_it_is_on_disk_or_asked_for(
    compiles_all: bool, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []

    def noting(*arguments: Any) -> int:
        loaded.append("write_structs")
        return int(write_structs(*arguments))

    monkeypatch.setattr(json_structs, "is_on_disk", lambda _: is_there)
    monkeypatch.setattr(json_structs, "write_structs", noting)
    writer_schemas.warm_up(compiles_all)
    assert loaded == (["write_structs"] if compiles_all or is_there else [])


def test_a_compiled_function_is_on_disk() -> None:
    writer_schemas.warm_up(compiles_all=True)
    assert is_on_disk(write_structs)


def test_what_writes_json_is_compiled_for_the_arrays_that_it_gets() -> None:
    json_structs.warm_up(compiles_all=True)
    schema = 'syntax = "proto3"; import "google/protobuf/struct.proto"; message M { google.protobuf.Struct s = 1; }'
    assert read(reader_of(schema, "M"), [b"\n\0"]).arrays[0].to_pylist() == ["{}"]
    assert len(write_structs.signatures) == 1
