"""The in-memory implementation of the registry port, for tests."""

from __future__ import annotations

from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.registry.port import RegisteredSchema, SchemaKind


class MemoryRegistry:
    """Implements the port `SchemaRegistry`."""

    def __init__(self) -> None:
        #: Whether every request raises UnavailableError.
        self.is_down = False
        #: The number of next requests that raise UnavailableError.
        self.outages = 0
        #: Every request in order, also failed ones: `id 7`, `guid …`, `latest t-value` or `subjects t-`.
        self.asked: list[str] = []
        self._by_id: dict[int, RegisteredSchema] = {}
        self._versions: dict[str, list[RegisteredSchema]] = {}
        self._guids: dict[str, int] = {}
        self._last_id = 0

    def register(
        self, kind: SchemaKind, text: str, references: tuple[tuple[str, str], ...] = (), *, subject: str = ""
    ) -> int:
        """Returns the id of a schema, the same for a schema registered before; with a subject it becomes its newest
        version.
        """
        content, schemas = (kind, text, references), self._by_id.values()
        schema = next((held for held in schemas if (held.kind, held.text, held.references) == content), None)
        if schema is None:
            self._last_id += 1
            schema = RegisteredSchema(self._last_id, kind, text, references)
            self._by_id[schema.id] = schema
            self._guids[new_id()] = schema.id
        if subject and schema not in self._versions.setdefault(subject, []):
            self._versions[subject].append(schema)
        return schema.id

    def guid_of(self, schema_id: int) -> str:
        """Returns the GUID of a registered schema."""
        return next(guid for guid, held in self._guids.items() if held == schema_id)

    def delete(self, subject: str) -> None:
        """Soft-deletes a subject: its ids stay."""
        del self._versions[subject]

    def forget(self, schema_id: int) -> None:
        """Deletes a schema permanently."""
        del self._by_id[schema_id]
        for versions in self._versions.values():
            versions[:] = [held for held in versions if held.id != schema_id]

    def reach(self) -> None:
        self._answer("nobody's schema")

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema | None:  # noqa: ARG002
        self._answer(f"id {schema_id}")
        return self._by_id.get(schema_id)

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        self._answer(f"guid {guid}")
        return self._by_id.get(self._guids.get(guid, 0))

    def latest(self, subject: str) -> RegisteredSchema | None:
        self._answer(f"latest {subject}")
        versions = self._versions.get(subject)
        return versions[-1] if versions else None

    def subjects(self, prefix: str) -> tuple[str, ...]:
        self._answer(f"subjects {prefix}")
        return tuple(sorted(subject for subject in self._versions if subject.startswith(prefix)))

    def _answer(self, question: str) -> None:
        self.asked.append(question)
        if self.is_down or self.outages > 0:
            self.outages = max(self.outages - 1, 0)
            raise UnavailableError("the schema registry does not answer", where="memory")
