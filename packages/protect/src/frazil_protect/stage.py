"""`protect` as a stage: it replaces fields before the table's query, and what records leave beside their columns at last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyiceberg.schema import Schema

from frazil.errors import SpecError
from frazil.queries.evaluate import evaluate
from frazil.queries.program import Field, Program, Project
from frazil.schema.arrow import arrow_type
from frazil.schema.projection import HEADERS, KEY
from frazil.stages.changes import Changes, ReadRecords
from frazil.stages.notes import ProtectedFields
from frazil.stages.record_key import RecordKey
from frazil.stages.stage import Origins, TableStage, UnusedField
from frazil.write.target import TableTarget
from frazil_protect.metadata import protect_metadata
from frazil_protect.rules import (
    Protection,
    Rule,
    find_unprotected,
    protected_fields,
    protected_paths,
    protecting,
)

if TYPE_CHECKING:
    from frazil.queries.analysis import Query
    from frazil.spec.models import TableSpec
    from frazil.stages.protect_settings import ProtectSpec

PROTECT_KEY_ID = "protect-key-id"
"""Property of a protected table: the id of the key of its newest rows."""
_OTHER_METADATA = frozenset({"_topic", "_kafka_partition", "_offset", "_timestamp"})
"""How a query names the metadata of records that has no rules."""


@dataclass(frozen=True)
class ProtectStage(TableStage):
    """See TableStage."""

    protection: Protection

    @classmethod
    def make(cls, _name: str, settings: ProtectSpec) -> Self | None:
        """Returns the stage of a table with these settings; None without a key."""
        if settings.protect_key is None:
            return None
        rules = tuple(Rule(**rule.model_dump()) for rule in settings.protect)
        return cls(Protection(rules, RecordKey(settings.protect_key.encode())))

    @property
    def record_key(self) -> RecordKey:
        """See TableStage."""
        return self.protection.key

    def before_query(self, fields: Schema, origins: Origins) -> tuple[Project, ProtectedFields] | None:
        """See TableStage."""
        project = protecting(fields, self.protection, origins)
        return None if project is None else (project, protected_fields(fields, self.protection, origins))

    def check_query(self, spec: TableSpec, query: Query, fields: Schema, origins: Origins) -> None:
        """Raises SpecError for a rule that finds a column which the query makes, and none of the fields that it is made of.
        Rules are for fields, keys and headers of records alone.
        """
        known = protected_paths(fields, self.protection, origins)
        others = {lookup.name for lookup in spec.query.lookup} | _OTHER_METADATA
        for column in query.columns:
            sources = [path for path in column.sources if path[0] not in others]
            unprotected = find_unprotected(column.name, arrow_type(column.type), sources, self.protection, known)
            if unprotected is not None:
                made_of = " and ".join(f"`{source}`" for source in unprotected.sources)
                rules = ", ".join(f"{source}: {unprotected.rule.action}" for source in unprotected.sources)
                raise SpecError(
                    f"`protect` has `{unprotected.rule.selector}` for `{unprotected.path}`, which the query makes of"
                    f" {made_of}",
                    remedy=f"write the rule for the field, `protect: {{{rules}}}`: fields are protected before the query",
                    where=spec.name,
                )

    def unused_fields(self, fields: Schema, origins: Origins, headers: Collection[str]) -> Iterator[UnusedField]:
        """See TableStage."""
        names = {name for name in (*origins, *fields.column_names) if name not in (KEY, HEADERS)}
        paths = [f"{HEADERS}.{name}" for name in headers]
        for rule in self.protection.rules:
            is_pattern = rule.selector.startswith("/")
            if rule.matches(paths) or (not is_pattern and rule.selector.split(".")[0] in (KEY, HEADERS)):
                continue
            if not protected_paths(fields, Protection((rule,), self.protection.key), origins):
                yield UnusedField("protect", rule.selector, () if is_pattern else names)

    def new_marks(
        self, spec: TableSpec, marks: Mapping[str, str], key_columns: Callable[[], Sequence[str]]
    ) -> dict[str, str]:
        """Returns the id of the key. Raises: SpecError for another key where rows are found by a hash."""
        key, key_id = self.protection.key, marks.get(PROTECT_KEY_ID)
        if key_id == key.id:
            return {}
        if key_id is not None and spec.changes.mode == "upsert" and self._is_key_hashed(key_columns()):
            raise SpecError(
                f"the table's keys are hashed with the key {key_id}, and `protect_key` is the key {key.id}",
                remedy="give it the old `protect_key`, or the table a new name",
                where=spec.name,
            )
        return {PROTECT_KEY_ID: key.id}

    def _is_key_hashed(self, key_columns: Sequence[str]) -> bool:
        return any(self.protection.rule_for((name, KEY)) is not None for name in key_columns or (KEY,))

    def finish(self, target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
        """See TableStage."""
        return protect_metadata(self.protection, target, read, changes)

    def show(self, records: TableTarget, columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
        """Returns the columns that the table's schema of records has, protected."""
        present = {name: column for name, column in columns.items() if name in records.arrow_schema.names}
        project = protecting(records.schema, self.protection, records.origins)
        if project is None:
            return present
        kept = tuple(field for field in project.columns if field[0] in present)
        program = Program((Project(kept),), tuple(Field(name, expression.type) for name, expression in kept))
        protected = evaluate(program, present, len(next(iter(columns.values())))).columns
        return {name: column for (name, _), column in zip(kept, protected, strict=True)}
