"""The settings of one table: what it takes from the rest of the file, and the rules between its keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from frazil.column_names import Spellings, fold_case, fold_path
from frazil.plugins.stages import STAGES, TABLE_STAGES
from frazil.spec import changes, columns, grouped_tables, publishing, settings, state, steps
from frazil.spec.models import (
    DEFAULTS_KEYS,
    OF_ALL_TABLES,
    OF_ONE_TABLE,
    STAGE_FIELDS,
    STAGE_SETTINGS,
    PipelineSpec,
    Shared,
    TableSpec,
)
from frazil.spec.package_stages import hide_stages
from frazil.spec.partitioning import METADATA_TYPES, check_terms
from frazil.spec.sections import RULES as RULES_OF_SECTIONS
from frazil.spec.sections import check_order
from frazil.spec.syntax.document import Items, Node, Scalar, Section
from frazil.spec.syntax.keys import Declared, Path, is_true, keys_of
from frazil.spec.syntax.problems import Mistake, Mistakes, try_check
from frazil.spec.syntax.reading import Reading, Rules
from frazil.spec.topics import check_offset_topics, table_name
from frazil.types import EXTRA_COLUMNS, MAIN

_STRANGE_IN_TABLE: Mapping[str, str] = {
    **dict.fromkeys(keys_of(PipelineSpec), "write it at the top of the file"),
    **dict.fromkeys(keys_of(settings.CommitSpec), "write it under `commit`"),
    **dict.fromkeys(keys_of(settings.ValueSpec), "write it under `value`, or under `key`"),
    **dict.fromkeys(
        ("primary_key", "primary_keys", "merge_key", "id_columns", "keys"),
        "write `mode: upsert` and `key_columns: [NAME]`",
    ),
    "value_format": "write `value: {format: FORMAT}`",
    "key_format": "write `key: {format: FORMAT}`",
    "coerce": "write it in a column: `columns: {NAME: {type: string, coerce: true}}`",
    "zone": "write it in a column: `columns: {NAME: {type: timestamptz, zone: UTC}}`",
}
"""Keys of other places and of other tools that are easily written into a table, and what to do about them."""
_OF_UPSERT_TABLES = ("key_columns", "order_by", "deletes", "merge", "track")
"""Settings of upsert tables, which a table with its own `mode: append`, such as a changelog table, does not take from
`defaults`.
"""
DEFAULTS = "defaults"
"""The name of the settings of tables that the file does not declare one by one."""
_Spec = TypeVar("_Spec", bound=TableSpec)


def shared_settings(document: Section) -> Shared:
    """The settings of the file that its tables share."""
    nodes = (document.get("defaults"), document.get("commit"), _switched(document.get("maintenance"), None))
    return Shared(*(node if isinstance(node, Section) else None for node in nodes))


def prepare_table(node: Node, name: str, owner: str, line: int, shared: Shared, reading: Reading) -> Node:
    """Returns the settings under a table's name, with those that it shares. owner: what messages call the table. line: of
    the name.
    """
    reading.own(node, owner)
    if not isinstance(node, Section):
        return node
    table = _with_defaults(node, shared.defaults)
    commit = table.get("commit", shared.commit)
    if isinstance(commit, Section) and shared.commit is not None:
        commit = commit.over(shared.commit)
    maintenance = table.get("maintenance")
    if isinstance(maintenance, Section):
        remedy = "write it under `maintenance` at the top of the file: all tables share it"
        maintenance = refuse_keys(maintenance, OF_ALL_TABLES, "maintenance.", remedy, reading)
    for key, value in (("commit", commit), ("maintenance", _switched(maintenance, shared.maintenance))):
        if value is not None:
            table[key] = value
    hide_stages(table)
    table.hide("name", name)
    table.hide("line", line)
    reading.own(table, owner)
    return table


def prepare_defaults(node: Node, shared: Shared, reading: Reading) -> Node:
    """Returns `defaults` with what they share."""
    if isinstance(node, Section):
        remedy = "write it in each table: it is not a default for others"
        node = refuse_keys(node, OF_ONE_TABLE, "", remedy, reading)
    return prepare_table(node, DEFAULTS, f"`{DEFAULTS}`", node.line, replace(shared, defaults=None), reading)


def refuse_keys(section: Section, keys: Sequence[str], label: str, remedy: str, reading: Reading) -> Section:
    """Returns a section without keys that do not belong into it; each is noted. label: the path to them."""
    for key in keys:
        if key in section:
            message = f"`{label}{key}` does not belong here"
            reading.problems.add(section.lines[key], message, remedy, is_cause=True)
    return Section({key: value for key, value in section.items() if key not in keys}, section.line, section.lines)


def _with_defaults(table: Section, defaults: Section | None) -> Section:
    """Returns the settings of a table, with those of `defaults` that it does not have itself."""
    if defaults is None:
        return Section(table, table.line, table.lines)
    mode = table.get("mode")
    strange = _OF_UPSERT_TABLES if isinstance(mode, Scalar) and mode.text == "append" else ()
    # What is no setting of a table is noted where `defaults` itself is read.
    return table.over(defaults, {*DEFAULTS_KEYS, *STAGES.added()} - {*strange})


def _switched(node: Node | None, inherited: Section | None) -> Node | None:
    """Returns the settings of maintenance, with the inherited ones that they lack and with the lines of columns."""
    if isinstance(node, Scalar) and node.kind == "boolean":
        own = Section({}, node.line, {})
        own.hide("is_on", is_true(node))
    elif isinstance(node, Section):
        own = Section(node, node.line, node.lines)
        own.hide("is_on", True)
    else:
        return inherited if node is None else node
    orders = [own[key] for key in ("sort", "zorder") if key in own]
    if orders:
        own.hide("order_lines", tuple(item.line for order in orders if isinstance(order, Items) for item in order))
    if inherited is None:
        return own
    return own.over(inherited, inherited.keys() - {*(("sort", "zorder") if orders else ())})


def _complete_table(table: _Spec) -> _Spec:
    """Returns the table with what follows from its settings.

    Raises: Mistakes where it does not have one kind of topics.
    """
    if {"topic", "topics"} <= table.source.model_fields_set:
        message = f"table `{table.name}` has both `topic` and `topics`"
        raise Mistakes([Mistake("topics", message, "keep one of them")], are_rules=True)
    topics = table.source.topics if table.source.topic is None else (table.source.topic,)
    if not topics and table.name != DEFAULTS:
        remedy = "write `topic: NAME`, or `topics: [a, b]`"
        raise Mistakes([Mistake((), f"table `{table.name}` names no topic", remedy)], are_rules=True)
    table = changes.as_upserts(table.model_copy(update=grouped_tables.settings_of_grouping(table)))
    of_changes = changes.settings_of_changes(table)
    of_state = state.settings_of_state(table, of_changes["metadata"])
    return table.model_copy(update={"topic": None, "topics": topics, **of_changes, **of_state})


def _check_name(table: TableSpec) -> Iterator[Mistake]:
    if table.name != DEFAULTS:
        yield from try_check((), table_name, table.name)


def _check_sources(table: TableSpec) -> Iterator[Mistake]:
    """Yields settings of topics and of values that the topics or the values make wrong, and a table without columns."""
    is_many = len(table.source.topics) > 1 or any(selector.pattern is not None for selector in table.source.topics)
    if is_many and table.source.value.source == "latest" and not table.source.value.subject:
        message = f"table `{table.name}` reads several topics with `schema: latest`, and each has a subject of its own"
        yield Mistake((), message, "write `subject: NAME`, or give each topic its table")
    if table.source.topics and "start" in table.source.model_fields_set:
        yield from try_check("start", check_offset_topics, table.source.start, table.source.topics)
    if table.shape.unknown_fields == "drop" and not table.shape.columns and not table.metadata:
        message = f"table `{table.name}` drops every field: `unknown_fields` is drop, and no `columns` are declared"
        yield Mistake((), message, "declare `columns`")


def _check_layout(table: TableSpec) -> Iterator[Mistake]:
    """Checks `partition_by`, `sort_by` and the order of `maintenance`, though it is inherited, against the columns whose
    types the file declares.
    """
    types = {} if table.has_query else {column.name: column.type for column in table.shape.columns}
    types |= {column: METADATA_TYPES[field] for field, column in table.metadata.items() if field in METADATA_TYPES}
    #: Columns whose types the file leaves open.
    others = {*EXTRA_COLUMNS, *(column for field, column in table.metadata.items() if field not in METADATA_TYPES)}
    is_complete = table.shape.unknown_fields != "add" and bool(table.shape.columns) and not table.has_query
    terms = [*(table.layout.partition_by or ()), *(sort.term for sort in table.layout.sort_by or ())]
    checked = [term for term in terms if term.column.split(".")[0] not in others]
    yield from check_terms(checked, types, is_complete)
    for line, error in check_order(table.maintenance, types, is_complete, others):
        yield Mistake((), f"table `{table.name}`: {error.message}", error.remedy, line)


def _check_named_columns(table: TableSpec) -> Iterator[Mistake]:
    """Yields columns of metadata that `metadata` does not ask for, and keys and orders of fields that are left out."""
    metadata = Spellings(table.metadata.values())
    # Where names of columns are made from fields, the field of a column is not known yet.
    is_plain = table.shape.flatten is None and table.shape.column_case == "keep"
    if table.has_query:  # The query makes the columns.
        return
    for key, line, name, text in _named(table):
        first = name.split(".")[0]
        field = next(
            (
                candidate
                for candidate, usual in settings.METADATA_COLUMNS.items()
                if fold_case(usual) == fold_case(first) and candidate not in settings.HISTORY
            ),
            None,
        )
        is_declared, is_metadata = table.declared_column(first) is not None, metadata.find(first) is not None
        if field is not None and not is_declared and not is_metadata:
            message = f"`{key}` has `{text}`, and there is no column `{first}`: `metadata` does not list it"
            yield Mistake(key, message, f"write `metadata: [{field}]`", line)
        elif key in ("key_columns", "order_by") and not is_metadata:
            if not is_declared and table.shape.columns and table.shape.unknown_fields != "add":
                message = f"`{key}` has `{name}`, which `columns` does not declare and `unknown_fields` keeps away"
                yield Mistake(key, message, "declare it under `columns`", line)
            path = _field_of(name, table)
            if path is not None and is_plain:
                taken = () if is_declared else table.shape.include
                yield from _check_taken(key, path, taken, table.shape.exclude)


def _check_publishing(table: TableSpec) -> Iterator[Mistake]:
    """Yields a `publish` that has nothing to publish, or not at transactions."""
    if table.publishing.publish is not None and table.publishing.branch == MAIN:
        message = "`publish` has nothing to publish: commits go to main, where readers see them at once"
        yield Mistake("publish", message, "write `branch: ingest`, or remove `publish`")
    publish = table.publishing.publish
    if publish is not None and publish.transaction_topic is not None:
        if publish.group is None:
            message = "`publish.transaction_topic` is for tables published together, and the table has no group"
            yield Mistake("publish", message, "write `group: NAME`, or remove it")
        elif table.changes.envelope_kind != "debezium":
            message = "`publish.transaction_topic` needs Debezium's envelope, and the table has none"
            yield Mistake("publish", message, "write `envelope: debezium`, or remove it")
    if table.publishing.publish is None and table.publishing.copies_rows:
        message = "`delete_mode: copy_on_write` is for what is published, and the table has no `publish`"
        remedy = "write `branch: ingest` and `publish: {every: 10m}`, or remove `delete_mode`"
        yield Mistake("delete_mode", message, remedy)


def _named(table: TableSpec) -> Iterator[tuple[str, int, str, str]]:
    """Each setting that names a column, its line (0 for the key's), the column, and how it is written."""
    terms = [("partition_by", term) for term in table.layout.partition_by or ()]
    terms += [("sort_by", sort.term) for sort in table.layout.sort_by or ()]
    yield from ((key, term.line, term.column, term.text) for key, term in terms)
    for key, names in (("key_columns", table.changes.key_columns), ("order_by", (table.changes.order_by,))):
        yield from ((key, 0, name, name) for name in names if name)


def _field_of(name: str, table: TableSpec) -> Path | None:
    """The path of the field that feeds a column; None where it comes from something else than the record's value."""
    first, *rest = name.split(".")
    column = table.declared_column(first)
    if column is None:
        return (first, *rest)
    return None if column.is_own else (*(column.field or (first,)), *rest)


def _check_taken(key: str, path: Path, include: Sequence[Path], exclude: Sequence[Path]) -> Iterator[Mistake]:
    """Without a value every record would be a bad one."""
    name = ".".join(path)
    if any(path[: len(out)] == out for out in exclude):
        yield Mistake(key, f"`exclude` leaves out `{name}`, which `{key}` needs", "take it out of one of them")
    elif include and not any(fold_path(path)[: len(taken)] == fold_path(taken)[: len(path)] for taken in include):
        yield Mistake(key, f"`include` does not take `{name}`, which `{key}` needs", "add it to `include`")


def _check_stages(table: TableSpec) -> Iterator[Mistake]:
    for name, group in table.stage_settings.items():
        if name in STAGE_FIELDS and group.is_used:
            yield from try_check(name, TABLE_STAGES.get, name)
        yield from group.check(table)


OF_TABLES = Rules(
    _complete_table,
    (
        _check_sources, columns.check_numbers, columns.check_columns, columns.check_shaping, changes.check_changes,
        changes.check_atomic, changes.check_readers, _check_layout, _check_named_columns, _check_stages, steps.check_added,
        steps.check_new_names, steps.check_different, _check_publishing, state.check_kind, state.check_merge,
        state.check_dedupe, grouped_tables.check_grouping, steps.check_waits, changes.check_history,
    ),
    _STRANGE_IN_TABLE.get, STAGES.added,
)  # fmt: skip
RULES: Mapping[type[Declared], Rules] = {
    **RULES_OF_SECTIONS,
    TableSpec: OF_TABLES._replace(checks=(_check_name, *OF_TABLES.checks)),
    settings.ValueSpec: Rules(checks=(columns.check_value,)),
    settings.ColumnSpec: Rules(checks=(columns.check_column,), strange=columns.STRANGE_IN_COLUMN.get),
    publishing.TagSpec: Rules(checks=(publishing.check_tag,)),
    settings.EnvelopeSpec: Rules(checks=(changes.check_envelope_keys,)),
    settings.AtomicSpec: Rules(checks=(changes.check_transaction_topic,)),
    settings.LookupSpec: Rules(checks=(steps.check_lookup, steps.check_lookup_names)),
    **{model: rules for stage in STAGE_SETTINGS.values() for model, rules in stage.rules.items()},
}
