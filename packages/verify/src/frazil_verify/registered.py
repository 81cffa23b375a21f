"""The schemas of a registry, as the independent rules read records with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from frazil.ingest.tables.table import Table
from frazil.plugins.driver import REGISTRIES
from frazil.registry.port import RegisteredSchema, SchemaRegistry, UnusableSchema
from frazil.spec import PipelineSpec
from frazil_verify.model import avro
from frazil_verify.model.proto_files import messages_of

_MOST_KEPT = 200
"""So many ids of schemas a table's progress has: the last ones that it has met."""


class Registered(Mapping[int, Any]):
    """Schemas by id: the texts of Avro and JSON Schema, the messages of Protobuf."""

    def __init__(self, registry: SchemaRegistry, met: frozenset[int] | None) -> None:
        """met: the ids of all schemas that the table's records were decoded with; other ids were not known when they were
        read. None: each one that the registry has.
        """
        self._registry = registry
        self._met = met
        self._known: dict[int, Any] = {}

    def __getitem__(self, number: int) -> Any:
        if number not in self._known:
            is_met = self._met is None or number in self._met
            self._known[number] = self._read(number) if is_met else None
        if self._known[number] is None:
            raise KeyError(number)
        return self._known[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._met or ())

    def __len__(self) -> int:
        return len(self._met or ())

    def _read(self, number: int) -> Any:
        """Returns a schema; None where the registry has none that can be used. Raises: NotRead."""
        try:
            schema = self._registry.by_id(number)
        except UnusableSchema:
            return None
        return None if schema is None else _prepared(schema)


def _prepared(schema: RegisteredSchema) -> Any:
    if schema.kind == "protobuf":
        # Files that schemas may import besides Protobuf's own.
        place = find_spec("frazil_protobuf")
        protos = "" if place is None or place.origin is None else str(Path(place.origin).parent / "protos")
        return messages_of(schema.text, schema.references, protos)
    if schema.kind == "avro":
        text = avro.text_of(schema.text, schema.references)
        avro.parsed(text)
        return text
    return schema.text


def schemas_of(spec: PipelineSpec, table: Table, is_foreign: bool) -> tuple[Mapping[int, Any], Mapping[int, Any]]:
    """Returns the schemas of a table's values and of its keys.

    Raises: NotRead for one that the rules do not read.
    """
    source = table.spec.source
    if spec.registry is None or not (source.value.needs_registry or source.key.needs_registry):
        return {}, {}
    return schemas_in(REGISTRIES.get("confluent").opener(spec.registry), table, is_foreign)


def schemas_in(registry: SchemaRegistry, table: Table, is_foreign: bool) -> tuple[Mapping[int, Any], Mapping[int, Any]]:
    """Returns the schemas of a table's values and of its keys in a registry. Raises: NotRead."""
    met = frozenset(int(name) for name in table.progress.batch.schemas if name.isdigit())
    is_whole = not is_foreign and len(met) < _MOST_KEPT
    values = Registered(registry, met if is_whole else None)
    for number in met:
        values.get(number)
    return values, Registered(registry, None)
