"""`expect`: the conditions that the rows of a table are expected to meet."""

from __future__ import annotations

import re

from frazil.spec.document import Entry, Scalar, Section
from frazil.spec.keys import Fields, describe, keys_of, read_text
from frazil.spec.models import TableSpec
from frazil.spec.problems import Problems
from frazil.spec.settings import ExpectationSpec

OTHER_DROPS = (
    "where", "filter", "explode", "lookup", "tombstone", "heartbeat", "transaction", "schema_change", "message", "delete",
    "truncate",
)  # fmt: skip
"""What records are counted as that other things drop: no expectation has such a name."""
_KINDS = ("that", "min_rows", "max_age")
_NAME = re.compile("[A-Za-z][A-Za-z0-9_]{0,99}")


def read_expect(fields: Fields, key: str) -> tuple[ExpectationSpec, ...]:
    """The expectations under `expect`, in the order of the file."""
    node = fields.node(key)
    if not isinstance(node, Section):
        remedy = 'write `expect: {amount_not_negative: "amount >= 0"}`'
        fields.refuse_key(key, f"`expect` is {describe(node)} where a mapping is expected", remedy)
        return ()
    found = (_read_expectation(entry, fields.problems) for entry in node.entries)
    return tuple(one for one in found if one is not None)


def _read_expectation(entry: Entry, problems: Problems) -> ExpectationSpec | None:
    name, label = entry.key, f"expect.{entry.key}"
    if name in OTHER_DROPS:
        message = f"an expectation cannot have the name `{name}`, which other dropped records are counted as"
        problems.add(entry.line, message, "name it after its condition, such as `amount_not_negative`")
    elif _NAME.fullmatch(name) is None:
        message = f"`{name}` is no name of an expectation"
        problems.add(entry.line, message, "write a to z, digits and `_`, such as `amount_not_negative`")
    if isinstance(entry.value, Scalar):
        that = read_text(entry.value, label, problems)
        return None if that is None else ExpectationSpec(name=name, that=that)
    fields = Fields(entry.value, keys_of(ExpectationSpec), label, problems)
    kinds = [key for key in _KINDS if fields.get(key) is not None]
    if isinstance(entry.value, Section) and len(kinds) != 1:
        what = f"has `{'` and `'.join(kinds)}`" if kinds else "expects nothing"
        remedy = "keep one of them, and give the other a name of its own" if kinds else 'write `that: "amount >= 0"`'
        problems.add(entry.line, f"`{label}` {what}", remedy)
        return None
    found = ExpectationSpec(name=name, **fields.values())
    _check_batch(fields, found, label)
    return found


def _check_batch(fields: Fields, found: ExpectationSpec, label: str) -> None:
    """Notes settings that do not go together."""
    if fields.get("at_most") is not None and not found.is_of_rows:
        fields.refuse_key("at_most", f"`{label}.at_most` is for `that`", "remove it")
    if found.is_of_batch and found.action in ("drop", "dead_letter"):
        message = f"`{label}` is of a whole commit, and `else` is {found.action}"
        fields.refuse_key("else", message, "write `else: warn` or `else: stop`")
    if found.max_age_s is not None and fields.get("else") is not None:
        fields.refuse_key("else", f"`{label}` only warns, in `status`", "remove it")


def check_expect(fields: Fields, table: TableSpec) -> None:
    """Notes expectations that make dead letters of a table without them."""
    for one in table.expect:
        if one.action == "dead_letter" and table.on_bad_record != "dead_letter":
            message = f"`expect.{one.name}` makes dead letters, and `on_bad_record` is {table.on_bad_record}"
            remedy = "write `on_bad_record: dead_letter`, or `else: warn`, `drop` or `stop`"
            fields.refuse_key("expect", message, remedy)
