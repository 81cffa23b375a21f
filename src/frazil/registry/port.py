"""The port of the schema registry: schemas by id, by GUID, and the latest of a subject.

The id is in the record, the GUID in a header. Each schema comes with those that it refers to.

Only the driver uses it. An unknown id is an answer (None), an outage is an UnavailableError: the first may make a dead
letter, the second never does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from frazil.errors import SpecError

SchemaKind = Literal["avro", "protobuf", "json_schema"]
Naming = Literal["topic", "record", "topic_record"]
"""How producers name subjects: by topic, by record type, or by both."""

NO_ID = -1
"""The id of a schema found by its GUID, where the registry returns no id."""


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
