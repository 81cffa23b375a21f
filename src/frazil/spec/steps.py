"""The keys of what a table does to its records before its rows are written.

They are the single steps `rename`, `drop_fields`, `keep_fields`, `cast` and `add_fields`; `udf`, the Python functions
that its query may call; `lookup`, reference tables that its records are joined with, by the name of the column that each
fills. What the steps do is in `process.steps`. A record that waits for its row of a reference table is held as a dead
letter, and is replayed: it comes out of its order, which not every table allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from frazil.column_names import is_long, long_name_reason
from frazil.errors import SpecError
from frazil.plugins.driver import TABLE_KEYS
from frazil.plugins.formats import ENVELOPES
from frazil.spec.grouped_tables import groups_of
from frazil.spec.models import TableSpec
from frazil.spec.settings import HISTORY, METADATA_COLUMNS, REFERENCE_FILES, LookupSpec, MetadataField
from frazil.spec.state import retracts
from frazil.spec.syntax.problems import LABEL, Mistake, advice, try_check
from frazil.spec.syntax.units import duration_text
from frazil.spec.table_forms import LOOKUP_EXAMPLE
from frazil.spec.topics import table_name
from frazil.store.addresses import address_of
from frazil.types import RESERVED_COLUMNS

OF_RECORDS: tuple[MetadataField, ...] = ("key", "headers", "topic", "partition", "offset", "timestamp")
"""The metadata of every record that a query can name, each as its column of METADATA_COLUMNS."""
OF_CHANGES: Mapping[str, tuple[MetadataField, str]] = {
    "op": ("op", "_op"),
    "ts_ms": ("connector_ts", "unix_millis(_connector_ts)"),
    "source.ts_ms": ("source_ts", "unix_millis(_source_ts)"),
    "source.db": ("source_database", "_source_database"),
    "source.schema": ("source_schema", "_source_schema"),
    "source.table": ("source_table", "_source_table"),
    "source.collection": ("source_table", "_source_table"),
    "transaction.id": ("transaction_id", "_transaction_id"),
    "transaction.total_order": ("total_order", "_total_order"),
    "transaction.data_collection_order": ("collection_order", "_collection_order"),
}
"""The metadata of changes under the names of Debezium's envelope, each with its SQL (Debezium, New Record State Extraction,
`add.fields`).
"""


def metadata_names(table: TableSpec) -> dict[str, str]:
    """The SQL of the metadata that the table's query and `add_fields` can name: that of every record, and of changes what
    the table's envelope has.
    """
    fields: set[str] = {*OF_RECORDS}
    of_changes: dict[str, str] = {}
    if table.changes.envelope is not None:
        fields |= {"op", "image", *ENVELOPES.get(table.changes.envelope.kind).all_metadata}
        of_changes = {name: sql for name, (field, sql) in OF_CHANGES.items() if field in fields}
    return {column: column for field, column in METADATA_COLUMNS.items() if field in fields} | of_changes


def check_new_names(table: TableSpec) -> Iterator[Mistake]:
    """Yields names of columns from `rename` and `add_fields` that no table can have."""
    named = metadata_names(table)
    new_names = [("rename", name) for path, name in table.query.rename if len(path) == 1]
    new_names += [
        ("add_fields", name) for name, value in table.query.add_fields if not (name == value and name in named)
    ]
    for key, name in new_names:
        if not name:
            yield Mistake(key, f"`{key}` makes a column without a name", "give it a name")
        if name.lower() in RESERVED_COLUMNS:
            message = f"`{key}` makes a column `{name}`, which is the name of one of Iceberg's metadata columns"
            yield Mistake(key, message, "choose another name")
    for key, name in [*new_names, *(("rename", name) for path, name in table.query.rename if len(path) > 1)]:
        if is_long(name):
            yield Mistake(key, f"`{key}`: {long_name_reason(name)}", "give it a shorter name")


def check_different(table: TableSpec) -> Iterator[Mistake]:
    """Yields fields and columns that are named twice, in letter case or not, as no reader distinguishes them. Those of
    `columns` and `metadata` are compared with the table's when it is made.
    """
    spelt = ".".join
    renamed = [spelt((*path[:-1], name)) for path, name in table.query.rename]
    named = {
        "key_columns": list(table.changes.key_columns),
        "rename": [spelt(path) for path, _ in table.query.rename],
        "cast": [spelt(path) for path, _ in table.query.cast],
        "add_fields": [name for name, _ in table.query.add_fields],
    }
    for key, names in [*named.items(), ("rename", renamed)]:
        first: dict[str, str] = {}
        for name in names:
            if name.lower() in first:
                message = f"`{key}` has `{first[name.lower()]}` and `{name}`, which most readers take for one column"
                yield Mistake(key, message, "keep one of them")
            first.setdefault(name.lower(), name)


def check_added(table: TableSpec) -> Iterator[Mistake]:
    """Yields metadata in `add_fields` that the table does not have: it would be a constant."""
    names, has_envelope = metadata_names(table), table.changes.envelope is not None
    for _, value in table.query.add_fields:
        text = str(value)
        is_path = text in OF_CHANGES and (has_envelope or "." in text)
        is_path |= has_envelope and text.startswith(("source.", "transaction."))
        if text in names or text in HISTORY or not (is_path or text in METADATA_COLUMNS.values()):
            continue
        if has_envelope:
            message = f"`add_fields` has `{text}`, which the table's envelope does not have"
            yield Mistake("add_fields", message, advice(text, names))
        else:
            message = f"`add_fields` has `{text}`, which needs an envelope that the table does not have"
            yield Mistake("add_fields", message, "write `envelope`, or take it out of `add_fields`")


def check_lookup(lookup: LookupSpec) -> Iterator[Mistake]:
    """Yields what a lookup lacks, and a source that cannot be joined."""
    yield from try_check((), TABLE_KEYS.get, "lookup")
    written = lookup.model_fields_set
    if ("table" in written) == ("file" in written):
        yield Mistake((), f"`{LABEL}` needs a `table` or a `file`", "write one of the two")
    for needed in ("on", "take"):
        if needed not in written:
            yield Mistake((), f"`{LABEL}` has no `{needed}`", f"write it, such as {LOOKUP_EXAMPLE}")
    if "take" in written and not lookup.take:
        yield Mistake("take", f"`{LABEL}` is empty", "name the columns to have, such as `take: [name]`")
    for name, source, check in (("table", lookup.table, table_name), ("file", lookup.file, _check_file)):
        if source:
            yield from try_check(name, check, source)


def check_lookup_names(lookup: LookupSpec) -> Iterator[Mistake]:
    """Yields a column that no table can have, and members of it whose names differ in case alone: one would be lost."""
    if not lookup.name:
        yield Mistake((), "`lookup` makes a column without a name", "give the lookup a name")
    if lookup.name.lower() in RESERVED_COLUMNS:
        message = f"`{LABEL}` makes a column with the name of one of Iceberg's metadata columns"
        yield Mistake((), message, "give the lookup another name")
    if is_long(lookup.name):
        yield Mistake((), f"`lookup`: {long_name_reason(lookup.name)}", "give the lookup a shorter name")
    lowered = [name.lower() for name in lookup.take]
    twins = [name for name in lookup.take if lowered.count(name.lower()) > 1]
    if twins:
        message = f"`{LABEL}.take` has `{twins[0]}` and `{twins[1]}`, which are one column"
        yield Mistake((), message, "take one of them")


def _check_file(location: str) -> str:
    if PurePosixPath(location).suffix.lower() not in REFERENCE_FILES:
        raise SpecError(
            f"`{location}` is neither a Parquet nor a CSV file", remedy="name a file that ends with .parquet or .csv"
        )
    address = address_of(location)
    if address.kind == "hdfs":
        raise SpecError(
            f"`{location}` is in HDFS, whose settings tasks have for tables alone",
            remedy="join a table in its place, or keep the file in an object store",
        )
    if address.kind == "local" and not address.key.startswith("/"):
        raise SpecError(
            f"`{location}` is not a whole path", remedy="begin the path with `/`, or with the scheme of a store"
        )
    return location


def without_waits(table: TableSpec, names: Collection[str]) -> TableSpec:
    """Returns the table as it would be without `wait` of the lookups of these names: `on_miss` decides at once."""
    lookups = (
        lookup.model_copy(update={"wait_s": None}) if lookup.name in names else lookup for lookup in table.query.lookup
    )
    return table.model_copy(update={"query": table.query.model_copy(update={"lookup": tuple(lookups)})})


def describe_waits(table: TableSpec) -> Iterator[str]:
    """Yields how long records wait for reference tables, a line for each lookup."""
    for lookup in table.query.waits:
        assert lookup.wait_s is not None
        ends = {"null": "have null", "drop": "are dropped", "dead_letter": "are dead letters"}[lookup.on_miss]
        yield f"records without a row in {lookup.name} wait {duration_text(lookup.wait_s)} for it, then {ends}"


def check_waits(table: TableSpec) -> Iterator[Mistake]:
    """Yields settings with which a record cannot be held, or cannot be added after later ones."""
    for lookup in table.query.waits:
        for message, remedy in _obstacles(table):
            yield Mistake(("lookup", lookup.name, "wait"), f"`lookup.{lookup.name}.wait` {message}", remedy)
            break


def _obstacles(table: TableSpec) -> Iterator[tuple[str, str]]:
    bad, changes, grouping = table.bad_records, table.changes, groups_of(table)
    if bad.on_bad_record != "dead_letter":
        yield (
            f"holds records in the dead-letter table, and the table has `on_bad_record: {bad.on_bad_record}`",
            "write `on_bad_record: dead_letter`, or remove `wait`",
        )
    if bad.dead_letters.topic is not None:
        yield (
            "holds records in the dead-letter table, all of which `dead_letters.topic` sends to a topic",
            "remove `wait`, or `dead_letters.topic`",
        )
    if changes.dedupe is not None:
        yield (
            "adds records later, and `dedupe` compares records when they are read",
            "remove one of the two, or look up in a table of its own that reads the topic without `dedupe`",
        )
    if grouping is not None and grouping.window is not None:
        yield (
            "would add records to windows that are complete",
            "remove `wait`, or group by the window in a query over the table of single records",
        )
    if retracts(table):
        yield (
            "would subtract rows before they are added: an update or a delete may come before the wait is over",
            "remove `wait`, or merge rows that are not looked up",
        )
    if changes.atomic is not None:
        yield (
            "would divide transactions of the source, which `atomic` shows whole",
            "remove `wait`, or `atomic`",
        )
