"""The functions of `protect` on Arrow arrays.

NULL stays NULL. Equal values give equal results, so each distinct value of an array is worked on once.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.columns import bytes_of, offsets_of
from frazil.queries.kernels.values import Kernel
from frazil.queries.program import Call
from frazil.schema.arrow import unsliced, with_children
from frazil.schema.parts import Path
from frazil.schema.projection import HEADERS
from frazil.stages.record_key import RecordKey
from frazil_protect.rules import (
    PROTECT,
    PROTECT_HEADERS,
    Parts,
    Protection,
    Rule,
    inner_types,
    load_parts,
    protected_type,
)

_STARS = "****"
_DRAWN = 32
"""The characters that are drawn from a digest."""
_FIRSTS, _SIZES = np.zeros(256, np.int64), np.zeros(256, np.int64)
"""Of each byte that is a digit or one of the alphabet, the first of its kind and their number; 0 for bytes that stay."""
for _kind in ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
    _FIRSTS[[*map(ord, _kind)]], _SIZES[[*map(ord, _kind)]] = ord(_kind[0]), len(_kind)
_UUID_BYTES = 16


def _protect(call: Call, array: pa.Array, key: pa.Scalar) -> pa.Array:
    return _replaced(array, dict(_parts_of(call)), RecordKey(key.as_py()), ())


def _protect_headers(call: Call, array: pa.Array, key: pa.Scalar) -> pa.Array:
    rules = tuple(rule for _, rule in _parts_of(call))
    return protect_headers(array, Protection(rules, RecordKey(key.as_py())))


KERNELS = {PROTECT: Kernel(("any, binary!",), _protect), PROTECT_HEADERS: Kernel(("list, binary!",), _protect_headers)}
"""The functions of the stage that `protecting` makes: of a column, and of the column of headers."""


def _parts_of(call: Call) -> Parts:
    return load_parts(str(dict(call.options)["actions"]))


def protect_headers(array: pa.Array, protection: Protection) -> pa.Array:
    """Returns a column of headers, lists of `key` and `value`, protected by the names of the headers. Values stay bytes."""
    array = unsliced(array)
    names, values = array.values.field("key"), array.values.field("value")
    keeps = np.ones(len(names), np.bool_)
    for name in names.unique().drop_null().to_pylist():
        path = f"{HEADERS}.{name}"
        rule = protection.rule_for((path, HEADERS)) or protection.rule_inside((path,))
        if rule is None:
            continue
        mine = pc.fill_null(pc.equal(names, name), False)
        if rule.action == "drop":
            keeps &= ~np.asarray(mine)
            continue
        rule = replace(rule, label=rule.label or path)
        values = pc.replace_with_mask(
            values, mine, protected_values(values.filter(mine), rule, protection.key).cast(values.type)
        )
    left = pa.StructArray.from_arrays([names, values], fields=list(array.type.value_type)).filter(pa.array(keeps))
    offsets = np.r_[0, np.cumsum(keeps)].astype(np.int32)[np.asarray(array.offsets)]
    return pa.ListArray.from_arrays(pa.array(offsets), left, array.type, mask=array.is_null())


def _replaced(array: pa.Array, rules: Mapping[Path, Rule], key: RecordKey, path: Path) -> pa.Array:
    """Returns the values at `path` protected; their type is `protected_type`."""
    if path in rules:
        return protected_values(array, rules[path], key)
    if not any(rule_path[: len(path)] == path for rule_path in rules):
        return array
    array, kind = unsliced(array), protected_type(array.type, rules, path)
    assert kind is not None
    parts = [array.keys, array.items] if pa.types.is_map(array.type) else _children(array)
    left = [
        _replaced(part, rules, key, (*path, name))
        for part, (name, _) in zip(parts, inner_types(array.type), strict=True)
        if protected_type(part.type, rules, (*path, name)) is not None
    ]
    return with_children(array, kind, left)


def _children(array: pa.Array) -> list[pa.Array]:
    return [array.field(n) for n in range(array.type.num_fields)] if pa.types.is_struct(array.type) else [array.values]


def protected_values(array: pa.Array, rule: Rule, key: RecordKey) -> pa.Array:
    """Returns values that are not nested as the rule's action makes them: text, but of `null`."""
    if rule.action == "null":
        return pa.nulls(len(array), array.type)
    if rule.action == "constant":
        return pc.if_else(array.is_valid(), pa.scalar(rule.value), pa.scalar(None, pa.string()))
    encoded = array.dictionary_encode()
    values = canonical(encoded.dictionary)
    if rule.action == "hash":
        replaced = pa.array([digest.hex() for digest in _digests(rule, key, values)], pa.string())
    elif rule.action == "tokenize":
        replaced = _tokens(_digests(rule, key, values), [_text(value) for value in values])
    elif rule.action == "mask":
        replaced = pa.array([_mask(rule.keep, _text(value)) for value in values], pa.string())
    else:
        replaced = pa.array([_text(value)[: rule.length] for value in values], pa.string())
    return replaced.take(encoded.indices)


