"""`protect`: the rules that a table has for fields of its records, and the key that hashes and encrypts with."""

from __future__ import annotations

import re

from frazil.errors import SpecError
from frazil.name_case import fold_case
from frazil.spec.models import TableSpec
from frazil.spec.settings import METADATA_COLUMNS, PROTECT_ACTIONS, ProtectRule
from frazil.spec.syntax.document import Entry, Scalar, Section
from frazil.spec.syntax.forms import parse_path
from frazil.spec.syntax.keys import Fields, describe, keys_of
from frazil.spec.syntax.problems import Problems, advice
from frazil.spec.syntax.secrets import Secrets, has_reference
from frazil.spec.topics import parse_selector

MIN_KEY_BYTES = 32
_KEY_REMEDY = "make one, such as by `openssl rand -hex 32`, keep it in a file, and write `protect_key: ${file:PATH}`"
_OPTIONS = {"label": ("hash", "tokenize"), "keep": ("mask",), "length": ("truncate",), "value": ("constant",)}
"""The actions that each setting of a rule is for."""


def read_protect(fields: Fields, key: str) -> tuple[ProtectRule, ...]:
    """The rules under `protect`, in the order of the file."""
    node = fields.node(key)
    if not isinstance(node, Section):
        fields.refuse_key(
            key, f"`protect` is {describe(node)} where a mapping is expected", "write `protect: {email: hash}`"
        )
        return ()
    rules = (_read_rule(entry, fields.problems) for entry in node.entries)
    return tuple(rule for rule in rules if rule is not None)


def _read_rule(entry: Entry, problems: Problems) -> ProtectRule | None:
    (selector, names), label = _read_selector(entry, problems), f"protect.{entry.key}"
    if isinstance(entry.value, Section):
        fields = Fields(entry.value, keys_of(ProtectRule), label, problems)
        if fields.get("action") is None:
            problems.add(
                entry.line, f"`{label}` has no action", f"write `action: {PROTECT_ACTIONS[2]}`, or another one"
            )
            return None
        rule = ProtectRule(selector=selector, names=names, **fields.values())
        for name, actions in _OPTIONS.items():
            if fields.get(name) is not None and rule.action not in actions:
                fields.refuse_key(name, f"`{label}.{name}` is for {' and '.join(actions)}", "remove it")
        return rule
    word = entry.value.text if isinstance(entry.value, Scalar) else describe(entry.value)
    if word not in PROTECT_ACTIONS:
        problems.add(entry.value.line, f"`{label}` cannot be `{word}`", advice(word, PROTECT_ACTIONS))
        return None
    return ProtectRule(selector=selector, names=names, action=word)


def _read_selector(entry: Entry, problems: Problems) -> tuple[str, tuple[str, ...]]:
    """Returns the path of the rule's field, its names joined by dots, or a regular expression between slashes; and the
    names, where one of them may have a dot.
    """
    selector = entry.key
    if selector.startswith("/"):
        problems.attempt(entry.line, None, parse_selector, selector)
    elif selector.startswith("["):
        names = problems.attempt(entry.line, (), parse_path, selector)
        selector = ".".join(names)
        if selector.startswith("/"):
            message = f"`protect.{entry.key}` begins with a slash, as only a regular expression may"
            problems.add(entry.line, message, "write a regular expression for the name, between slashes")
        return selector, names
    return selector, ()


def read_protect_key(fields: Fields, key: str, secrets: Secrets) -> str | None:
    """The text of the key, which the file only refers to."""
    text = fields.text(key)
    if text is None:
        return None
    if not has_reference(text):
        fields.refuse_value(key, "`protect_key` is written into the file", _KEY_REMEDY)
        return None
    return fields.problems.attempt(fields.node(key).line, None, _resolved, secrets, text)


def _resolved(secrets: Secrets, text: str) -> str:
    found = secrets.resolve(text, "protect_key")
    if len(found.encode()) < MIN_KEY_BYTES:
        raise SpecError(f"`protect_key` is shorter than {MIN_KEY_BYTES} bytes", remedy=_KEY_REMEDY)
    return found


def check_protect(fields: Fields, table: TableSpec) -> None:
    """Notes rules without a key, and rules for columns that a table cannot be without."""
    if table.protect and table.protect_key is None and fields.get("protect_key") is None:
        message = (
            f"table `{table.name}` has `protect` and no `protect_key`, which hashes values and encrypts dead letters"
        )
        fields.refuse_key("protect", message, _KEY_REMEDY)
    _check_metadata(fields, table)
    keys = table.key_columns or (("_key",) if table.mode == "upsert" else ())
    for name in keys:
        rule = rule_of(table.protect, name)
        if rule is not None and rule.action != "hash":
            message = f"`protect` has `{rule.action}` for `{name}`, which identifies rows of `{table.name}`"
            fields.refuse_key("protect", message, "write `hash`: different keys stay different")
    if table.order_by and rule_of(table.protect, table.order_by) is not None:
        message = f"`protect` has a rule for `{table.order_by}`, which orders the changes of `{table.name}`"
        fields.refuse_key("protect", message, "take it out of `protect`, or order by another column")
    terms = [*(table.partition_by or ()), *(sort.term for sort in table.sort_by or ())]
    for column in dict.fromkeys(term.column for term in terms):
        rule = rule_of(table.protect, column)
        if rule is not None and rule.action == "drop":
            fields.refuse_key(
                "protect", f"`protect` drops `{column}`, which the layout needs", "take it out of one of them"
            )


def _check_metadata(fields: Fields, table: TableSpec) -> None:
    """Notes rules for the columns that keys and headers have been given: rules name both as the records' own."""
    for field, column in table.metadata.items():
        usual = METADATA_COLUMNS[field]
        is_decoded = field == "key" and table.key.format != "raw"
        if field not in ("key", "headers") or column == usual or is_decoded:
            continue
        for rule in table.protect:
            names = (usual, f"{usual}.")
            if _is_about(rule.selector, (column, f"{column}.")) and not _is_about(rule.selector, names):
                message = f"`protect` has `{rule.selector}` for `{column}`, the column of the records' `{field}`"
                fields.refuse_key("protect", message, f"write `_{field}` in its place")


def _is_about(selector: str, names: tuple[str, str]) -> bool:
    """Whether a rule finds a column, or a part of it. names: the column, and the beginning of its parts."""
    return _finds(selector, names[0]) or (
        not selector.startswith("/") and selector.lower().startswith(names[1].lower())
    )


def rule_of(rules: tuple[ProtectRule, ...], name: str) -> ProtectRule | None:
    """Returns the first rule that finds the field of this name, in any case, or else one for what the field is in; None
    without one.
    """
    parts = name.split(".")
    paths = [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
    return next((rule for path in paths for rule in rules if _finds(rule.selector, path)), None)


def _finds(selector: str, name: str) -> bool:
    if selector.startswith("/"):
        return re.search(selector[1:-1], name, re.IGNORECASE) is not None
    return fold_case(selector) == fold_case(name)
