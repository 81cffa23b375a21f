"""How a model declares the keys of the pipeline file, and how a section is read by them.

A key is declared once, as the field of a model that it fills: the type or its `Form`, the default, and the meaning in the
docstring below the field. Readers, JSON Schema and the reference page take everything from there. A reader notes a problem
and continues with a placeholder, so that one run finds many mistakes; a file with a problem gives no spec.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from frazil.plugins.registration import Registered
from frazil.spec.syntax.document import Entry, Items, Node, Scalar, Section
from frazil.spec.syntax.problems import Problems, advice
from frazil.spec.syntax.secrets import Secrets

SecretText = Annotated[str, Field(repr=False, exclude=True)]
SecretWord = Annotated[str | None, Field(repr=False, exclude=True)]
SecretStrings = Annotated[dict[str, str], Field(repr=False, exclude=True)]
"""What may be a secret is neither shown by `repr` nor serialised."""


class Declared(BaseModel):
    """A section of a pipeline file: frozen, with no other keys, whose errors quote no value."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
    )


JsonSchema = Mapping[str, Any]
Word = str | int | bool
Read: TypeAlias = "Callable[[Fields, str], Any]"
Path = tuple[str, ...]

NOT_A_KEY = "not a key"
"""Marks a field of a model that no key of the file fills."""
_NOUNS = {
    "text": "text",
    "boolean": "a boolean",
    "integer": "a number",
    "number": "a number",
    "time": "a time",
    "nothing": "empty",
}


_EXAMPLES = {
    "catalog": "`catalog: {type: rest, uri: https://…}`, or another type, or remove it",
    "registry": "`registry: {url: https://registry:8081}`, or remove it",
    "ha": "`ha: {}`, or remove it",
    "verify": "`verify: {}`, or remove it",
    "key": "`key: {format: json}`, or `key_columns: [NAME]` for the columns that rows are replaced by",
}
"""How sections are written, for the remedy where one is no mapping."""


@dataclass(frozen=True)
class Form:
    """How the value of a key is written in the file."""

    #: JSON Schema of the value as the user writes it.
    schema: JsonSchema
    #: Turns a default of the model into the word that the user would write; None where no single word can say it.
    write: Callable[[Any], Word] | None = None
    #: Reads the value of a key that the file has, None where it is wrong; without it the section's own reader does.
    read: Read | None = None


@dataclass(frozen=True)
class Key:
    """One key of the file. A planned key is declared too, so that it is not taken for a misspelt one."""

    #: How the value is written; None where it is one of `choices` and nothing else.
    form: Form | None = None
    #: The key where it is not the name of the model's field; `a.b` is the key `b` in the section `a`.
    name: str = ""
    #: What the key means; the docstring of the model's field unless written.
    description: str = ""
    #: The words that the value can be; those of the field unless written.
    choices: tuple[Word, ...] = ()
    #: The table whose names are choices too, those of installed packages included.
    registered: Registered[Any] | None = None
    #: The value of a file that leaves the key out, as the user would write it; the field's default unless written.
    default: Word | None = None
    #: The model's field.
    field: str = ""

    @property
    def words(self) -> tuple[Word, ...]:
        """The choices, with those of installed packages."""
        return (*self.choices, *(name for name in self.added if name not in self.choices))

    @property
    def added(self) -> tuple[str, ...]:
        """The choices of installed packages."""
        return () if self.registered is None else self.registered.added()


def section(name: str, model: type[BaseModel] | None = None) -> Form:
    """A mapping with keys of its own: `name` in the definitions of the JSON Schema. model: what its keys fill; without it
    a reader of its own does.
    """
    read = None if model is None else lambda fields, key: model(**fields.section(key, model).values())
    return Form({"$ref": f"#/$defs/{name}"}, read=read)


@cache
def keys_of(model: type[BaseModel], inside: str = "") -> Mapping[str, Key]:
    """The keys that a model declares, by name, in its order; `inside`: those of the section of this name."""
    found: dict[str, Key] = {}
    for field_name, field in model.model_fields.items():
        for key in _declared(field):
            outer, _, name = (key.name or field_name).rpartition(".")
            if outer == inside:
                found[name] = replace(_complete(key, name, field), field=field_name)
    return MappingProxyType(found)


def _declared(field: FieldInfo) -> list[Key]:
    """The keys that fill a field, in order: those with a description of their own, and the one that the field describes."""
    if NOT_A_KEY in field.metadata:
        return []
    keys = [Key(one) if isinstance(one, Form) else one for one in field.metadata if isinstance(one, Form | Key)]
    return keys if any(not key.description for key in keys) else [*keys, Key()]


