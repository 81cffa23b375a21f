"""How a model declares the keys of the pipeline file, and how the value of a key is read.

A key is declared once, as the field of a model that it fills: the type or its `Form`, the default, and the meaning in the
docstring below the field. Validation, JSON Schema and the reference page take everything from there. The models validate
the tree of `document` as it is; `reading` turns their errors into problems with a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from frazil.errors import SpecError
from frazil.plugins.registration import Registered
from frazil.spec.syntax.document import GROUP, HIDDEN, Items, Node, Scalar, Section, filled
from frazil.spec.syntax.problems import LABEL, Mistake, Mistakes, advice

if TYPE_CHECKING:
    from frazil.spec.syntax.reading import Reading

SecretText = Annotated[str, Field(repr=False, exclude=True)]
SecretWord = Annotated[str | None, Field(repr=False, exclude=True)]
SecretStrings = Annotated[dict[str, str], Field(repr=False, exclude=True)]
"""What may be a secret is neither shown by `repr` nor serialised."""
JsonSchema = Mapping[str, Any]
Word = str | int | bool
Read: TypeAlias = "Callable[[Node, Reading], Any]"
Path = tuple[str, ...]
_NODES = (Scalar, Items, Section)
_NOUNS = {
    "text": "text",
    "boolean": "a boolean",
    "integer": "a number",
    "number": "a number",
    "time": "a time",
    "nothing": "empty",
}


class Declared(BaseModel):
    """A section of a pipeline file: frozen, with no other keys, whose errors quote no value.

    Where it is made of a file, the context of the validation is its `Reading`; where it is made in Python, nothing is read
    and no rule between the keys is checked.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
        validate_by_name=True,
        validate_by_alias=True,
    )

    #: Whether texts of the section may refer to secrets.
    reads_secrets: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _note_model(cls, value: Any, info: ValidationInfo) -> Any:
        if info.context is not None:
            info.context.note_model(value, cls)
        return _grouped(cls, value) if _groups_of(cls) and isinstance(value, dict) else value

    @field_validator("*", mode="before")
    @classmethod
    def _read_value(cls, value: Any, info: ValidationInfo) -> Any:
        if info.context is None or not isinstance(value, _NODES):
            return value
        key = _by_field(cls).get(info.field_name or "")
        if key is None:
            return value
        try:
            return _read(value, key, info.context, cls.reads_secrets)
        except SpecError as error:
            raise Mistakes([Mistake((), error.message, error.remedy)]) from None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy with other values of fields, those of groups among them."""
        changes, groups = dict(update or {}), _groups_of(type(self))
        for name, model in groups.items():
            if part := {field: changes.pop(field) for field in model.model_fields if field in changes}:
                changes[name] = changes.get(name, getattr(self, name)).model_copy(update=part)
        return super().model_copy(update=changes, deep=deep)

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        return self if info.context is None else info.context.check(self)


class Connection(Declared):
    """A section whose texts may refer to secrets."""

    reads_secrets = True


@dataclass(frozen=True)
class Form:
    """How the value of a key is written in the file."""

    #: JSON Schema of the value as the user writes it.
    schema: JsonSchema
    #: Turns a default of the model into the word that the user would write; None where no single word can say it.
    write: Callable[[Any], Word] | None = None
    #: Turns the value in the file into the field's, or raises a SpecError; without it by the field's type.
    read: Read | None = None
    #: The words that the value can be in place of a section.
    words: tuple[Word, ...] = ()
    #: The value that a word stands for, of a key with a section or one of its choices.
    of_word: Callable[[Any], Any] | None = None
    #: Whether `read` itself puts the secrets in.
    has_secrets: bool = False


@dataclass(frozen=True)
class Key:
    """One key of the file."""

    #: What the file calls it.
    name: str = ""
    #: The model's field.
    field: str = ""
    #: How the value is written; None where it is one of `choices` and nothing else.
    form: Form | None = None
    #: What the key means: the docstring of the model's field.
    description: str = ""
    #: The words that the value can be; those of the field unless written.
    choices: tuple[Word, ...] = ()
    #: The table whose names are choices too, those of installed packages included.
    registered: Registered[Any] | None = None
    #: The value of a file that leaves the key out, as the user would write it; the field's default unless written.
    default: Word | None = None
    #: Whether the section needs it.
    is_required: bool = False
    #: What is reported of a section without the key, which needs it. LABEL stands for the section.
    lack: str = ""
    #: What to do then.
    remedy: str = ""

    @property
    def words(self) -> tuple[Word, ...]:
        """The choices, with those of installed packages."""
        return (*self.choices, *(name for name in self.added if name not in self.choices))

    @property
    def added(self) -> tuple[str, ...]:
        """The choices of installed packages."""
        return () if self.registered is None else self.registered.added()


def named(key: str) -> Any:
    """What the file calls a field, where it is not the field's own name."""
    return Field(validation_alias=key)


