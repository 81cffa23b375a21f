"""Reading one section of the file against its vocabulary.

Every read notes what is wrong and goes on with a stand-in, so that one run finds many mistakes; the stand-ins are
never seen, because a file with a problem gives no spec.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from frazil.spec.document import Entry, Items, Node, Scalar, Section
from frazil.spec.keys import Key, Word, keys_of
from frazil.spec.problems import Problems, advice
from frazil.spec.secrets import Secrets

_NOUNS = {
    "text": "text",
    "boolean": "a boolean",
    "integer": "a number",
    "number": "a number",
    "time": "a time",
    "nothing": "empty",
}


def describe(node: Node) -> str:
    """What `node` is, for messages; never its value."""
    if isinstance(node, Scalar):
        return _NOUNS[node.kind]
    return "a list" if isinstance(node, Items) else "a mapping"


def read_text(node: Node, label: str, problems: Problems) -> str | None:
    """The text of `node`; what YAML takes for a number, a boolean or nothing is refused with the way to write it."""
    if isinstance(node, Scalar) and node.kind == "text" and node.text:
        return node.text
    remedy = f"write text after `{label}:`"
    if isinstance(node, Scalar) and node.kind not in ("text", "nothing"):
        remedy = "put it in quotes"
        if node.kind == "boolean":
            remedy += ": YAML reads a bare yes, no, on, off, true or false as a boolean"
    what = "empty" if isinstance(node, Scalar) and not node.text else describe(node)
    problems.add(node.line, f"`{label}` is {what} where text is expected", remedy)
    return None


def read_string(node: Node, label: str, problems: Problems) -> str | None:
    """A property's value as a string: numbers as written, booleans as `true` and `false`."""
    if not isinstance(node, Scalar) or node.kind == "nothing":
        problems.add(
            node.line, f"`{label}` is {describe(node)} where one value is expected", "write one value, or remove it"
        )
        return None
    if node.kind != "boolean":
        return node.text
    if node.text.lower() in ("true", "false"):
        return node.text.lower()
    remedy = "write true or false, or put the word in quotes"
    problems.add(node.line, f"YAML reads the bare yes, no, on or off of `{label}` as a boolean", remedy)
    return None


def read_strings(
    node: Node, label: str, problems: Problems, convert: Callable[[str, str], str] | None = None
) -> dict[str, str]:
    """A mapping of properties; `convert(value, key)` makes the final value and may raise a SpecError."""
    strings: dict[str, str] = {}
    for entry in _entries(node, f"`{label}`", problems):
        text = read_string(entry.value, f"{label}.{entry.key}", problems)
        if text is None:
            continue
        if convert is not None:
            text = problems.attempt(entry.value.line, text, convert, text, entry.key)
        strings[entry.key] = text
    return strings


def read_items(node: Node, label: str, problems: Problems) -> tuple[Node, ...]:
    """The items of a list."""
    if isinstance(node, Items):
        return node.items
    message = f"`{label}` is {describe(node)} where a list is expected"
    problems.add(node.line, message, "write a list, such as `[a, b]`, or remove it")
    return ()


def whole_number(node: Node) -> int | None:
    """The number of a scalar that is a whole, not negative one."""
    if isinstance(node, Scalar) and node.kind == "integer" and re.fullmatch(r"[0-9]{1,19}", node.text, re.ASCII):
        return int(node.text)
    return None


def _entries(node: Node, label: str, problems: Problems) -> tuple[Entry, ...]:
    if isinstance(node, Section):
        return node.entries
    message = f"{label} is {describe(node)} where a mapping is expected"
    problems.add(node.line, message, "write `key: value` pairs, or remove it")
    return ()


