"""How a replaced file is recognised."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from frazil.store.clients import Client
from frazil.store.file_io import StoreIO


def test_a_local_file_has_another_version_once_it_is_replaced(tmp_path: Path) -> None:
    file, store = tmp_path / "a.csv", StoreIO({})
    file.write_text("a")
    first = store.version_of(str(file))
    assert store.version_of(file.as_uri()) == first
    file.write_text("ab")
    assert store.version_of(str(file)) != first
    file.unlink()
    with pytest.raises(FileNotFoundError):
        store.version_of(str(file))


def test_an_object_has_another_version_once_it_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = MemoryStore()
    monkeypatch.setattr(StoreIO, "_client", lambda *_: Client(kept))
    obstore.put(kept, "a.csv", b"a")
    first = StoreIO({}).version_of("s3://b/a.csv")
    obstore.put(kept, "a.csv", b"b")
    assert StoreIO({}).version_of("s3://b/a.csv") != first
    with pytest.raises(FileNotFoundError):
        StoreIO({}).version_of("s3://b/none.csv")