def not_a_key(name: str) -> Any:
    """Marks a field that no key of the file fills, but its reader. name: of the field."""
    return Field(validation_alias=f"{HIDDEN}{name}")


def group(name: str) -> Any:
    """Marks a field whose model has keys of the section itself: settings of one feature. name: of the field."""
    return Field(validation_alias=f"{GROUP}{name}")


def section(name: str, read: Read | None = None) -> Form:
    """A mapping with keys of its own: `name` in the definitions of the JSON Schema."""
    return Form({"$ref": f"#/$defs/{name}"}, read=read)


@cache
def keys_of(model: type[BaseModel]) -> Mapping[str, Key]:
    """The keys that a model declares, by name, in its order."""
    return MappingProxyType({key.name: key for key in _declared(model)})


@cache
def sections_of(model: type[BaseModel]) -> Mapping[str, type[Declared]]:
    """The models of the keys whose value can be a mapping with keys of its own, by key."""
    sections = dict[str, type[Declared]]()
    for inner in _groups_of(model).values():
        sections |= sections_of(inner)
    for name, field in model.model_fields.items():
        key = str(field.validation_alias or name)
        kinds = (field.annotation, *get_args(field.annotation))
        section = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Declared)), None)
        if section is not None and not key.startswith((GROUP, HIDDEN)):
            sections[key] = section
    return MappingProxyType(sections)


@cache
def _groups_of(model: type[BaseModel]) -> Mapping[str, type[BaseModel]]:
    """The models of the fields that have keys of the section itself, by field."""
    return {
        name: field.annotation  # type: ignore[misc]
        for name, field in model.model_fields.items()
        if str(field.validation_alias).startswith(GROUP)
    }


@cache
def _group_by_key(model: type[BaseModel], is_written: bool) -> Mapping[str, str]:
    """The field of a group by each of its keys in the file, or by each of its fields."""
    groups = _groups_of(model).items()
    return {key: name for name, inner in groups for key in (keys_of(inner) if is_written else inner.model_fields)}


