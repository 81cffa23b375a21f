"""Registry schemas as tasks need them, requested by the driver alone and kept for the life of the process.

An id never changes its meaning and is requested once; a subject's newest schema is requested again every minute. Ids that
the registry does not have, and schemas that cannot be used, make their records bad records and are requested again too, as
a server may lag behind others. An outage raises UnavailableError, and the table waits.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from frazil.clock import Clock, SystemClock
from frazil.decode.avro.schema import Misplaced, find_misplaced, with_moved_logical_types
from frazil.decode.messages import has_message_schemas, message_schemas
from frazil.decode.settings import WriterSchema
from frazil.errors import UnavailableError
from frazil.registry.port import Naming, RegisteredSchema, SchemaRegistry, UnusableSchema, subject_of
from frazil.rows.record_keys import HEADER_SCHEMA, KEY_SCHEMA
from frazil.rows.writer_schemas import LATEST, struct_of
from frazil.spec.models import TableSpec
from frazil.spec.settings import ValueSpec

log = structlog.get_logger("frazil")
UNKNOWN = WriterSchema("unknown")
_OUTAGE_S = 2.0
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Schemas:
    """A cache of the registry's schemas for one process; thread-safe."""

    def __init__(self, registry: SchemaRegistry, naming: Naming = "topic", clock: Clock | None = None) -> None:
        self._registry = registry
        self._clock = clock or SystemClock()
        self._outages: dict[str, tuple[float, UnavailableError]] = {}
        self._naming: Naming = naming
        self._known: dict[tuple[str, str], WriterSchema] = {}
        self._logged: set[tuple[str, WriterSchema]] = set()
        self._lock = threading.Lock()

    def reach(self) -> None:
        """Checks that the registry answers.

        Raises: UnavailableError when it does not.
        """
        self._registry.reach()

    def fetch(self, ids: Iterable[str], topic: str, value: ValueSpec, is_key: bool = False) -> dict[str, WriterSchema]:
        """Returns the schemas of ids (numbers, GUIDs, or LATEST) in records of `topic`, by id.

        Raises: UnavailableError when the registry does not answer.
        """
        return {schema_id: self._fetch(schema_id, topic, value, is_key) for schema_id in sorted(ids)}

    def fetch_for(self, spec: TableSpec, ids: Iterable[str], topic: str) -> dict[str, WriterSchema]:
        """Returns the schemas of ids in a table's records, by id; ids of keys begin with KEY_SCHEMA, ids of headers
        with HEADER_SCHEMA.

        Raises: UnavailableError when the registry does not answer.
        """
        schemas = {}
        for named in sorted(ids):
            label, _, schema_id = named.rpartition(":")
            value = spec.source.key if named.startswith(KEY_SCHEMA) else spec.source.value
            if named.startswith(HEADER_SCHEMA):
                column = label.removeprefix(HEADER_SCHEMA)
                value = next(
                    (
                        candidate.value
                        for candidate in spec.shape.columns
                        if candidate.name == column and candidate.value
                    ),
                    value,
                )
            schemas[named] = self._fetch(schema_id, topic, value, is_key=named.startswith(KEY_SCHEMA))
        return schemas

    def subject(self, topic: str, value: ValueSpec, is_key: bool = False) -> str:
        """Returns the subject of the topic's schemas.

        Raises: SpecError where the naming needs a record type that is not known.
        """
        return value.subject or subject_of(topic, is_key, value.message or "", self._naming)

    def latest(self, topic: str, value: ValueSpec, is_key: bool = False) -> WriterSchema:
        """Returns the newest schema of the topic's subject, at most a minute old."""
        return self._as_read(self.newest(self.subject(topic, value, is_key)), value, topic)

    def newest(self, subject: str) -> WriterSchema:
        """Returns the newest schema of a subject, at most a minute old."""
        return self._usable(f"{subject}:{LATEST}", lambda: self._registry.latest(subject))

    def needs_types(self, value: ValueSpec) -> bool:
        """Whether subjects are named after the types of records, which only records contain."""
        return self._naming != "topic" and not value.subject and not value.message

    def subjects(
        self, topic: str, value: ValueSpec, known: Iterable[WriterSchema], is_key: bool = False
    ) -> tuple[str, ...]:
        """Returns the subjects of the schemas of the topic's records, as far as they are known before the first record:
        where subjects are named after record types, those of the `known` schemas and those that begin with the topic's
        name.
        """
        if not self.needs_types(value):
            return (self.subject(topic, value, is_key),)
        names = filter(None, map(record_name, known))
        subjects = {subject_of(topic, is_key, name, self._naming) for name in names}
        if self._naming == "topic_record":
            prefix = f"{topic}-"
            for subject in self._registry.subjects(prefix):
                # Another topic's name may begin with this one's.
                if subject not in subjects and record_name(self.newest(subject)) == subject.removeprefix(prefix):
                    subjects.add(subject)
        return tuple(sorted(subjects))

    def _fetch(self, schema_id: str, topic: str, value: ValueSpec, is_key: bool) -> WriterSchema:
        if schema_id == LATEST:
            return self.latest(topic, value, is_key)
        subject = value.subject or (subject_of(topic, is_key) if self._naming == "topic" else "")
        with self._lock:
            schema = self._known.get((subject, schema_id))
        if schema is not None:
            return self._as_read(schema, value, topic)
        fetched = self._usable(f"{subject}:{schema_id}", lambda: self._ask(schema_id, subject))
        if not may_change(fetched):
            with self._lock:
                self._known[subject, schema_id] = fetched
        return self._as_read(fetched, value, topic)

    def _as_read(self, schema: WriterSchema, value: ValueSpec, topic: str) -> WriterSchema:
        """Returns the schema with the settings of the pipeline file applied. Logs each ignored part once."""
        read = as_read(schema, value)
        ignored = ignored_in(schema, value)
        with self._lock:
            is_new = bool(ignored) and (topic, schema) not in self._logged
            if is_new:
                self._logged.add((topic, schema))
        for misplaced in ignored if is_new else ():
            log.warning(
                "logical_type_ignored",
                topic=topic,
                field=misplaced.path,
                type=misplaced.kind,
                logical_type=misplaced.logical,
            )
        return read

    def _ask(self, schema_id: str, subject: str) -> RegisteredSchema | None:
        if _GUID.fullmatch(schema_id):
            return self._registry.by_guid(schema_id)
        number = int(schema_id)
        return self._registry.by_id(number, subject) if number > 0 else None

    def _usable(self, name: str, ask: Callable[[], RegisteredSchema | None]) -> WriterSchema:
        """Returns the schema as tasks need it; one of kind `unusable`, with the reason, where tasks cannot use it."""
        try:
            answer = self._answer(name, ask)
            if answer is None:
                return UNKNOWN
            schema = WriterSchema(answer.kind, answer.text, answer.references)
            if answer.kind != "protobuf":
                struct_of(schema)
            elif has_message_schemas():  # Otherwise no table reads it: the records of any table are of a wrong schema.
                descriptors = message_schemas().compile(answer.text, answer.references)
                message_schemas().full_name(descriptors)  # A message beyond a limit is none of the records of another.
                schema = replace(schema, descriptors=descriptors)
        except UnusableSchema as error:
            return WriterSchema("unusable", str(error))
        return schema

    def _answer(self, name: str, ask: Callable[[], RegisteredSchema | None]) -> RegisteredSchema | None:
        """Returns the registry's answer to the request `name`. A request without an answer is not repeated for a while,
        as each attempt may wait long. Other requests are made: a registry that fails for one schema may have all
        others.
        """
        outage = self._outages.get(name)
        if outage is not None and self._clock.monotonic_s() - outage[0] < _OUTAGE_S:
            raise outage[1]
        try:
            answer = ask()
        except UnavailableError as error:
            self._outages[name] = (self._clock.monotonic_s(), error)
            raise
        self._outages.pop(name, None)
        return answer


