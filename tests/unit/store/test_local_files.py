"""Local files are written and read under the names that Java gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.store.file_io import StoreIO

NAMES = ("plain", "with spaces", "a%20b", "a#b", "a?b", "é ü 日本", "hour=10:30", "a'b\"c", "*")


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_where_its_name_is(tmp_path: Path, prefix: str, name: str) -> None:
    path, store = tmp_path / name / f"{name}.parquet", StoreIO({})
    location = f"{prefix}{path}"
    with store.new_output(location).create() as stream:
        stream.write(b"rows")
    assert path.read_bytes() == b"rows"
    with store.new_input(location).open() as stream:
        assert stream.read() == b"rows"
    assert (len(store.new_input(location)), store.new_input(location).exists()) == (4, True)
    store.delete(location)
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        store.new_input(location).open()
