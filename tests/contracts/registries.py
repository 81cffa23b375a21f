"""A schema registry with the hands of its producers: what the port does not offer, done to memory and to a real one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from frazil.registry.port import SchemaKind, SchemaRegistry
from frazil.spec import RegistrySpec
from frazil_registry.confluent import ConfluentRegistry
from frazil_testing.memory_registry import MemoryRegistry
from tests.fixtures.registry import ApicurioRegistry
from tests.integration.servers import HOST, Relay

_WORDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}


class Desk(Protocol):
    """One registry."""

    def open(self) -> SchemaRegistry:
        """The port, as a fresh process sees it."""

    def register(self, subject: str, kind: SchemaKind, text: str, references: Sequence[tuple[str, str]] = ()) -> int:
        """The id of a new version of a subject. references: names, and the subjects whose first version they are."""

    def delete(self, subject: str, *, for_good: bool = False) -> None:
        """Deletes a subject."""

    def outage(self) -> Any:
        """A context in which nothing is answered."""

    def clean(self) -> None:
        """Takes away what was registered."""


class MemoryDesk:
    """The twin."""

    def __init__(self) -> None:
        self._registry = MemoryRegistry()
        self._needs: dict[str, tuple[tuple[str, str], ...]] = {}
        self._first: dict[str, tuple[str, int]] = {}

    def open(self) -> SchemaRegistry:
        return self._registry

    def register(self, subject: str, kind: SchemaKind, text: str, references: Sequence[tuple[str, str]] = ()) -> int:
        needs: dict[str, str] = {}
        for name, place in references:
            needs.update(self._needs[place])
            needs[name] = self._first[place][0]
        schema_id = self._registry.register(kind, text, tuple(needs.items()), subject=subject)
        self._needs.setdefault(subject, tuple(needs.items()))
        self._first.setdefault(subject, (text, schema_id))
        return schema_id

    def delete(self, subject: str, *, for_good: bool = False) -> None:
        self._registry.delete(subject)
        if for_good:
            self._registry.forget(self._first[subject][1])

    @contextmanager
    def outage(self) -> Iterator[None]:
        self._registry.is_down = True
        yield
        self._registry.is_down = False

    def clean(self) -> None:
        """It ends with the test."""


class RealDesk:
    """Apicurio, by way of a port that can be cut."""

    def __init__(self, server: ApicurioRegistry) -> None:
        self._server = server
        self._relay = Relay(server.port)
        self._relay.join()
        self._subjects: list[str] = []

    def open(self) -> SchemaRegistry:
        url = self._server.api.replace(f"{HOST}:{self._server.port}", f"{HOST}:{self._relay.port}")
        return ConfluentRegistry(RegistrySpec(urls=(url,)))

    def register(self, subject: str, kind: SchemaKind, text: str, references: Sequence[tuple[str, str]] = ()) -> int:
        self._subjects.append(subject)
        return self._server.register(subject, _WORDS[kind], text, [(name, place, 1) for name, place in references])

    def delete(self, subject: str, *, for_good: bool = False) -> None:
        self._server.delete(subject, for_good=for_good)

    @contextmanager
    def outage(self) -> Iterator[None]:
        self._relay.cut()
        yield
        self._relay.join()

    def clean(self) -> None:
        self._relay.cut()
        for subject in reversed(self._subjects):
            self._server.delete(subject, for_good=True)