def _complete(key: Key, name: str, field: FieldInfo) -> Key:
    """Returns the key with the settings of the model's field."""
    choices = key.choices
    if key.form is None and not choices:
        choices = _words_of(key, field)
    default = key.default
    if default is None and not field.is_required() and field.default not in (None, "", ()):
        if key.form is None and field.default in choices:
            default = field.default
        elif key.form is not None and key.form.write is not None:
            default = key.form.write(field.default)
    description = key.description or " ".join((field.description or "").split())
    return replace(key, name=name, description=description, choices=choices, default=default)


def _words_of(key: Key, field: FieldInfo) -> tuple[Word, ...]:
    """The words of a table, or of a Literal; an empty one stands for a key that is not written."""
    if key.registered is not None:
        return tuple(key.registered.built_in)
    if field.annotation is bool:
        return (True, False)
    assert get_origin(field.annotation) is Literal, field.annotation
    return tuple(word for word in get_args(field.annotation) if word != "")


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


def read_string(node: Node, label: str, problems: Problems, is_joined: bool = True) -> str | None:
    """A property's value as a string: numbers as written, booleans as `true` and `false`. is_joined: whether a property
    may have several values, joined by commas.
    """
    if not isinstance(node, Scalar) or node.kind == "nothing":
        is_list = is_joined and isinstance(node, Items) and bool(node.items)
        remedy = (
            "write one value: join several by commas, such as `a,b`" if is_list else "write one value, or remove it"
        )
        problems.add(node.line, f"`{label}` is {describe(node)} where one value is expected", remedy)
        return None
    if node.kind != "boolean":
        return node.text
    if node.text.lower() in ("true", "false"):
        return node.text.lower()
    remedy = "write true or false, or put the word in quotes"
    problems.add(node.line, f"YAML reads the bare yes, no, on or off of `{label}` as a boolean", remedy)
    return None


def read_strings(
    node: Node,
    label: str,
    problems: Problems,
    check: Callable[[str, str], None],
    secrets: Secrets | None,
    example: str = "",
) -> dict[str, str]:
    """A mapping of properties, their secrets put in; `check(value, key)` raises a SpecError for one that is not allowed.
    example: how the mapping is written, where it cannot be left out.
    """

    def finish(text: str, key: str) -> str:
        check(text, key)
        return text if secrets is None else secrets.resolve(text, key)

    strings: dict[str, str] = {}
    for entry in _entries(node, f"`{label}`", problems, example=example):
        text = read_string(entry.value, f"{label}.{entry.key}", problems)
        if text is not None:
            strings[entry.key] = problems.attempt(entry.value.line, text, finish, text, entry.key)
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


