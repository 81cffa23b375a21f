"""The values of a table's properties that files are written with.

Iceberg keeps any text as a value, and a writer finds out only when it begins a file; so they are compared here, in the
pipeline file and in tables that others have made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

CODECS = ("zstd", "snappy", "gzip", "brotli", "lz4", "lz4_raw", "uncompressed")
"""The values of `write.parquet.compression-codec`."""
CODEC = "write.parquet.compression-codec"
SIZES = (
    "write.target-file-size-bytes", "write.parquet.row-group-size-bytes", "write.parquet.page-size-bytes",
)  # fmt: skip
"""The properties with a number of bytes."""


@dataclass(frozen=True)
class WrongValue:
    """A value that no file can be written with."""

    name: str
    text: str
    #: The values that the property takes, in words.
    taken: str
    #: One of them.
    usual: str


@dataclass(frozen=True)
class _Values:
    """The values of a property, or of all whose names begin with `name` where it ends with a dot."""

    name: str
    takes: Callable[[str], bool]
    taken: str
    usual: str


def _matching(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text, re.ASCII | re.IGNORECASE) is not None


def _is_probability(text: str) -> bool:
    try:
        return 0 < float(text) < 1
    except ValueError:
        return False


_MODE = _matching(r"none|counts|full|truncate\([0-9]*[1-9][0-9]*\)")
_MODES = "none, counts, full or truncate(LENGTH)"
_VALUES = (
    *(_Values(name, _matching("[0-9]*[1-9][0-9]*"), "a number of bytes", "134217728") for name in SIZES[:2]),
    _Values(SIZES[2], _matching("[0-9]*[1-9][0-9]*"), "a number of bytes", "1048576"),
    _Values(CODEC, _matching("|".join(CODECS)), f"{', '.join(CODECS[:-1])} or {CODECS[-1]}", "zstd"),
    _Values("write.parquet.compression-level", _matching("-?[0-9]+|null|"), "a level, such as 3", "3"),
    _Values("write.parquet.bloom-filter-fpp.column.", _is_probability, "a share between 0 and 1", "0.01"),
    _Values("write.metadata.metrics.default", _MODE, _MODES, "truncate(16)"),
    _Values("write.metadata.metrics.column.", _MODE, _MODES, "truncate(16)"),
)
_EXACT = {values.name: values for values in _VALUES if not values.name.endswith(".")}
_OF_COLUMNS = tuple(values for values in _VALUES if values.name.endswith("."))


def wrong_values(properties: Mapping[str, str]) -> Iterator[WrongValue]:
    """Yields the properties of a table that no file can be written with."""
    for name, text in properties.items():
        values = _EXACT.get(name) or next(
            (column_values for column_values in _OF_COLUMNS if name.startswith(column_values.name)), None
        )
        if values is not None and not values.takes(text):
            yield WrongValue(name, text, values.taken, values.usual)
