"""Schemas of the registry, as tasks need them: asked for by the driver alone, kept for the life of the process.

An id never changes its meaning, so it is asked for once; a subject's newest schema is asked for again every minute. What
the registry does not know, and what nothing can be read with, is kept too: it makes its records bad ones. An outage is
neither: UnavailableError, and the table waits.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable

from frazil.clock import Clock, SystemClock
from frazil.errors import UnavailableError
from frazil.ingest.decode.framed import LATEST, struct_of
from frazil.ingest.decode.keys import KEY_SCHEMA
from frazil.ingest.target import WriterSchema
from frazil.registry.port import Naming, RegisteredSchema, SchemaRegistry, UnusableSchema, subject_of
from frazil.registry.protobuf import compile_proto
from frazil.spec.models import TableSpec, ValueSpec

UNKNOWN = WriterSchema("unknown")
_OUTAGE_S = 2.0
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Schemas:
    """What one process knows of the registry; thread-safe."""

    def __init__(self, registry: SchemaRegistry, naming: Naming = "topic", clock: Clock | None = None) -> None:
        self._registry = registry
        self._clock = clock or SystemClock()
        self._outage: tuple[float, UnavailableError] | None = None
        self._naming: Naming = naming
        self._known: dict[tuple[str, str], WriterSchema] = {}
        self._lock = threading.Lock()

    def fetch(self, ids: Iterable[str], topic: str, value: ValueSpec, is_key: bool = False) -> dict[str, WriterSchema]:
        """The schemas of ids (numbers, GUIDs, or LATEST) that records of `topic` name.

        Raises UnavailableError when the registry does not answer.
        """
        return {schema_id: self._fetch(schema_id, topic, value, is_key) for schema_id in sorted(ids)}

    def fetch_for(self, spec: TableSpec, ids: Iterable[str], topic: str) -> dict[str, WriterSchema]:
        """The same for the ids that a table's records name, those of keys beginning with KEY_SCHEMA."""
        wanted = set(ids)
        of_keys = {schema_id for schema_id in wanted if schema_id.startswith(KEY_SCHEMA)}
        found = self.fetch(wanted - of_keys, topic, spec.value)
        keys = self.fetch({one.removeprefix(KEY_SCHEMA) for one in of_keys}, topic, spec.key, is_key=True)
        return found | {KEY_SCHEMA + schema_id: schema for schema_id, schema in keys.items()}

    def subject(self, topic: str, value: ValueSpec, is_key: bool = False) -> str:
        """Where the topic's schemas are; SpecError where the naming needs a record's type that is not known."""
        return value.subject or subject_of(topic, is_key, value.message or "", self._naming)

    def latest(self, topic: str, value: ValueSpec, is_key: bool = False) -> WriterSchema:
        """The newest schema of the topic's subject, at most a minute old."""
        subject = self.subject(topic, value, is_key)
        return self._usable(lambda: self._registry.latest(subject))

    def _fetch(self, schema_id: str, topic: str, value: ValueSpec, is_key: bool) -> WriterSchema:
        if schema_id == LATEST:
            return self.latest(topic, value, is_key)
        subject = value.subject or (subject_of(topic, is_key) if self._naming == "topic" else "")
        with self._lock:
            known = self._known.get((subject, schema_id))
        if known is not None:
            return known
        found = self._usable(lambda: self._ask(schema_id, subject))
        if found is not UNKNOWN:
            with self._lock:
                self._known[subject, schema_id] = found
        return found

    def _ask(self, schema_id: str, subject: str) -> RegisteredSchema | None:
        if _GUID.fullmatch(schema_id):
            return self._registry.by_guid(schema_id)
        number = int(schema_id)
        return self._registry.by_id(number, subject) if number > 0 else None

    def _usable(self, ask: Callable[[], RegisteredSchema | None]) -> WriterSchema:
        """The answer as tasks need it; what cannot be used is found out here, once, and says why."""
        try:
            answer = self._answer(ask)
            if answer is None:
                return UNKNOWN
            descriptors = compile_proto(answer.text, answer.references) if answer.kind == "protobuf" else b""
            schema = WriterSchema(answer.kind, answer.text, answer.references, descriptors)
            struct_of(schema)
        except UnusableSchema as error:
            return WriterSchema("unusable", str(error))
        return schema

    def _answer(self, ask: Callable[[], RegisteredSchema | None]) -> RegisteredSchema | None:
        """One question. After an outage the next ones are not asked for a while: each would wait as long, and hold up tables
        that need no registry.
        """
        if self._outage is not None and self._clock.monotonic_s() - self._outage[0] < _OUTAGE_S:
            raise self._outage[1]
        try:
            answer = ask()
        except UnavailableError as error:
            self._outage = (self._clock.monotonic_s(), error)
            raise
        self._outage = None
        return answer
