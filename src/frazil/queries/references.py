"""Reference tables that lookups join: their rows at one version, and which of them this process has.

A batch names its rows by a key (`Reference.key`), which is small. The rows themselves are sent to a process once and are
kept there until it has a newer version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol
from weakref import WeakValueDictionary

import pyarrow as pa

from frazil.errors import InvariantError
from frazil.queries.kernels.keys import Ints, RowKeys
from frazil.types import as_json

_ON = "on "
"""Begins the names of key columns in the sent rows."""


class Sent(Protocol):
    """Rows on their way to tasks, such as Spark's broadcast."""

    @property
    def value(self) -> bytes:
        """What `Reference.dump` returned."""


class Reference:
    """The rows of a reference table at one version. They do not change."""

    def __init__(self, name: str, version: Mapping[str, Any], on: Sequence[pa.Array], values: pa.StructArray) -> None:
        """name: the reference table and the columns that are used. on: the key columns, in types of `comparable`. values:
        the columns to take, as structs.
        """
        self.name = name
        #: The version, as a commit names it.
        self.version = version
        self.on = tuple(on)
        self.values = values

    @property
    def key(self) -> str:
        """The name of these rows: equal where reference table, columns and version are."""
        return key_of(self.name, self.version)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The types of the key columns and of the values."""
        return (*(column.type for column in self.on), self.values.type)

    @cached_property
    def keys(self) -> RowKeys:
        """The keys of the rows."""
        return RowKeys(self.on)

    def find(self, columns: Sequence[pa.Array]) -> tuple[Ints, pa.StructArray]:
        """Returns the row of each key, -1 where there is none, and the values of these rows, null where there is none."""
        rows = self.keys.find([column.cast(of.type) for column, of in zip(columns, self.on, strict=True)])
        return rows, self.values.take(pa.array(rows, mask=rows < 0))

    def dump(self) -> bytes:
        """Returns the rows as Arrow's stream of one batch."""
        names = [f"{_ON}{n}" for n in range(len(self.on))]
        batch = pa.RecordBatch.from_arrays([*self.on, self.values], [*names, "values"])
        schema = batch.schema.with_metadata({"name": self.name, "version": as_json(dict(self.version))})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        return bytes(sink.getvalue())


def load_reference(text: bytes) -> Reference:
    """Returns the rows from the bytes of `dump`, without a copy."""
    reader = pa.ipc.open_stream(pa.py_buffer(text))
    batch, words = reader.read_next_batch(), reader.schema.metadata
    *on, values = batch.columns
    return Reference(words[b"name"].decode(), json.loads(words[b"version"]), on, values)


def key_of(name: str, version: Mapping[str, Any]) -> str:
    """Returns the key of the rows of a reference table at a version."""
    return as_json([name, dict(version)])


_by_key: WeakValueDictionary[str, Reference] = WeakValueDictionary()
_kept: dict[str, Reference] = {}


def note(reference: Reference) -> Reference:
    """Makes the rows known to this process, as long as somebody holds them; returns those that are known by this key."""
    return _by_key.setdefault(reference.key, reference)


def find_reference(key: str) -> Reference | None:
    """Returns rows that this process has; None where it lacks them."""
    return _by_key.get(key)


def receive(sent: Mapping[str, Reference | Sent]) -> None:
    """Keeps the rows of a job in this process, by what was sent of them, and drops other versions of the same reference
    tables.
    """
    for key, sent_rows in sent.items():
        kept = find_reference(key)
        _kept[key] = kept or note(sent_rows if isinstance(sent_rows, Reference) else load_reference(sent_rows.value))
    names = {_kept[key].name for key in sent}
    for key in [key for key, reference in _kept.items() if reference.name in names and key not in sent]:
        del _kept[key]


def references_of(keys: Iterable[tuple[str, str]]) -> dict[str, Reference]:
    """Returns the rows by lookup. keys: each lookup with the key of its rows.

    Raises: InvariantError where the process lacks them.
    """
    references = {}
    for lookup, key in keys:
        reference = find_reference(key)
        if reference is None:
            raise InvariantError(f"the rows of the lookup {lookup} were not sent to this process")
        references[lookup] = reference
    return references