def _grouped(model: type[BaseModel], values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a section, or of fields in Python, with those of each group in one value."""
    section = values if isinstance(values, Section) else None
    groups = _group_by_key(model, section is not None)
    left: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {
        name: {} for name in _groups_of(model) if model.model_fields[name].is_required()
    }
    for key, value in values.items():
        if (name := groups.get(key)) is None:
            left[key] = value
        else:
            parts.setdefault(name, {})[key] = value
    for name, part in parts.items():
        if section is not None and f"{GROUP}{name}" not in left:
            left[f"{GROUP}{name}"] = Section(part, section.line, section.lines)
        elif section is None:
            left[name] = left[name].model_copy(update=part) if name in left else part
    return left


@cache
def _by_field(model: type[BaseModel]) -> Mapping[str, Key]:
    return {key.field: key for key in _declared(model)}


def _declared(model: type[BaseModel]) -> Iterator[Key]:
    for field_name, field in model.model_fields.items():
        name = str(field.validation_alias or field_name)
        if name.startswith(GROUP):
            inner = keys_of(_groups_of(model)[field_name]).values()
            yield from (replace(key, field=f"{field_name}.{key.field}") for key in inner)
        if name.startswith(HIDDEN):
            continue
        form = next((member for member in field.metadata if isinstance(member, Form)), None)
        key = next((member for member in field.metadata if isinstance(member, Key)), Key())
        choices, default = key.choices or (() if form is None else form.words), key.default
        if not choices and key.registered is not None:
            choices = tuple(key.registered.built_in)
        elif not choices and form is None:
            choices = _words_of(field.annotation)
        if default is None and not field.is_required() and field.default not in (None, "", ()):
            default = _written_default(field.default, form, choices)
        yield replace(
            key,
            name=name,
            field=field_name,
            form=form,
            description=" ".join((field.description or "").split()),
            choices=choices,
            default=default,
            is_required=field.is_required(),
        )


def _written_default(default: Any, form: Form | None, choices: tuple[Word, ...]) -> Word | None:
    """A default of the model as the user would write it; None where no single word can say it."""
    if form is None:
        return default if default in choices else None
    return None if form.write is None else form.write(default)


def _words_of(annotation: Any) -> tuple[Word, ...]:
    """The words of a Literal; an empty one stands for a key that is not written."""
    if annotation is bool:
        return (True, False)
    assert get_origin(annotation) is Literal, annotation
    return tuple(word for word in get_args(annotation) if word != "")


def _read(node: Node, key: Key, reading: Reading, reads_secrets: bool) -> Any:
    """Returns the value of a key for its field, which validates it: of a section itself."""
    form = key.form
    if (form is None or key.choices) and isinstance(node, Scalar):
        node = filled(node, reading.secrets)
    if key.choices and not isinstance(node, Section):
        word = _choose(node, key)
        if form is None or form.of_word is None:
            return word
        value = form.of_word(word)
        reading.note_model(value, type(value))
        return value
    if form is None:
        return _choose(node, key)
    if form.read is None:
        return node
    if reads_secrets and not form.has_secrets and isinstance(node, Scalar) and node.kind == "text":
        node = replace(node, text=reading.secrets.resolve(node.text, key.name))
    return form.read(node, reading)


def _choose(node: Node, key: Key) -> Word:
    """Returns the chosen word of `key`."""
    word = _word(node)
    if any(word == choice and type(word) is type(choice) for choice in key.choices):  # 1 is not true.
        assert word is not None
        return word
    words = [_spell(choice) for choice in key.words]
    if word is None:
        message = f"`{LABEL}` is {describe(node)} where one of its words is expected"
        raise SpecError(message, remedy=f"write one of: {', '.join(words)}")
    if key.registered is not None and word in key.added:
        key.registered.get(str(word))
        return word
    message = f"`{LABEL}` cannot be `{_spell(word)}`"
    if _spell(word) in words:
        raise SpecError(message, remedy="write it without quotes")
    raise Mistakes([Mistake((), message, advice(_spell(word), words))], is_cause=True)


def _word(node: Node) -> Word | None:
    if not isinstance(node, Scalar) or node.kind == "nothing":
        return None
    if node.kind == "boolean":
        return is_true(node)
    number = whole_number(node)
    return node.text if number is None else number


def _spell(word: Word) -> str:
    """Returns a word as a pipeline file has it: YAML reads a bare null as nothing."""
    if word == "null":
        return '"null"'
    return str(word).lower() if isinstance(word, bool) else str(word)


def is_true(boolean: Scalar) -> bool:
    """The value of what YAML takes for a boolean."""
    return boolean.text.lower() in ("true", "yes", "on")


def whole_number(node: Node) -> int | None:
    """The number of a scalar that is a whole, not negative one, in decimal digits."""
    if isinstance(node, Scalar) and node.kind == "integer" and re.fullmatch(r"0|[1-9][0-9]{0,18}", node.text, re.ASCII):
        return int(node.text)
    return None


def describe(node: Node) -> str:
    """What `node` is, for messages; never its value."""
    if isinstance(node, Scalar):
        return _NOUNS[node.kind]
    return "a list" if isinstance(node, Items) else "a mapping"
