"""Iceberg's type words, as text, to PyIceberg's types.

Field ids in the result are placeholders, unique within one type, from 1000 on: fresh ids are assigned when the table
is created.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import lru_cache

from pyiceberg import types

from frazil.errors import SpecError
from frazil.spec.syntax.problems import nearest
from frazil.types import FIRST_PLACEHOLDER_ID

LIMIT_DEPTH = 30
_WORDS: dict[str, Callable[[], types.IcebergType]] = {
    "boolean": types.BooleanType,
    "int": types.IntegerType,
    "long": types.LongType,
    "float": types.FloatType,
    "double": types.DoubleType,
    "date": types.DateType,
    "time": types.TimeType,
    "timestamp": types.TimestampType,
    "timestamptz": types.TimestamptzType,
    "string": types.StringType,
    "uuid": types.UUIDType,
    "binary": types.BinaryType,
}
_FORMS = {
    "decimal": "decimal(p,s)",
    "fixed": "fixed[n]",
    "list": "list<T>",
    "map": "map<string,V>",
    "struct": "struct<name: T>",
}
_NOT_BUILT = ("timestamp_ns", "timestamptz_ns", "variant", "geometry", "geography", "unknown")
_OTHER_NAMES = {
    "bigint": "long",
    "int64": "long",
    "int32": "int",
    "int16": "int",
    "int8": "int",
    "uint8": "int",
    "uint16": "int",
    "uint32": "long",
    "uint64": "decimal(20,0)",
    "byte": "int",
    "short": "int",
    "float64": "double",
    "float32": "float",
    "integer": "int",
    "smallint": "int",
    "tinyint": "int",
    "text": "string",
    "varchar": "string",
    "char": "string",
    "bytes": "binary",
    "numeric": "decimal(p,s)",
    "number": "double",
    "real": "float",
    "array": "list<T>",
    "object": "struct<name: T>",
    "record": "struct<name: T>",
    "datetime": "timestamp",
    "timestamp_ltz": "timestamptz",
    "timestamp_tz": "timestamptz",
    "timestamp_ntz": "timestamp",
    "datetimeoffset": "timestamptz",
    "json": "string",
    "jsonb": "string",
    "double precision": "double",
    "character": "string",
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
    "time without time zone": "time",
}
"""Types as databases and other tools name them, some of several words."""
_TIME = re.compile(r"\b(timestamptz|timestamp|time)\(([^()]*)\)")
_UNITS = ("s", "ms", "us", "ns")
_PART = re.compile(r"\s*([^\s<>,:()\[\]]+|[<>,:()\[\]])")


def unit_of(text: str) -> str | None:
    """The unit of numbers in a column, where its type names one, as `timestamptz(ms)` and `time(ms)` do."""
    match = _TIME.fullmatch(text.strip())
    unit = match.group(2).strip() if match is not None else None
    return unit if unit in _UNITS else None


@lru_cache(maxsize=1024)
def parse_column_type(text: str) -> types.IcebergType:
    """The type of a column, which may name a unit. A file of many tables spells few types."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return parse_type(text)
    word, unit = match.group(1), match.group(2).strip()
    if unit not in _UNITS:
        remedy = f"write one of: {', '.join(f'{word}({name})' for name in _UNITS)}"
        since = "midnight" if word == "time" else "the epoch"
        raise SpecError(f"`{unit}` is not a unit of the time since {since}", remedy=remedy)
    return _WORDS[word]()


def parse_type(text: str) -> types.IcebergType:
    """The type that `text` spells, for example `list<struct<a: long, b: decimal(9,2)>>`."""
    if _TIME.search(text):
        remedy = "give the field a column of its own: `columns: {NAME: {type: timestamptz(ms), field: PATH}}`"
        if "list<" in text or "map<" in text:  # What is in them has no column of its own.
            remedy = "write `long` in its place, which keeps the number as it is written"
        raise SpecError(f"the type `{text}` has a unit inside, and a unit is for a whole column", remedy=remedy)
    if any(text.count(opening) != text.count(closing) for opening, closing in ("<>", "()", "[]")):
        remedy = 'close it; inside {} a type with a comma needs quotes, such as `{price: "decimal(9,2)"}`'
        raise SpecError(f"the type `{text}` has a bracket without its partner", remedy=remedy)
    parser = _Parser(text)
    result = parser.read_type(0)
    parser.expect_end()
    return result


def parse_numbers(text: str) -> types.IcebergType | None:
    """The type of all numbers that `text` names; None for `as_seen`, where each field gets the one that it needs."""
    if text.strip() == "as_seen":
        return None
    word = text.split("(")[0].strip()
    kind = parse_type(text) if word in ("double", "decimal") else None
    if not isinstance(kind, types.DoubleType | types.DecimalType):
        remedy = "write as_seen, double, or a decimal such as decimal(18,4)"
        raise SpecError(f"`numbers` cannot be `{text}`", remedy=remedy)
    return kind


