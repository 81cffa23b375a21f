"""Texts of JSON that become bytes, UUIDs and fixed, are read a column at a time as Python reads one."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import FixedType, IcebergType, UUIDType

from frazil.decode.json.text import TEXT_READERS, TextColumn
from tests.fixtures.chance import Chance

_UUID = "12345678-abCD-5678-1234-567812345678"
_FORM = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _read(kind: IcebergType, texts: Sequence[str | None]) -> tuple[list[bytes | None], list[bool]]:
    """The values, and which texts are bad."""
    bad = np.zeros(len(texts), np.uint8)
    valid = np.array([text is not None for text in texts], np.uint8)
    column = TextColumn(pa.array(texts, pa.string()), valid, bad)
    array = TEXT_READERS[type(kind)].read(column, kind, np.zeros(len(texts), np.uint8))
    array.validate(full=True)
    assert array.type == pa.binary(len(kind) if isinstance(kind, FixedType) else 16)
    return array.to_pylist(), (bad != 0).tolist()


_NO_UUIDS = [
    "", "x" * 36, f"{_UUID}\n", f"\n{_UUID}", f" {_UUID}", _UUID[:-1], f"{_UUID}0", _UUID.replace("-", ""), f"{{{_UUID}}}",
    _UUID.replace("a", "g"), _UUID.replace("1", "\u0661"), "1234567-8abCD-5678-1234-567812345678",
]  # fmt: skip


@pytest.mark.parametrize(
    "texts", [[None, _UUID, *_NO_UUIDS, _UUID.upper(), None], [_UUID] * 100, _NO_UUIDS, [None], []]
)
def test_uuids(texts: list[str | None]) -> None:
    good = [text is not None and _FORM.fullmatch(text) is not None for text in texts]
    expected = [uuid.UUID(text).bytes if text and is_good else None for text, is_good in zip(texts, good, strict=True)]
    assert _read(UUIDType(), texts) == (
        expected,
        [text is not None and not is_good for text, is_good in zip(texts, good, strict=True)],
    )


def _four_bytes(text: str | None) -> bytes | None:
    try:
        raw = None if text is None else base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if raw is not None and len(raw) == 4 else None


def test_fixed() -> None:
    chance = Chance(1)
    made = ["".join(chance.one_of("ABab01+/=- \né") for _ in range(chance.one_of((8, 8, 4, 7)))) for _ in range(3000)]
    made += ["".join(chance.one_of("ABz9") for _ in range(6)) + "==" for _ in range(100)]
    edges = [
        None,
        "QUJDRA==",
        "QUJDRA=",
        "QUJDRAA=",
        "QUJD",
        "QUJDRUZH",
        "",
        "====",
        "QUJDR===",
        "QUJDRA==\n",
        "QUJD RA==",
    ]
    for texts in ([*edges, *made], ["QUJDRA=="] * 10, edges[2:], [None], []):
        expected = [_four_bytes(text) for text in texts]
        bad = [text is not None and value is None for text, value in zip(texts, expected, strict=True)]
        assert _read(FixedType(4), texts) == (expected, bad)