class Fields:
    """The known keys of one section, `label` being its path in messages, `owner` what it belongs to if it has none.

    strange: keys that are known in another place, and what to do about them. secrets: of a section whose texts may refer to
    some. Made, it has already noted every unknown
    key and every key that is not built.
    """

    def __init__(
        self,
        node: Node,
        keys: Mapping[str, Key],
        label: str,
        problems: Problems,
        owner: str = "the file",
        strange: Mapping[str, str] = {},
        secrets: Secrets | None = None,
    ) -> None:
        self._keys = keys
        self._label = label
        self._owner = f"`{label}`" if label else owner
        self.problems = problems
        self._secrets = secrets
        self._strange = strange
        self._entries: dict[str, Entry] = {}
        for entry in _entries(node, self._owner, problems):
            self._admit(entry)

    def get(self, key: str) -> Entry | None:
        """The entry of `key`, if the file has it."""
        return self._entries.get(key)

    def path(self, key: str) -> str:
        """How messages name `key`."""
        return f"{self._label}.{key}" if self._label else key

    def values(self) -> dict[str, Any]:
        """What the section has, by the fields of its model: every choice, and every form that can be read by itself."""
        found = {}
        for key in self._keys.values():
            if key.name in self._entries and (key.form is None or key.form.read is not None):
                value = (
                    self.choice(key.name)
                    if key.form is None or key.form.read is None
                    else key.form.read(self, key.name)
                )
                if value is not None:
                    found[key.field] = value
        return found

    def section(self, key: str, model: type[BaseModel], inside: str = "") -> Fields | None:
        """The keys of the section under `key`, which `model` declares; None if it is absent."""
        entry = self.get(key)
        if entry is None:
            return None
        return Fields(entry.value, keys_of(model, inside), self.path(key), self.problems, secrets=self._secrets)

    def text(self, key: str) -> str | None:
        """The text of `key`, its secrets put in; None if it is absent or wrong."""
        entry = self.get(key)
        text = read_text(entry.value, self.path(key), self.problems) if entry else None
        if entry is None or text is None or self._secrets is None:
            return text
        return self.problems.attempt(entry.value.line, None, self._secrets.resolve, text, key)

    def parsed(self, key: str, parse: Callable[[str], Any]) -> Any:
        """What `parse` makes of the quantity of `key`; None if it is absent or wrong."""
        written = self.quantity(key)
        return self.problems.attempt(written.line, None, parse, written.text) if written else None

    def count(self, key: str, example: int) -> int | None:
        """The whole number of `key`, at least 1; None if it is absent or wrong."""
        entry = self.get(key)
        number = whole_number(entry.value) if entry else None
        if entry is not None and not number:
            self.problems.add(
                entry.value.line, f"`{self.path(key)}` is no count", f"write a whole number, such as {example}"
            )
        return number or None

    def quantity(self, key: str) -> Scalar | None:
        """The scalar of `key`, a number with its unit; a bare number passes, for the unit's own message."""
        entry = self.get(key)
        if entry is None:
            return None
        if isinstance(entry.value, Scalar) and entry.value.kind in ("text", "integer", "number"):
            return entry.value
        read_text(entry.value, self.path(key), self.problems)
        return None

    def strings(self, key: str, convert: Callable[[str, str], str] | None = None) -> dict[str, str]:
        """The properties under `key`."""
        entry = self.get(key)
        return read_strings(entry.value, self.path(key), self.problems, convert) if entry else {}

    def choice(self, key: str) -> Word:
        """The chosen word of `key`, or its default."""
        setting = self._keys[key]
        entry = self.get(key)
        if entry is not None:
            word = _word(entry.value)
            if word is not None and _is_one_of(word, setting.built):
                return word
            self._refuse_choice(entry, setting, word)
        assert setting.default is not None or entry is not None, key
        return setting.default if setting.default is not None else setting.built[0]

    def _refuse_choice(self, entry: Entry, setting: Key, word: Word | None) -> None:
        label = self.path(entry.key)
        built = ", ".join(_spell(choice) for choice in setting.built)
        if word is None and setting.form is not None and isinstance(entry.value, Section):
            message, remedy = f"`{label}` with a mapping is not available in this version", f"available: {built}"
        elif word is None:
            message = f"`{label}` is {describe(entry.value)} where one of its words is expected"
            remedy = f"write one of: {built}"
        elif _is_one_of(word, setting.not_built):
            message, remedy = f"`{label}: {_spell(word)}` is not available in this version", f"available: {built}"
        else:
            words = [_spell(choice) for choice in setting.choices]
            message = f"`{label}` cannot be `{_spell(word)}`"
            unquoted = _spell(word) in words
            remedy = "write it without quotes" if unquoted else advice(_spell(word), words, built.split(", "))
        self.problems.add(entry.value.line, message, remedy)

    def _admit(self, entry: Entry) -> None:
        setting = self._keys.get(entry.key)
        if setting is None and entry.key in self._strange:
            message = f"`{self.path(entry.key)}` does not belong here"
            self.problems.add(entry.line, message, self._strange[entry.key], is_cause=True)
        elif setting is None:
            remedy = advice(entry.key, self._keys)
            self.problems.add(entry.line, f"unknown key `{entry.key}` in {self._owner}", remedy, is_cause=True)
        elif not setting.is_built:
            word = _word(entry.value)
            shown = self.path(entry.key)
            if word is not None and _is_one_of(word, setting.choices):
                shown += f": {_spell(word)}"
            self.problems.add(entry.line, f"`{shown}` is not available in this version", "remove it")
        else:
            self._entries[entry.key] = entry


def _word(node: Node) -> Word | None:
    if not isinstance(node, Scalar) or node.kind == "nothing":
        return None
    if node.kind == "boolean":
        return node.text.lower() in ("true", "yes", "on")
    number = whole_number(node)
    return node.text if number is None else number


def _is_one_of(word: Word, words: tuple[Word, ...]) -> bool:
    """Membership that tells 1 from true."""
    return any(word == other and type(word) is type(other) for other in words)


def _spell(word: Word) -> str:
    return str(word).lower() if isinstance(word, bool) else str(word)