class _Parser:
    """Recursive descent over the words of one type."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = _PART.findall(text)
        self._next = 0
        self._ids = itertools.count(FIRST_PLACEHOLDER_ID)

    def read_type(self, depth: int) -> types.IcebergType:
        if depth > LIMIT_DEPTH:
            raise SpecError("the type is nested too deeply", remedy=f"use at most {LIMIT_DEPTH} levels")
        word = self._take()
        if word in _WORDS:
            return _WORDS[word]()
        if word in ("decimal", "fixed"):
            return self._read_decimal() if word == "decimal" else self._read_fixed()
        nested = {"list": self._read_list, "map": self._read_map, "struct": self._read_struct}.get(word)
        if nested is None:
            raise self._unknown(word)
        return nested(depth + 1)

    def expect_end(self) -> None:
        if self._next < len(self._words):
            raise self._malformed()

    def _read_decimal(self) -> types.IcebergType:
        self._expect("(")
        precision = self._number()
        self._expect(",")
        scale = self._number()
        self._expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            message = f"`decimal({precision},{scale})` is not a decimal of Iceberg"
            raise SpecError(message, remedy="use a precision of 1 to 38 and a scale no larger than the precision")
        return types.DecimalType(precision, scale)

    def _read_fixed(self) -> types.IcebergType:
        closing = {"[": "]", "(": ")"}.get(self._take())
        if closing is None:
            raise self._malformed()
        length = self._number()
        self._expect(closing)
        if length < 1:
            raise SpecError("`fixed` has no length", remedy="write the number of bytes, such as `fixed[16]`")
        return types.FixedType(length)

    def _read_list(self, depth: int) -> types.IcebergType:
        self._expect("<")
        element_id = next(self._ids)
        element = self.read_type(depth)
        self._expect(">")
        return types.ListType(element_id=element_id, element_type=element, element_required=False)

    def _read_map(self, depth: int) -> types.IcebergType:
        self._expect("<")
        key_id, value_id = next(self._ids), next(self._ids)
        key = self.read_type(depth)
        if not isinstance(key, types.PrimitiveType):
            message = f"a map's keys cannot be `{key}`: engines take only plain values as keys"
            raise SpecError(message, remedy="write a plain type, such as `map<string,V>`, or a list of structs")
        self._expect(",")
        value = self.read_type(depth)
        self._expect(">")
        return types.MapType(key_id=key_id, key_type=key, value_id=value_id, value_type=value, value_required=False)

    def _read_struct(self, depth: int) -> types.IcebergType:
        self._expect("<")
        fields: dict[str, types.NestedField] = {}
        while True:
            name = self._name()
            if name in fields:
                raise SpecError(f"the struct has two fields `{name}`", remedy="keep one of them")
            self._expect(":")
            field_id = next(self._ids)
            field_type = self.read_type(depth)
            fields[name] = types.NestedField(field_id=field_id, name=name, field_type=field_type, required=False)
            word = self._take()
            if word == ">":
                return types.StructType(*fields.values())
            if word != ",":
                raise self._malformed()

    def _take(self) -> str:
        if self._next >= len(self._words):
            raise self._malformed()
        self._next += 1
        return str(self._words[self._next - 1])

    def _expect(self, word: str) -> None:
        if self._take() != word:
            raise self._malformed()

    def _number(self) -> int:
        word = self._take()
        if not re.fullmatch(r"[0-9]{1,9}", word):
            raise self._malformed()
        return int(word)

    def _name(self) -> str:
        word = self._take()
        if word in "<>,:()[]":
            raise self._malformed()
        return word

    def _malformed(self) -> SpecError:
        remedy = f"write a word such as `long`, or one of {', '.join(_FORMS.values())}"
        of_digits = re.fullmatch(r"\s*decimal\s*\(\s*([0-9]+)\s*\)\s*", self._text)
        words = " ".join(self._text.lower().split())
        if of_digits is not None:
            remedy = f"write the digits after the point too: `decimal({of_digits[1]},0)`"
        elif " " in words and words in _OTHER_NAMES:
            remedy = f"did you mean `{_OTHER_NAMES[words]}`?"
        return SpecError(f"`{self._text}` is not a type", remedy=remedy)

    def _unknown(self, word: str) -> SpecError:
        if word in "<>,:()[]":
            return self._malformed()
        if word in _NOT_BUILT:
            return SpecError(
                f"the type `{word}` is not available in this version",
                remedy="use another type" + (f", such as `{word.removesuffix('_ns')}`" if word.endswith("_ns") else ""),
            )
        type_names = [*_WORDS, *_FORMS]
        close = _OTHER_NAMES.get(word.lower()) or nearest(word, type_names)
        remedy = f"did you mean `{_FORMS.get(close, close)}`?" if close else f"Iceberg's types: {', '.join(type_names)}"
        return SpecError(f"the type `{word}` is unknown", remedy=remedy)
