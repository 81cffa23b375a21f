"""Fields that settings name and no record has.

The settings are those of stages, the single steps, `include`, `exclude`, `columns`, `key_columns` and `order_by`. Records
may have the fields later, so nothing stops for them; but a misspelt one leaves in the table what was to be dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from frazil.ingest.tables.preflight import field_in_image
from frazil.ingest.tables.queries import field_origins, steps_of
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import Table
from frazil.kafka.port import ReadRecord
from frazil.name_case import change_case, fold_case, fold_path
from frazil.ops.sampling import decode_sample
from frazil.printable import plural
from frazil.process.steps import compile_steps
from frazil.schema.names import spelled
from frazil.schema.parts import Path, parts_of, types_in
from frazil.spec import TableSpec
from frazil.spec.syntax.problems import nearest
from frazil.stages.table import table_stages
from frazil.types import EXTRA_COLUMNS


def unused_fields(table: Table, fields: Schema, records: Sequence[ReadRecord], count: int) -> Iterator[str]:
    """Yields a warning for each field that a stage or a step of the table names and none of its records has. fields: the
    columns of the records. records: the sample. count: how many of them can be rows; without any, nothing is known of their
    fields.
    """
    if not count:
        return
    own_fields = Schema(*(field for field in fields.fields if field.name not in EXTRA_COLUMNS))
    headers = frozenset(name for record in records for name, _ in record.headers)
    for stage in table_stages(table.spec):
        for unused in stage.unused_fields(own_fields, field_origins(table, own_fields), headers):
            yield _warning(unused.setting, unused.path, nearest(unused.path, unused.names), count)
    for setting, path, close in _of_steps(table, own_fields):
        yield _warning(setting, path, close, count)


def unselected_fields(
    table: Table, records: Sequence[ReadRecord], schemas: Schemas | None, count: int
) -> Iterator[str]:
    """Yields a warning for each path of `include` and `exclude` and each `field` of a column that no record has, and for
    each member of a declared column that is written in the case of columns, where records have another. records: the sample.
    count: how many of them can be rows.
    """
    spec = table.spec
    renames_members = spec.shape.column_case != "keep" and any(
        not column.type.is_primitive for column in spec.shape.columns
    )
    # What `field_in_image` reports is not reported twice.
    declared = [] if field_in_image(spec) else [column.field for column in spec.shape.columns if column.field]
    listed = {"include": spec.shape.include, "exclude": spec.shape.exclude, "columns": declared} if count else {}
    if not records or not (any(listed.values()) or renames_members):
        return
    all_fields = {"include": (), "exclude": (), "flatten": None, "column_case": "keep", "columns": ()}
    takes_all = spec.model_copy(update=all_fields | {"unknown_fields": "add", "schema_evolution": "evolve"})
    requested = decode_sample(replace(table, spec=takes_all, state=None), records, Schema(), schemas).requested_fields
    fields = (((*around, name), kind) for around, members in requested.items() for name, kind in members.items())
    paths = {path for at, kind in fields for path in _paths_of(at, kind)}
    names = {".".join(path) for path in paths}
    plain = set(map(fold_case, names))
    for setting, settings in listed.items():
        for name in map(".".join, settings):
            if fold_case(name) not in plain:
                yield _warning(setting, name, _inside(name, names) or nearest(name, names), count)
    # Records of which no other can be a row are bad for this very reason.
    for name, meant in _renamed_members(spec, paths) if renames_members else ():
        yield _warning("columns", name, meant, len(records))


def _inside(name: str, paths: Collection[str]) -> str | None:
    """Returns the known path that is left of a path without its first names, as without those of an envelope."""
    names = name.split(".")
    ends = (".".join(names[cut:]) for cut in range(1, len(names)))
    return next((path for end in ends for path in paths if fold_case(path) == fold_case(end)), None)


def _renamed_members(spec: TableSpec, paths: Collection[Path]) -> Iterator[tuple[str, str]]:
    """Yields the members of declared columns that no record has, and of which records have the name in another case. paths:
    of the records' fields. Members of declared columns have the names that records give them.
    """

    def in_case(path: Path) -> Path:
        return fold_path(tuple(change_case(name, spec.shape.column_case) for name in path))

    fields = {in_case(path): path for path in paths if len(path) > 1}
    have = set(map(fold_path, paths))
    for column in spec.shape.columns:
        for path, _ in types_in(column.type, column.field or (column.name,)):
            field = fields.get(in_case(path))
            if field is not None and fold_path((*field[:-1], path[-1])) not in have:
                yield ".".join((column.name, *path[len(column.field or (column.name,)) :])), ".".join(field)


def _warning(setting: str, path: str, close: str | None, count: int) -> str:
    meant = f"; did you mean `{close}`?" if close else ""
    return f"`{setting}` names `{path}`, and none of {plural(count, 'record')} in the sample has it{meant}"


def _paths_of(path: Path, kind: IcebergType) -> Iterator[Path]:
    yield path
    for part in parts_of(kind):
        yield from _paths_of((*path, part.name), part.field_type)


def _of_steps(table: Table, fields: Schema) -> Iterator[tuple[str, str, str | None]]:
    if not table.spec.query.has_steps:
        return
    looked_up = {lookup.name for lookup in table.spec.query.lookup}
    for missing in compile_steps(steps_of(table.spec), fields).missing:
        if missing.path[0] not in looked_up:
            yield missing.step, ".".join(missing.path), ".".join(missing.nearest) if missing.nearest else None


def absent_columns(spec: TableSpec, schema: Schema, fitting: int) -> Iterator[str]:
    """Yields warnings for key and ordering columns that no record of the sample has: in an envelope such a record turns
    out to be bad only when the table's changes are merged.
    """
    named = {
        "key_columns": spec.changes.key_columns,
        "order_by": (spec.changes.order_by,) if spec.changes.order_by else (),
    }
    present = {field.name for field in schema.fields}
    for setting, names in named.items() if fitting and present else ():
        for name in names:
            if spelled(name, schema).split(".")[0] not in present:
                yield (
                    f"`{setting}` names `{name}`, and none of {plural(fitting, 'record')} in the sample has it: all of"
                    " them would be bad records"
                )
