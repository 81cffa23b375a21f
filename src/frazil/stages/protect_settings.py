"""The keys of `protect`: the rules that a table has for fields of its records, and the key that hashes and encrypts with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, get_args

from frazil.column_names import fold_case
from frazil.errors import SpecError
from frazil.secrets import has_reference
from frazil.spec.settings import METADATA_COLUMNS
from frazil.spec.syntax import forms
from frazil.spec.syntax.document import Node
from frazil.spec.syntax.keys import Declared, Form, Key, SecretWord, not_a_key, section
from frazil.spec.syntax.problems import LABEL, Mistake, Mistakes
from frazil.spec.syntax.reading import Reading, Rules
from frazil.spec.topics import parse_selector
from frazil.stages.settings import StageSettings

if TYPE_CHECKING:
    from frazil.spec.models import TableSpec

MIN_KEY_BYTES = 32
KEY_REMEDY = "make one, such as by `openssl rand -hex 32`, keep it in a file, and write `protect_key: ${file:PATH}`"
ProtectAction = Literal["drop", "null", "hash", "mask", "tokenize", "truncate", "constant"]
PROTECT_ACTIONS: tuple[str, ...] = get_args(ProtectAction)
_OPTIONS = {"label": ("hash", "tokenize"), "keep": ("mask",), "length": ("truncate",), "value": ("constant",)}
"""The actions that each setting of a rule is for."""


class ProtectRule(Declared, json_schema_extra={"required": ["action"]}):
    """What happens to the fields that a rule of `protect` finds."""

    #: The path of a field, or a regular expression between slashes.
    selector: Annotated[str, not_a_key("name")]
    #: The names of the path, where one of them has a dot.
    names: Annotated[tuple[str, ...], not_a_key("names")] = ()
    action: Annotated[ProtectAction, Key(default="hash")] = "hash"
    """The action on the field: drop, null, hash, mask, tokenize, truncate or constant."""
    label: Annotated[str, forms.TEXT] = ""
    """For `hash` and `tokenize`: equal values of fields with the same label get equal results; the field's path unless
    written."""
    keep: Annotated[int, forms.count(4)] = 4
    """For `mask`: how many characters at the end stay, if the text has at least twice as many."""
    length: Annotated[int, forms.count(4)] = 4
    """For `truncate`: how many characters at the beginning stay."""
    value: Annotated[str, forms.TEXT] = ""
    """For `constant`: the text."""


def _read_key(node: Node, reading: Reading) -> str:
    """Returns the text of the key, which the file only refers to."""
    text = forms.read_text(node)
    if not has_reference(text):
        raise SpecError("`protect_key` is written into the file", remedy=KEY_REMEDY)
    key = reading.secrets.resolve(text, "protect_key")
    if len(key.encode()) < MIN_KEY_BYTES:
        raise SpecError(f"`protect_key` is shorter than {MIN_KEY_BYTES} bytes", remedy=KEY_REMEDY)
    return key


_RULES = forms.by_name(
    {"anyOf": [{"enum": list(PROTECT_ACTIONS)}, section("protect_rule").schema]},
    "`protect: {email: hash}`",
    short="action",
    as_text=True,
)


def _complete_rule(rule: ProtectRule) -> ProtectRule:
    """Returns the rule with the path of its field, names joined by dots, or with a regular expression between slashes; and
    with the names, where one of them may have a dot.

    Raises: Mistakes for another selector.
    """
    written, names = rule.selector, rule.names
    try:
        if written.startswith("/"):
            parse_selector(written)
        elif written.startswith("["):
            names = forms.parse_path(written)
    except SpecError as error:
        raise Mistakes([Mistake((), error.message, error.remedy)], are_rules=True) from None
    selector = ".".join(names) if names else written
    if names and selector.startswith("/"):
        message = f"`{LABEL}` begins with a slash, as only a regular expression may"
        remedy = "write a regular expression for the name, between slashes"
        raise Mistakes([Mistake((), message, remedy)], are_rules=True)
    return rule.model_copy(update={"selector": selector, "names": names})


def _check_rule(rule: ProtectRule) -> Iterator[Mistake]:
    """Yields a rule without an action, and settings that its action has no use for."""
    if "action" not in rule.model_fields_set:
        yield Mistake((), f"`{LABEL}` has no action", f"write `action: {PROTECT_ACTIONS[2]}`, or another one")
        return
    for name, actions in _OPTIONS.items():
        if name in rule.model_fields_set and rule.action not in actions:
            yield Mistake(name, f"`{LABEL}` is for {' and '.join(actions)}", "remove it")


class ProtectSpec(StageSettings):
    """What happens to personal data."""

    sections: ClassVar[Mapping[str, type[Declared]]] = {"protect_rule": ProtectRule}
    rules: ClassVar[Mapping[type[Declared], Rules]] = {ProtectRule: Rules(_complete_rule, (_check_rule,))}

    protect: Annotated[tuple[ProtectRule, ...], _RULES] = ()
    """What happens to fields with personal data before anything is written: path, or /regular expression/, to an action.
    The first rule that finds a field decides."""
    protect_key: Annotated[SecretWord, Form(forms.TEXT.schema, forms.TEXT.write, _read_key)] = None
    """The key of `protect`, at least 32 bytes, as ${file:PATH} or ${env:NAME}."""

    @property
    def is_used(self) -> bool:
        """See StageSettings."""
        return bool(self.protect) or self.protect_key is not None

    @property
    def makes_rows(self) -> bool:
        """See StageSettings."""
        return bool(self.protect)

    def of_records(self) -> Self:
        """See StageSettings."""
        return self.model_copy(update={"protect": ()})

    def check(self, table: TableSpec) -> Iterator[Mistake]:
        """Yields rules without a key, and rules for columns that a table cannot be without."""
        if self.protect and self.protect_key is None:
            without = "`protect` and no `protect_key`, which hashes values and encrypts dead letters"
            yield Mistake("protect", f"table `{table.name}` has {without}", KEY_REMEDY)
        yield from self._check_names()
        yield from self._check_metadata(table)
        keys = table.changes.key_columns or (("_key",) if table.changes.mode == "upsert" else ())
        for name in keys:
            rule = rule_of(self.protect, name)
            if rule is not None and rule.action != "hash":
                message = f"`protect` has `{rule.action}` for `{name}`, which identifies rows of `{table.name}`"
                yield Mistake("protect", message, "write `hash`: different keys stay different")
        if table.changes.order_by and rule_of(self.protect, table.changes.order_by) is not None:
            message = f"`protect` has a rule for `{table.changes.order_by}`, which orders the changes of `{table.name}`"
            yield Mistake("protect", message, "take it out of `protect`, or order by another column")
        terms = [*(table.layout.partition_by or ()), *(sort.term for sort in table.layout.sort_by or ())]
        for column in dict.fromkeys(term.column for term in terms):
            rule = rule_of(self.protect, column)
            if rule is not None and rule.action == "drop":
                yield Mistake(
                    "protect", f"`protect` drops `{column}`, which the layout needs", "take it out of one of them"
                )

    def check_share(self, names: Sequence[str]) -> Iterator[Mistake]:
        """See StageSettings."""
        if any(rule_of(self.protect, name) for name in names):
            message = "tables would be named after values of a field that `protect` protects"
            yield Mistake("to", message, "route by another field, or take this one out of `protect`")

    def _check_names(self) -> Iterator[Mistake]:
        """Yields rules for a field that has one already: it would never apply."""
        first: dict[tuple[str, bool], str] = {}
        for rule in self.protect:
            if rule.selector.startswith("/"):
                continue
            before = first.setdefault((fold_case(rule.selector), bool(rule.names)), rule.selector)
            if before != rule.selector:
                message = (
                    f"`protect` has `{before}` and `{rule.selector}`, which are one field: names are found in any case"
                )
                yield Mistake("protect", message, "keep one of the two rules")

    def _check_metadata(self, table: TableSpec) -> Iterator[Mistake]:
        """Yields rules for the columns that keys and headers have been given: rules name both as the records' own."""
        for field, column in table.metadata.items():
            usual = METADATA_COLUMNS[field]
            is_decoded = field == "key" and table.source.key.format != "raw"
            if field not in ("key", "headers") or column == usual or is_decoded:
                continue
            for rule in self.protect:
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
