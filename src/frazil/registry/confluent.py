"""The schema registry on the network, through Confluent's API, which Apicurio, Karapace and others implement too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from frazil.clock import Clock, SystemClock
from frazil.registry.client import RegistryClient
from frazil.registry.port import NO_ID, RegisteredSchema, SchemaKind, UnusableSchema, context_of, qualified
from frazil.registry.references import Gathering, Reference, Version
from frazil.spec.models import RegistrySpec

_TIMEOUT_S = 10.0
_LATEST_S = 60.0
_MAX_ID = 2**31 - 1
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KINDS: Mapping[str, SchemaKind] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}


class ConfluentRegistry:
    """Implements the port. timeout_s: for one question, referenced schemas included, whatever the servers do. Schemas
    are cached for good (an id never changes its meaning), the latest version of a subject for a minute.

    Raises: SpecError for settings that the client refuses.
    """

    def __init__(self, spec: RegistrySpec, timeout_s: float = _TIMEOUT_S, clock: Clock | None = None) -> None:
        self._context = spec.context
        self._clock = clock or SystemClock()
        self._client = RegistryClient(spec, timeout_s)
        self._known: dict[tuple[str, int | str], RegisteredSchema] = {}
        self._versions: dict[tuple[str, int], Version] = {}
        self._latest: dict[str, tuple[float, RegisteredSchema]] = {}

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema | None:
        """See the port."""
        if not 0 < schema_id <= _MAX_ID:
            return None  # A registry would refuse the request itself, which would look like an outage.
        context = context_of(subject, self._context)
        place = qualified(subject, context)
        return self._remember(
            (context, schema_id), f"schema {schema_id}", f"schemas/ids/{schema_id}", {"subject": place} if place else {}
        )

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        """See the port."""
        if not _GUID.fullmatch(guid):
            return None
        return self._remember((self._context, guid), f"the schema of GUID {guid}", f"schemas/guids/{guid}", {})

    def latest(self, subject: str) -> RegisteredSchema | None:
        """See the port."""
        name = qualified(subject, self._context)
        until, known = self._latest.get(name, (0.0, None))
        if known is None or self._clock.monotonic_s() >= until:
            what, path = f"the latest schema of subject {name}", f"subjects/{quote(name, safe='')}/versions/latest"
            known = self._client.within_time(what, lambda: self._complete(what, path, {}, context_of(name)))
            self._latest.pop(name, None)
            if known is not None:
                self._latest[name] = (self._clock.monotonic_s() + _LATEST_S, known)
        return known

    def subjects(self, prefix: str) -> tuple[str, ...]:
        """See the port."""
        what, full_prefix = f"the subjects that begin with {prefix}", qualified(prefix, self._context)
        answer = self._client.within_time(
            what, lambda: self._client.get(what, "subjects", {"subjectPrefix": full_prefix})
        )
        if not isinstance(answer, list) or not all(isinstance(name, str) for name in answer):
            raise self._client.outage(what, "the answer is no list of names")
        cut = len(full_prefix) - len(prefix)
        return tuple(sorted(name[cut:] for name in answer if name.startswith(full_prefix)))

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _remember(
        self, place: tuple[str, int | str], what: str, path: str, query: Mapping[str, str]
    ) -> RegisteredSchema | None:
        known = self._known.get(place)
        if known is None:
            known = self._client.within_time(what, lambda: self._complete(what, path, query, place[0], place[1]))
            if known is not None:
                self._known[place] = known
        return known

    def _complete(
        self, what: str, path: str, query: Mapping[str, str], context: str, key: int | str | None = None
    ) -> RegisteredSchema | None:
        """Returns the schema with everything it refers to. key: the requested id or GUID; None for the latest version."""
        answer = self._client.get(what, path, query)
        if answer is None:
            return None
        found = self._read(what, answer)
        word = answer.get("schemaType") or "AVRO"
        if not isinstance(word, str) or word not in _KINDS:
            raise UnusableSchema(f"it is of the kind {word}, which Frazil does not read")
        schema_id = key if isinstance(key, int) else answer.get("id", NO_ID)
        if not isinstance(schema_id, int) or (key is None and schema_id == NO_ID):
            raise self._client.outage(what, "the answer has no schema id")
        gathering = Gathering(lambda subject, version: self._version(qualified(subject, context), version))
        gathering.visit(found.references)
        return RegisteredSchema(schema_id, _KINDS[word], found.text, tuple(gathering.texts.items()))

    def _version(self, subject: str, number: int) -> Version | None:
        """Returns one version, also where it is soft-deleted: schemas that refer to it still need it."""
        known = self._versions.get((subject, number))
        if known is None:
            what, path = (
                f"version {number} of subject {subject}",
                f"subjects/{quote(subject, safe='')}/versions/{number}",
            )
            answer = self._client.get(what, path, {"deleted": "true"})
            if answer is None:
                return None
            known = self._versions[subject, number] = self._read(what, answer)
        return known

    def _read(self, what: str, answer: Any) -> Version:
        """Returns the schema in the response.

        Raises: UnavailableError where the response has none.
        """
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise self._client.outage(what, "the answer is no schema")
        references = [_reference(held) for held in _list(answer.get("references"))]
        if None in references:
            raise self._client.outage(what, "the answer has references without name, subject or version")
        return Version(answer["schema"], tuple(held for held in references if held))


def _list(held: Any) -> list[Any]:
    return held if isinstance(held, list) else [held] if held else []


def _reference(held: Any) -> Reference | None:
    if not isinstance(held, dict):
        return None
    name, subject, version = held.get("name"), held.get("subject"), held.get("version")
    if not isinstance(name, str) or not isinstance(subject, str) or not isinstance(version, int):
        return None
    return Reference(name, subject, version)
