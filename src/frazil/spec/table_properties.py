"""Table properties of Iceberg that Frazil reads itself when it writes files: what it could not do is said at once."""

from __future__ import annotations

import re
from contextlib import suppress

from frazil.errors import SpecError
from frazil.spec.problems import advice
from frazil.spec.units import parse_size

_FORMATS = ("write.format.default", "write.delete.format.default")
_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
_CODECS = ("zstd", "snappy", "gzip", "brotli", "lz4", "uncompressed")
_SIZES = (
    "write.target-file-size-bytes", "write.parquet.row-group-size-bytes", "write.parquet.page-size-bytes",
)  # fmt: skip


def check_property(text: str, key: str) -> None:
    """Raises a SpecError for a value that no file could be written with."""
    if key in _FORMATS and text.lower() != "parquet":
        raise SpecError(f"`properties.{key}` is `{text}`, and Frazil writes Parquet", remedy="remove it")
    if key == _CODEC and text.lower() not in _CODECS:
        raise SpecError(f"`properties.{key}` cannot be `{text}`", remedy=advice(text, _CODECS))
    if key == _LEVEL and re.fullmatch(r"-?[0-9]+|null", text, re.ASCII) is None:
        raise SpecError(f"`properties.{key}` is `{text}`, which is no level", remedy="write a number, such as 3")
    if key in _SIZES and not (_is_whole(text) and int(text)):
        size_bytes = 128 * 1024 * 1024
        with suppress(SpecError):
            size_bytes = parse_size(text)
        message = f"`properties.{key}` is `{text}`, and Iceberg takes a number of bytes"
        raise SpecError(message, remedy=f"write it in bytes, such as {size_bytes}")


def _is_whole(text: str) -> bool:
    return text.isdecimal() and text.isascii()
