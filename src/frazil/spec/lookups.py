"""`lookup`: reference tables that a table's records are joined with, by the name of the column that each fills."""

from __future__ import annotations

from pathlib import PurePosixPath

from frazil.errors import SpecError
from frazil.spec.document import Entry, Section
from frazil.spec.keys import Fields, describe, keys_of
from frazil.spec.problems import Problems
from frazil.spec.settings import REFERENCE_FILES, LookupSpec
from frazil.spec.topics import table_name
from frazil.store.addresses import address_of

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
    for name, written, check in (("table", found.table, table_name), ("file", found.file, _check_file)):
        if written:
            problems.attempt(fields.node(name).line, None, check, written)
    return found


def _check_file(location: str) -> str:
    if PurePosixPath(location).suffix.lower() not in REFERENCE_FILES:
        raise SpecError(
            f"`{location}` is neither a Parquet nor a CSV file", remedy="name a file that ends with .parquet or .csv"
        )
    address = address_of(location)
    if address.kind == "local" and not address.key.startswith("/"):
        raise SpecError(
            f"`{location}` is not a whole path", remedy="begin the path with `/`, or with the scheme of a store"
        )
    return location
