"""`lookup`: reference tables that a table's records are joined with, by the name of the column that each fills."""

from __future__ import annotations

from pathlib import PurePosixPath

from frazil.errors import SpecError
from frazil.name_length import is_long, long_name_reason
from frazil.spec.document import Entry, Section
from frazil.spec.keys import Fields, describe, keys_of
from frazil.spec.problems import Problems
from frazil.spec.settings import REFERENCE_FILES, LookupSpec
from frazil.spec.topics import table_name
from frazil.store.addresses import address_of
from frazil.types import RESERVED_COLUMNS

_EXAMPLE = "`lookup: {country: {table: ref.countries, on: country_code = code, take: [name]}}`"


def read_lookups(fields: Fields, key: str) -> tuple[LookupSpec, ...]:
    """The lookups under `lookup`, in the order of the file."""
    node = fields.node(key)
    if not isinstance(node, Section):
        fields.refuse_key(key, f"`{key}` is {describe(node)} where a mapping is expected", f"write {_EXAMPLE}")
        return ()
    found = (_read_lookup(entry, f"{key}.{entry.key}", fields.problems) for entry in node.entries)
    return tuple(one for one in found if one is not None)


def _read_lookup(entry: Entry, label: str, problems: Problems) -> LookupSpec | None:
    fields = Fields(entry.value, keys_of(LookupSpec), label, problems)
    if not isinstance(entry.value, Section):
        return None
    if (fields.get("table") is None) == (fields.get("file") is None):
        problems.add(entry.line, f"`{label}` needs a `table` or a `file`", "write one of the two")
    for needed in ("on", "take"):
        if fields.get(needed) is None:
            problems.add(entry.line, f"`{label}` has no `{needed}`", f"write it, such as {_EXAMPLE}")
    found = LookupSpec(name=entry.key, **fields.values())
    _check_names(found, entry.line, label, problems)
    for name, written, check in (("table", found.table, table_name), ("file", found.file, _check_file)):
        if written:
            problems.attempt(fields.node(name).line, None, check, written)
    return found


def _check_names(lookup: LookupSpec, line: int, label: str, problems: Problems) -> None:
    """Notes a column that no table can have, and members of it whose names differ in case alone: one would be lost."""
    if lookup.name.lower() in RESERVED_COLUMNS:
        message = f"`{label}` makes a column with the name of one of Iceberg's metadata columns"
        problems.add(line, message, "give the lookup another name")
    if is_long(lookup.name):
        problems.add(line, f"`lookup`: {long_name_reason(lookup.name)}", "give the lookup a shorter name")
    lowered = [name.lower() for name in lookup.take]
    twins = [name for name in lookup.take if lowered.count(name.lower()) > 1]
    if twins:
        message = f"`{label}.take` has `{twins[0]}` and `{twins[1]}`, which are one column"
        problems.add(line, message, "take one of them")


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