def as_read(schema: WriterSchema, value: ValueSpec) -> WriterSchema:
    """Returns the schema with the settings of the pipeline file applied."""
    if schema.kind != "avro" or value.logical_types != "lenient":
        return schema
    references = tuple((name, with_moved_logical_types(text)) for name, text in schema.references)
    return replace(schema, text=with_moved_logical_types(schema.text), references=references)


def ignored_in(schema: WriterSchema, value: ValueSpec) -> tuple[Misplaced, ...]:
    """Returns the logical types of a schema that are ignored because they are beside their type."""
    if schema.kind != "avro" or value.logical_types != "strict":
        return ()
    return find_misplaced(schema.text, tuple(text for _, text in schema.references))


def ignored_phrases(ignored: Iterable[Misplaced], key: str = "value") -> str:
    """Returns a message about ignored logical types; empty where there are none. key: the setting of the format."""
    misplaced = list(ignored)
    if not misplaced:
        return ""
    first, more = misplaced[0], f" (and {len(misplaced) - 1} more)" if len(misplaced) > 1 else ""
    return (
        f"field {first.path}: the logicalType {first.logical} is on the type {first.kind}, where Avro ignores"
        f" it{more}; write `{key}: {{format: avro, logical_types: lenient}}` to read it as meant, or correct the"
        " schema"
    )


def may_change(schema: WriterSchema) -> bool:
    """Whether the registry may later return another schema for this id."""
    return schema.kind in ("unknown", "unusable")


def record_name(schema: WriterSchema) -> str:
    """Returns the full name of a schema's records (of a .proto file, of its first message); empty where it has none."""
    if schema.kind == "protobuf":
        return message_schemas().full_name(schema.descriptors) if schema.descriptors else ""
    if schema.kind not in ("avro", "json_schema"):
        return ""
    described = json.loads(schema.text)
    named = described if isinstance(described, dict) else {}
    if schema.kind == "json_schema":
        return str(named.get("title", ""))
    name, namespace = str(named.get("name", "")), str(named.get("namespace", ""))
    return f"{namespace}.{name}" if namespace and name and "." not in name else name