def _entries(
    node: Node, label: str, problems: Problems, keys: Container[str] = (), example: str = ""
) -> tuple[Entry, ...]:
    """The entries of a mapping. keys: those that it may have. example: how it is written where one text is not enough."""
    if isinstance(node, Section):
        return node.entries
    if isinstance(node, Scalar) and (name := node.text.partition(":")[0]) in keys:
        problems.add(node.line, f"no space after the colon of `{name}`", f"write `{name}: value`")
        return ()
    message = f"{label} is {describe(node)} where a mapping is expected"
    problems.add(node.line, message, f"write {example or '`key: value` pairs, or remove it'}")
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
        example = _EXAMPLES.get(label) or ("`{topic: NAME}` there" if owner.startswith("table ") else "")
        for entry in _entries(node, self._owner, problems, keys, example):
            self._admit(entry)

    def get(self, key: str) -> Entry | None:
        """The entry of `key`, if the file has it."""
        return self._entries.get(key)

    def node(self, key: str) -> Node:
        """The value of `key`, which the file has."""
        return self._entries[key].value

    def refuse_key(self, key: str, message: str, remedy: str) -> None:
        """Notes a problem at the line of `key`, or of no line if the file does not have the key."""
        entry = self.get(key)
        self.problems.add(entry.line if entry else 0, message, remedy)

    def refuse_value(self, key: str, message: str, remedy: str) -> None:
        """Notes a problem at the line of the value of `key`, which the file has."""
        self.problems.add(self._entries[key].value.line, message, remedy)

    def path(self, key: str) -> str:
        """How messages name `key`."""
        return f"{self._label}.{key}" if self._label else key

    def values(self, readers: Mapping[str, Read] = {}) -> dict[str, Any]:
        """What the section has, by the fields of its model: every choice, and every form that can be read by itself.
        readers: of keys that their forms cannot read.
        """
        found = {}
        for name, key in self._keys.items():
            read = readers.get(name, Fields.choice if key.form is None else key.form.read)
            value = read(self, name) if read is not None and name in self._entries else None
            if value is not None:
                found[key.field] = value
        return found

    def section(self, key: str, model: type[BaseModel], inside: str = "") -> Fields:
        """The keys of the section under `key`, which the file has and `model` declares."""
        node = self._entries[key].value
        return Fields(node, keys_of(model, inside), self.path(key), self.problems, secrets=self._secrets)

    def text(self, key: str) -> str | None:
        """The text of `key`, its secrets put in; None if it is absent or wrong."""
        entry = self.get(key)
        text = read_text(entry.value, self.path(key), self.problems) if entry else None
        if entry is None or text is None or self._secrets is None:
            return text
        return self.problems.attempt(entry.value.line, None, self._secrets.resolve, text, key)

    def parsed(self, key: str, parse: Callable[[str], Any]) -> Any:
        """What `parse` makes of the text of `key`; None if it is absent or wrong."""
        text = self.text(key)
        return None if text is None else self.problems.attempt(self._entries[key].value.line, None, parse, text)

    def words_by_name(self, key: str, example: str) -> dict[str, str]:
        """The mapping of names to words under `key`, which the file has. example: how it is written."""
        found: dict[str, str] = {}
        for entry in _entries(self.node(key), f"`{self.path(key)}`", self.problems, example=example):
            word = read_string(entry.value, f"{self.path(key)}.{entry.key}", self.problems, is_joined=False)
            if word is not None:
                found[entry.key] = word
        return found

    def strings(self, key: str, check: Callable[[str, str], None]) -> dict[str, str]:
        """The properties under `key`; `check(value, key)` raises a SpecError for one that is not allowed."""
        entry = self.get(key)
        return read_strings(entry.value, self.path(key), self.problems, check, self._secrets) if entry else {}

    def names(self, key: str, registered: Registered[Any]) -> tuple[str, ...]:
        """The names under `key`, each of an object of the table, those of installed packages included."""
        entry, found = self.get(key), list[str]()
        for item in read_items(entry.value, self.path(key), self.problems) if entry else ():
            name = read_text(item, self.path(key), self.problems)
            if name is not None and registered.added() and name not in registered:
                message = f"`{self.path(key)}` cannot have `{name}`"
                self.problems.add(item.line, message, advice(name, registered.added()))
            elif name is not None and self.problems.attempt(item.line, None, registered.get, name) is not None:
                found.append(name)
        return tuple(found)

    def choice(self, key: str) -> Word:
        """The chosen word of `key`, or its default."""
        setting = self._keys[key]
        entry = self.get(key)
        if entry is not None:
            word = _word(entry.value)
            if word is not None and _is_one_of(word, setting.choices):
                return word
            if word is not None and setting.registered is not None and word in setting.added:
                if self.problems.attempt(entry.value.line, None, setting.registered.get, str(word)) is not None:
                    return word
            else:
                self._refuse_choice(entry, setting, word)
        assert setting.default is not None or entry is not None, key
        return setting.default if setting.default is not None else setting.words[0]

    def _refuse_choice(self, entry: Entry, setting: Key, word: Word | None) -> None:
        label = self.path(entry.key)
        words = [_spell(choice) for choice in setting.words]
        if word is None:
            message = f"`{label}` is {describe(entry.value)} where one of its words is expected"
            self.problems.add(entry.value.line, message, f"write one of: {', '.join(words)}")
        elif _spell(word) in words:
            message = f"`{label}` cannot be `{_spell(word)}`"
            self.problems.add(entry.value.line, message, "write it without quotes")
        else:
            self.problems.add_unknown(entry.value, f"`{label}` cannot be `{_spell(word)}`", _spell(word), words)

    def _admit(self, entry: Entry) -> None:
        setting = self._keys.get(entry.key)
        if setting is None and entry.key in self._strange:
            message = f"`{self.path(entry.key)}` does not belong here"
            self.problems.add(entry.line, message, self._strange[entry.key], is_cause=True)
        elif setting is None:
            self.problems.add_unknown(entry, f"unknown key `{entry.key}` in {self._owner}", entry.key, self._keys)
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
    """Whether `word` is one of `words`, with 1 and true distinct."""
    return any(word == other and type(word) is type(other) for other in words)


def _spell(word: Word) -> str:
    """Returns a word as a pipeline file has it: YAML reads a bare null as nothing."""
    if word == "null":
        return '"null"'
    return str(word).lower() if isinstance(word, bool) else str(word)
