"""The port of the schema registry: schemas by id, by GUID, and the latest of a subject.

The id is in the record, the GUID in a header. Each schema comes with those that it refers to.

Only the driver uses it. An unknown id is an answer (None), an outage is an UnavailableError: the first may make a dead
letter, the second never does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from frazil.errors import SpecError

SchemaKind = Literal["avro", "protobuf", "json_schema"]
Naming = Literal["topic", "record", "topic_record"]
"""How producers name subjects: by topic, by record type, or by both."""

NO_ID = -1
"""The id of a schema found by its GUID, where the registry returns no id."""

_CONTEXT = re.compile(r":\.([^:]*):")
MAX_REFERENCES = 256
MAX_CHARACTERS = 4 * 1024 * 1024


@dataclass(frozen=True)
class RegisteredSchema:
    """A registered schema, which never changes."""

    id: int
    #: Its format.
    kind: SchemaKind
    #: Its text, verbatim or in the registry's canonical form.
    text: str
    #: Name and text of every schema that it refers to, directly or not, each after those it needs itself.
    references: tuple[tuple[str, str], ...] = ()


class UnusableSchema(Exception):
    """The registry has the schema, and nothing can be read with it; another request does not help. The message gives
    the reason in lower case, without the schema's id.
    """


class SchemaRegistry(Protocol):
    """The port. A response that is not a plain answer (such as a refused login) raises UnavailableError, within about ten
    seconds; an existing schema that cannot be used raises UnusableSchema.
    """

    def reach(self) -> None:
        """Requests a schema that nobody has registered, to find out whether the registry answers."""

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema | None:
        """Returns the schema of an id, also where its version is soft-deleted; None where the registry does not know
        the id. subject: where the schema should be, for registries whose ids belong to contexts.
        """

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        """Returns the schema of a GUID (hexadecimal with hyphens); None where the registry does not know it."""

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Returns the newest version of a subject, at most a minute old; None where the subject does not exist."""

    def subjects(self, prefix: str) -> tuple[str, ...]:
        """Returns the names of all subjects with this prefix, sorted."""


def subject_of(topic: str, is_key: bool, record_name: str = "", naming: Naming = "topic") -> str:
    """Returns the subject of a topic's keys or values. record_name: the full name of the record's type. Source:
    Confluent's TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy.

    Raises: SpecError where the strategy needs the record's type and it is unknown.
    """
    if naming == "topic":
        return f"{topic}-key" if is_key else f"{topic}-value"
    if not record_name:
        raise SpecError(
            f"the subject of topic `{topic}` is not known: `registry.naming` is {naming}, and the record's type is not",
            remedy="use the schema id in the record, or write `naming: topic`",
        )
    return record_name if naming == "record" else f"{topic}-{record_name}"


def qualified(subject: str, context: str) -> str:
    """Returns the subject's name in `context`; a name with a context of its own (`:.other:name`) stays unchanged."""
    return subject if not context or _CONTEXT.match(subject) else f":.{context}:{subject}"


def context_of(subject: str, default: str = "") -> str:
    """Returns the context at the beginning of a subject's name, or the default."""
    match = _CONTEXT.match(subject)
    return match[1] if match else default


@dataclass(frozen=True)
class Reference:
    """A reference in a schema's text."""

    #: The name used in the text.
    name: str
    #: The subject that it refers to.
    subject: str
    #: The version of that subject.
    version: int


@dataclass(frozen=True)
class Version:
    """A version of a subject."""

    #: The text of the schema.
    text: str
    references: tuple[Reference, ...] = ()


class Gathering:
    """Collects referenced schemas depth first. look_up: returns a version of a subject.

    Raises: UnusableSchema for references that are missing, circular, too many, or give one name to two texts: no reader
    could choose the one that the producer meant.
    """

    def __init__(self, look_up: Callable[[str, int], Version | None]) -> None:
        #: The schemas found, by name, dependencies first.
        self.texts: dict[str, str] = {}
        self._look_up = look_up
        self._visited: dict[tuple[str, int], str] = {}
        self._open: list[tuple[str, int]] = []
        self._size = 0

    def visit(self, references: Iterable[Reference]) -> None:
        """Adds the schemas of `references`, and everything they need."""
        for reference in references:
            text = self._text((reference.subject, reference.version))
            if self.texts.setdefault(reference.name, text) != text:
                raise UnusableSchema(f"it refers to two different schemas by the name `{reference.name}`")

    def _text(self, place: tuple[str, int]) -> str:
        if place in self._open:
            circle = [subject for subject, _ in [*self._open[self._open.index(place) :], place]]
            raise UnusableSchema(f"its references are circular: {' → '.join(circle)}")
        if place not in self._visited:
            self._open.append(place)
            self._visited[place] = self._fetch(*place)
            self._open.pop()
        return self._visited[place]

    def _fetch(self, subject: str, version: int) -> str:
        if len(self._visited) + len(self._open) > MAX_REFERENCES:
            raise UnusableSchema(f"it refers to more than {MAX_REFERENCES} schemas")
        referenced = self._look_up(subject, version)
        if referenced is None:
            raise UnusableSchema(f"it refers to version {version} of subject `{subject}`, which is not in the registry")
        self._size += len(referenced.text)
        if self._size > MAX_CHARACTERS:
            raise UnusableSchema(f"the schemas that it refers to are longer than {MAX_CHARACTERS} characters")
        self.visit(referenced.references)
        return referenced.text
