"""How a model declares the keys of the pipeline file.

A key is declared once, as the field of a model that it fills: the type or its `Form`, the default, and the meaning in the
docstring below the field. Readers, JSON Schema and the reference page take everything from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from frazil.spec.units import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    duration_text,
    parse_duration,
    parse_share,
    parse_size,
    share_text,
    size_text,
)

if TYPE_CHECKING:
    from frazil.spec.reading import Fields

JsonSchema = Mapping[str, Any]
Word = str | int | bool


NOT_A_KEY = "not a key"
"""Marks a field of a model that no key of the file fills."""


@dataclass(frozen=True)
class Form:
    """How the value of a key is written in the file."""

    #: JSON Schema of the value as the user writes it.
    schema: JsonSchema
    #: Turns a default of the model into the word that the user would write; None where no single word can say it.
    write: Callable[[Any], Word] | None = None
    #: Reads the value of a key that the file has, None where it is wrong; without it the section's own reader does.
    read: Callable[[Fields, str], Any] | None = None


@dataclass(frozen=True)
class Key:
    """One key of the file. A key that is promised but not built stays declared, so that it is told from a misspelt one."""

    #: How the value is written; None where it is one of `choices` and nothing else.
    form: Form | None = None
    #: The key where it is not the name of the model's field; `a.b` is the key `b` in the section `a`.
    name: str = ""
    #: What the key means; the docstring of the model's field unless written.
    description: str = ""
    #: The words that the value can be; those of the field and those that are not built unless written.
    choices: tuple[Word, ...] = ()
    #: The choices that this version refuses.
    not_built: tuple[Word, ...] = ()
    #: The value of a file that leaves the key out, as the user would write it; the field's default unless written.
    default: Word | None = None
    #: Whether this version takes the key at all.
    is_built: bool = True
    #: The model's field.
    field: str = ""

    @property
    def built(self) -> tuple[Word, ...]:
        """The choices that this version can do."""
        return tuple(choice for choice in self.choices if choice not in self.not_built)


def section(name: str) -> Form:
    """A mapping with keys of its own: `name` in the definitions of the JSON Schema."""
    return Form({"$ref": f"#/$defs/{name}"})


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
    """The key with what the model's field says of it."""
    choices = key.choices
    if key.form is None and not choices:
        words = (True, False) if field.annotation is bool else _words_of(field.annotation)
        choices = (*words, *key.not_built)
    default = key.default
    if default is None and not field.is_required() and field.default not in (None, ""):
        if key.form is None and field.default in choices:
            default = field.default
        elif key.form is not None and key.form.write is not None:
            default = key.form.write(field.default)
    description = key.description or " ".join((field.description or "").split())
    return replace(key, name=name, description=description, choices=choices, default=default)


def _words_of(annotation: Any) -> tuple[Word, ...]:
    """The words of a Literal; an empty one stands for a key that is not written."""
    assert get_origin(annotation) is Literal, annotation
    return tuple(word for word in get_args(annotation) if word != "")


def _as_written(value: Any) -> Word:
    """The value itself."""
    word: Word = value
    return word


_SHARE_PATTERN = r"^[0-9]+(\.[0-9]+)?\s*%$"
TEXT = Form({"type": "string", "minLength": 1}, _as_written, lambda fields, key: fields.text(key))
STRINGS = Form({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})


def quantity(schema: JsonSchema, write: Callable[[Any], Word], parse: Callable[[str], float]) -> Form:
    """A number with its unit."""
    return Form(schema, write, lambda fields, key: fields.parsed(key, parse))


DURATION = quantity(
    {"type": "string", "pattern": DURATION_PATTERN, "examples": ["500ms", "2s", "5m", "1h"]},
    duration_text,
    parse_duration,
)
SIZE = quantity(
    {"type": "string", "pattern": SIZE_PATTERN, "examples": ["64MiB", "128MiB", "1GiB"]}, size_text, parse_size
)
PATHS = Form(
    {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "examples": ["id", "user.name", "order.*"]},
        "minItems": 1,
        "uniqueItems": True,
    }
)
TYPE_WORD: JsonSchema = {
    "type": "string",
    "minLength": 1,
    "examples": ["long", "timestamptz(ms)", "decimal(18,2)", "list<string>", "map<string,double>", "struct<a: int>"],
}


def text_like(*examples: str) -> Form:
    """Text of which these are examples."""
    return Form({**TEXT.schema, "examples": list(examples)})


def share(*examples: str) -> Form:
    """A percentage of which these are examples."""
    schema = {"type": "string", "pattern": _SHARE_PATTERN, "examples": list(examples)}
    return quantity(schema, share_text, parse_share)


def count(example: int) -> Form:
    """A whole number from 1 on."""
    return Form({"type": "integer", "minimum": 1}, _as_written, lambda fields, key: fields.count(key, example))


def with_switch(form: Form) -> Form:
    """true or false, or the form."""
    return Form({"anyOf": [{"type": "boolean"}, form.schema]})
