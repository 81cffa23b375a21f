"""What is loaded before the first batch: all that is on disk, and nothing that takes long to compile unasked."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.ingest.decode import framed
from frazil.ingest.decode.avro import columns as avro_columns
from frazil.ingest.decode.avro.json_scan import write_values
from frazil.ingest.decode.memory import is_on_disk
from frazil.ingest.decode.protobuf import scalars
from frazil.ingest.decode.protobuf.json_scan import write_messages


@pytest.mark.parametrize(("compiles_all", "is_there"), [(False, False), (False, True), (True, False)])
def test_what_writes_json_is_loaded_when_it_is_on_disk_or_asked_for(
    compiles_all: bool, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []

    def noting(function: Any) -> Any:
        def write(*arguments: Any) -> Any:
            loaded.append(function.__name__)
            return function(*arguments)

        return write

    monkeypatch.setattr(framed, "is_on_disk", lambda _: is_there)
    monkeypatch.setattr(avro_columns, "write_values", noting(write_values))
    monkeypatch.setattr(scalars, "write_messages", noting(write_messages))
    framed.warm_up(compiles_all)
    assert loaded == (["write_values", "write_messages"] if compiles_all or is_there else [])


def test_a_compiled_function_is_on_disk() -> None:
    framed.warm_up(compiles_all=True)
    assert is_on_disk(write_values)
    assert is_on_disk(write_messages)
