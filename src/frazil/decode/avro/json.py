"""The JSON text of Avro values whose type contains itself, written value by value, in Python.

A record type becomes one function, once per schema (`json_writer`). The compiled walk (`scan`) has been over the bytes
before, so numbers, lengths, branches and depth are valid; texts, keys and the length of names are checked here.
"""

from __future__ import annotations

import base64
import io
import json
import math
import struct
from collections.abc import Callable

from frazil.decode.avro.numbers import BAD_TEXT, LONG_JSON, MAX_JSON_CHARACTERS, SAME_KEY
from frazil.decode.avro.schema import Avro, branch_names


class JsonFault(Exception):
    """The value has no JSON; `fault` is the number of its entry in `FAULTS`."""

    def __init__(self, fault: int) -> None:
        super().__init__(fault)
        self.fault = fault


class _Text(io.StringIO):
    """The text so far. A record of a few bytes can have any number of names, so their characters are counted."""

    names_length = 0

    def count_names(self, length: int) -> None:
        self.names_length += length
        if self.names_length > MAX_JSON_CHARACTERS:
            raise JsonFault(LONG_JSON)


Write = Callable[[bytes, int, _Text], int]
"""Reads the value at a place of the body, appends its JSON to the text and returns the place after the value."""

_quote = json.JSONEncoder(ensure_ascii=False).encode


def json_writer(record: Avro, known: dict[Avro, Write]) -> Callable[[bytes], str]:
    """The function that returns a value of type `record` as compact JSON; it raises JsonFault.

    Logical types are written as their underlying types, bytes and fixed as base64, floats that JSON has no number for
    as "NaN", "Infinity" and "-Infinity". A union with null and one other branch is that branch's value or null, any
    other one an object with the name of its branch. known: the functions of record types made so far, added to here.
    """
    write = _record(record, known)

    def write_json(body: bytes) -> str:
        text = _Text()
        write(body, 0, text)
        return text.getvalue()

    return write_json


def _value(avro: Avro, writers: dict[Avro, Write]) -> Write:
    if avro.kind in ("bytes", "fixed"):
        return _bytes(avro.size)
    if avro.kind in ("float", "double"):
        return _float("<f" if avro.kind == "float" else "<d")
    if avro.kind == "enum":
        return _enum(avro)
    if avro.kind in _NESTED:
        return _NESTED[avro.kind](avro, writers)
    return _PLAIN[avro.kind]


def _number(body: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    total = shift = 0
    while (byte := body[at]) >= 0x80:
        total |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    total |= byte << shift
    return (total >> 1) ^ -(total & 1), at + 1


def _write_null(_: bytes, at: int, text: _Text) -> int:
    text.write("null")
    return at


def _write_boolean(body: bytes, at: int, text: _Text) -> int:
    text.write("true" if body[at] else "false")
    return at + 1


def _write_integer(body: bytes, at: int, text: _Text) -> int:
    number, at = _number(body, at)
    text.write(str(number))
    return at


def _string(body: bytes, at: int) -> tuple[str, int]:
    length, at = _number(body, at)
    try:
        return body[at : at + length].decode(), at + length
    except UnicodeDecodeError:
        raise JsonFault(BAD_TEXT) from None


def _write_string(body: bytes, at: int, text: _Text) -> int:
    text_value, at = _string(body, at)
    text.write(_quote(text_value))
    return at


def _bytes(size: int) -> Write:
    def write(body: bytes, at: int, text: _Text) -> int:
        length, at = (size, at) if size else _number(body, at)
        text.write(f'"{base64.b64encode(body[at : at + length]).decode()}"')
        return at + length

    return write


def _float(form: str) -> Write:
    size = struct.calcsize(form)

    def write(body: bytes, at: int, text: _Text) -> int:
        (number,) = struct.unpack_from(form, body, at)
        if math.isfinite(number):
            text.write(repr(number))
        else:
            text.write('"NaN"' if math.isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"')
        return at + size

    return write


def _enum(avro: Avro) -> Write:
    def write(body: bytes, at: int, text: _Text) -> int:
        number, at = _number(body, at)
        text.count_names(len(avro.symbols[number]))
        text.write(f'"{avro.symbols[number]}"')
        return at

    return write


def _record(avro: Avro, writers: dict[Avro, Write]) -> Write:
    if avro in writers:
        return writers[avro]
    members: list[tuple[str, Write]] = []
    length = sum(len(member.name) for member in avro.fields)

    def write(body: bytes, at: int, text: _Text) -> int:
        text.count_names(length)
        for name, write_member in members:
            text.write(name)
            at = write_member(body, at, text)
        text.write("}" if members else "{}")
        return at

    writers[avro] = write  # Before its members, which may have one of it.
    for member in avro.fields:
        members.append((f'{"," if members else "{"}"{member.name}":', _value(member.type, writers)))
    return write


def _array(avro: Avro, writers: dict[Avro, Write]) -> Write:
    write_item = _value(avro.items[0], writers)

    def write(body: bytes, at: int, text: _Text) -> int:
        mark = "["
        count, at = _block(body, at)
        while count:
            for _ in range(count):
                text.write(mark)
                mark = ","
                at = write_item(body, at, text)
            count, at = _block(body, at)
        text.write("]" if mark == "," else "[]")
        return at

    return write


def _map(avro: Avro, writers: dict[Avro, Write]) -> Write:
    write_item = _value(avro.items[0], writers)

    def write(body: bytes, at: int, text: _Text) -> int:
        keys: set[str] = set()
        count, at = _block(body, at)
        while count:
            for _ in range(count):
                key, at = _string(body, at)
                text.write(f"{',' if keys else '{'}{_quote(key)}:")
                if key in keys:
                    raise JsonFault(SAME_KEY)
                keys.add(key)
                at = write_item(body, at, text)
            count, at = _block(body, at)
        text.write("}" if keys else "{}")
        return at

    return write


def _block(body: bytes, at: int) -> tuple[int, int]:
    """How many items the block at a place has, 0 after the last block; and the place of its first item."""
    count, at = _number(body, at)
    if count < 0:
        _, at = _number(body, at)
    return abs(count), at


def _union(avro: Avro, writers: dict[Avro, Write]) -> Write:
    branches = [_value(branch, writers) for branch in avro.items]
    names = branch_names(avro)
    if sum(branch.kind != "null" for branch in avro.items) > 1:
        branches = [
            _named(name, write) if branch.kind != "null" else write
            for branch, name, write in zip(avro.items, names, branches, strict=True)
        ]

    def write(body: bytes, at: int, text: _Text) -> int:
        number, at = _number(body, at)
        return branches[number](body, at, text)

    return write


def _named(name: str, write_branch: Write) -> Write:
    def write(body: bytes, at: int, text: _Text) -> int:
        text.count_names(len(name))
        text.write(f'{{"{name}":')
        at = write_branch(body, at, text)
        text.write("}")
        return at

    return write


_PLAIN: dict[str, Write] = {
    "null": _write_null,
    "boolean": _write_boolean,
    "int": _write_integer,
    "long": _write_integer,
    "string": _write_string,
}
_NESTED: dict[str, Callable[[Avro, dict[Avro, Write]], Write]] = {
    "record": _record,
    "array": _array,
    "map": _map,
    "union": _union,
}
