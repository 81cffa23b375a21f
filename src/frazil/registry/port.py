"""What Frazil asks of a schema registry: a schema by the id in a record, by the GUID in a header, or a subject's latest.

Only the driver asks. An id that nobody knows is an answer (None), an outage is an UnavailableError: the first may
become a dead letter, the second never.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol

from frazil.errors import SpecError

SchemaKind = Literal["avro", "protobuf", "json_schema"]
Naming = Literal["topic", "record", "topic_record"]
"""How producers name subjects: after the topic, after the record's type, or after both."""

NO_ID = -1
"""The id of a schema that was found by its GUID, where the registry names no id."""

_CONTEXT = re.compile(r":\.([^:]*):")


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as it was registered: it never changes.

    text: what the registry holds, word for word or made canonical by it. references: name and text of every schema
    that it refers to, directly or not, each after those that it needs itself.
    """

    id: int
    kind: SchemaKind
    text: str
    references: tuple[tuple[str, str], ...] = ()


class UnusableSchema(Exception):
    """The registry has the schema, and nothing can be read with it: asking again does not help.

    The message says why, lower case, without the schema's id: the caller knows that.
    """


class SchemaRegistry(Protocol):
    """The port. Whatever is no plain answer (refused logins included) raises UnavailableError, within about ten
    seconds; a schema that is there and cannot be used raises UnusableSchema.
    """

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema | None:
        """The schema of an id, also when its version is soft-deleted; None when the registry knows no such id.

        subject: whose schema it should be, for registries whose ids belong to contexts.
        """

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        """The schema of a GUID (hexadecimal with hyphens); None when the registry knows no such GUID."""

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The newest version of a subject, at most a minute old; None when there is no such subject."""

    def subjects(self, prefix: str) -> tuple[str, ...]:
        """The names of all subjects that begin so, in order."""


def subject_of(topic: str, is_key: bool, record_name: str = "", naming: Naming = "topic") -> str:
    """The subject of a topic's keys or values.

    record_name: full name of the record's type; SpecError where the naming needs one and none is known. Source:
    Confluent's TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy.
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
    """The subject's name inside `context`; one that names its context itself (`:.other:name`) stays as it is."""
    return subject if not context or _CONTEXT.match(subject) else f":.{context}:{subject}"


def context_of(subject: str, default: str = "") -> str:
    """The context that a subject's name begins with, or the default."""
    match = _CONTEXT.match(subject)
    return match[1] if match else default
