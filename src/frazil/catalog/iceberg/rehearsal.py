"""A rehearsal of commits: Java loads the classes of a commit with the first one, which takes as long as ten later ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.clock import new_id
from frazil.types import Commit, DataFile, Progress, Writer

_NAME = "rehearsal"
_TABLE = f"{_NAME}.t"
_SCHEMA = Schema(NestedField(1, "a", LongType(), required=False))
_IN_MEMORY = {"catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog"}
_FILE = (
    '{"spec-id":0,"content":"data","file-path":"rehearsal","file-format":"parquet","partition":{},'
    '"file-size-in-bytes":1,"record-count":1}'
)


def rehearse_commits(gateway: Any, count: int = 2) -> None:
    """Commits so often to a table in the memory of the JVM behind `gateway`, which nobody else sees and which is gone
    afterwards.
    """
    catalog = IcebergCatalog(gateway, _NAME, _IN_MEMORY, {})
    state = catalog.create(_TABLE, _SCHEMA, {}, 2)
    file = DataFile("rehearsal", 1, 1, _FILE)
    for number in range(count):
        progress = Progress(offsets={_NAME: {0: number}}, commit_id=new_id(), writer=Writer(1, _NAME))
        commit = Commit(_TABLE, (file,), progress, state.progress, shape=state.shape)
        state = replace(state, progress=catalog.commit(commit))
        state = catalog.load(_TABLE) or state