def canonical(values: pa.Array) -> list[str | bytes]:
    """Returns the one form of each value, without null, that is hashed, masked and cut: values that are equal have the same
    form, whatever their types, such as 5 of an int, a long and a decimal.

    Numbers are written in plain digits without trailing zeros, doubles as Python writes them; times as in ISO 8601 with a
    space, those of timestamptz in UTC with a Z; 16 bytes of fixed length as a UUID. Bytes are themselves.
    """
    kind = values.type
    if pa.types.is_fixed_size_binary(kind):
        raw_values = values.to_pylist()
        return [str(uuid.UUID(bytes=raw)) for raw in raw_values] if kind.byte_width == _UUID_BYTES else raw_values
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        words: list[str | bytes] = values.to_pylist()
        return words
    if pa.types.is_decimal(kind):
        return [_plain(format(decimal, "f")) for decimal in values.to_pylist()]
    if pa.types.is_floating(kind):
        return [repr(number + 0.0) for number in values.to_pylist()]
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return [f"{moment}Z" for moment in values.cast(pa.timestamp(kind.unit)).cast(pa.string()).to_pylist()]
    texts: list[str | bytes] = values.cast(pa.string()).to_pylist()
    return texts


def _plain(digits: str) -> str:
    """Returns a number in digits without zeros at the end of its fraction."""
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _digests(rule: Rule, key: RecordKey, values: list[str | bytes]) -> list[bytes]:
    """Returns 32 bytes for each value, from another derived key for each action."""
    raw = (value if isinstance(value, bytes) else value.encode() for value in values)
    return key.hmac(rule.action, rule.label, raw)


def _text(value: str | bytes) -> str:
    """Returns bytes as hexadecimal digits."""
    return value if isinstance(value, str) else value.hex()


def _mask(keep: int, text: str) -> str:
    """Returns stars, as many for each value, and the last characters of a text that has at least twice as many."""
    return _STARS + text[len(text) - keep :] if keep and len(text) >= 2 * keep else _STARS


def _tokens(digests: list[bytes], texts: list[str]) -> pa.Array:
    """Returns another text of the shape of each: a digit for each digit, a small or a large one of the alphabet for each of
    these, and for each other character outside of ASCII; ASCII's punctuation and spaces stay.

    digests: what characters are drawn from, a byte for each. 256 is not a multiple of 10 or 26, so some are drawn a little
    more often.
    """
    shapes = pa.array([text if text.isascii() else "".join(map(_shape, text)) for text in texts], pa.string())
    offsets, raw = offsets_of(shapes), bytes_of(shapes)[: offsets_of(shapes)[-1]]
    lengths = np.diff(offsets)
    streams = [_stream(digest, length) for digest, length in zip(digests, lengths.tolist(), strict=True)]
    starts = np.cumsum([0, *map(len, streams)])[:-1]
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(raw.size)
    draws = np.frombuffer(b"".join(streams), np.uint8)[places]
    sizes = _SIZES[raw]
    drawn = np.where(sizes > 0, _FIRSTS[raw] + draws % np.maximum(sizes, 1), raw).astype(np.uint8)
    return pa.Array.from_buffers(pa.string(), len(shapes), [None, pa.py_buffer(offsets), pa.py_buffer(drawn)])


def _stream(digest: bytes, length: int) -> bytes:
    """Returns a byte or more for each of `length` characters."""
    if length <= _DRAWN:
        return digest
    more = (hashlib.sha256(digest + n.to_bytes(4, "big")).digest() for n in range(1, -(-length // _DRAWN)))
    return b"".join((digest, *more))


def _shape(character: str) -> str:
    if character.isascii():
        return character
    return "0" if character.isdecimal() else "A" if character.isupper() else "a"
