"""`protect`: the rules that a table has for fields of its records, and the key that hashes and encrypts with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from frazil.errors import SpecError
from frazil.name_case import fold_case
from frazil.spec.models import TableSpec
from frazil.spec.settings import METADATA_COLUMNS, PROTECT_ACTIONS, ProtectRule
from frazil.spec.syntax.forms import parse_path
from frazil.spec.syntax.problems import LABEL, Mistake, Mistakes
from frazil.spec.table_forms import KEY_REMEDY
from frazil.spec.topics import parse_selector

_OPTIONS = {"label": ("hash", "tokenize"), "keep": ("mask",), "length": ("truncate",), "value": ("constant",)}
"""The actions that each setting of a rule is for."""


def complete_rule(rule: ProtectRule) -> ProtectRule:
    """Returns the rule with the path of its field, names joined by dots, or with a regular expression between slashes; and
    with the names, where one of them may have a dot.

    Raises: Mistakes for another selector.
    """
    written, names = rule.selector, rule.names
    try:
        if written.startswith("/"):
            parse_selector(written)
        elif written.startswith("["):
            names = parse_path(written)
    except SpecError as error:
        raise Mistakes([Mistake((), error.message, error.remedy)], are_rules=True) from None
    selector = ".".join(names) if names else written
    if names and selector.startswith("/"):
        message = f"`{LABEL}` begins with a slash, as only a regular expression may"
        remedy = "write a regular expression for the name, between slashes"
        raise Mistakes([Mistake((), message, remedy)], are_rules=True)
    return rule.model_copy(update={"selector": selector, "names": names})


def check_rule(rule: ProtectRule) -> Iterator[Mistake]:
    """Yields a rule without an action, and settings that its action has no use for."""
    if "action" not in rule.model_fields_set:
        yield Mistake((), f"`{LABEL}` has no action", f"write `action: {PROTECT_ACTIONS[2]}`, or another one")
        return
    for name, actions in _OPTIONS.items():
        if name in rule.model_fields_set and rule.action not in actions:
            yield Mistake(name, f"`{LABEL}` is for {' and '.join(actions)}", "remove it")


def check_protect(table: TableSpec) -> Iterator[Mistake]:
    """Yields rules without a key, and rules for columns that a table cannot be without."""
    if table.protection.protect and table.protection.protect_key is None:
        message = (
            f"table `{table.name}` has `protect` and no `protect_key`, which hashes values and encrypts dead letters"
        )
        yield Mistake("protect", message, KEY_REMEDY)
    yield from _check_metadata(table)
    keys = table.changes.key_columns or (("_key",) if table.changes.mode == "upsert" else ())
    for name in keys:
        rule = rule_of(table.protection.protect, name)
        if rule is not None and rule.action != "hash":
            message = f"`protect` has `{rule.action}` for `{name}`, which identifies rows of `{table.name}`"
            yield Mistake("protect", message, "write `hash`: different keys stay different")
    if table.changes.order_by and rule_of(table.protection.protect, table.changes.order_by) is not None:
        message = f"`protect` has a rule for `{table.changes.order_by}`, which orders the changes of `{table.name}`"
        yield Mistake("protect", message, "take it out of `protect`, or order by another column")
    terms = [*(table.layout.partition_by or ()), *(sort.term for sort in table.layout.sort_by or ())]
    for column in dict.fromkeys(term.column for term in terms):
        rule = rule_of(table.protection.protect, column)
        if rule is not None and rule.action == "drop":
            yield Mistake(
                "protect", f"`protect` drops `{column}`, which the layout needs", "take it out of one of them"
            )


def _check_metadata(table: TableSpec) -> Iterator[Mistake]:
    """Yields rules for the columns that keys and headers have been given: rules name both as the records' own."""
    for field, column in table.metadata.items():
        usual = METADATA_COLUMNS[field]
        is_decoded = field == "key" and table.source.key.format != "raw"
        if field not in ("key", "headers") or column == usual or is_decoded:
            continue
        for rule in table.protection.protect:
            names = (usual, f"{usual}.")
            if _is_about(rule.selector, (column, f"{column}.")) and not _is_about(rule.selector, names):
                message = f"`protect` has `{rule.selector}` for `{column}`, the column of the records' `{field}`"
                yield Mistake("protect", message, f"write `_{field}` in its place")


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
