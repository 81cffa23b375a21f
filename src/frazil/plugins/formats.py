"""Formats of records by name: what a pipeline file may declare of each, and which function decodes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyiceberg.types import BinaryType, IcebergType, IntegerType, LongType, StringType, StructType

from frazil.plugins.registration import Registered, function_of


@dataclass(frozen=True)
class Format:
    """One format of records."""

    #: `decode(reading, fields, records, limit)` returns a `decode.columns.Decoded` with the columns `fields` of the
    #: records' values; the function, or `module:name` of it.
    decode: Callable[..., Any] | str
    #: Whether values have fields; otherwise the value is one column, `value`.
    has_fields: bool = True
    #: Whether schemas are in the schema registry.
    needs_registry: bool = False
    #: The keys of `value` in the pipeline file, besides `format`, that have an effect.
    keys: tuple[str, ...] = ()
    #: The types that a column of a header in this format can have; empty: any.
    header_types: tuple[type[IcebergType], ...] = ()

    @property
    def decoder(self) -> Callable[..., Any]:
        """The function that decodes."""
        return function_of(self.decode)


@dataclass(frozen=True)
class MessageFormat:
    """What reads the schemas of a format."""

    #: The class of a `decode.messages.MessageSchemas`, or of `TextSchemas` for `json_schema`, as `module:name`.
    target: str

    @property
    def schemas(self) -> Any:
        """The instance that reads schemas; the same at each call."""
        return _instance_of(self.target)


@cache
def _instance_of(target: str) -> Any:
    return function_of(target)()


_BY_SCHEMA = "frazil.rows.writer_schemas:decode_with_schemas"
_PLAIN = "frazil.decode.plain:decode_plain"
_SCHEMA = ("schema", "framing", "subject")

FORMATS: Registered[Format] = Registered(
    "frazil.formats",
    "format",
    Format,
    {
        "avro": Format(_BY_SCHEMA, needs_registry=True, keys=(*_SCHEMA, "logical_types")),
        "protobuf": Format(_BY_SCHEMA, needs_registry=True, keys=(*_SCHEMA, "message"), header_types=(StructType,)),
        "json_schema": Format(_BY_SCHEMA, needs_registry=True, keys=_SCHEMA, header_types=(StructType,)),
        "json": Format("frazil.rows.decoder:decode_json_values"),
        "text": Format(_PLAIN, has_fields=False, header_types=(StringType, IntegerType, LongType)),
        "raw": Format(_PLAIN, has_fields=False, header_types=(BinaryType,)),
    },
)
"""Every format; of a package `format: NAME` in its group `frazil.formats`."""
MESSAGES: Registered[MessageFormat] = Registered("frazil.messages", "format", MessageFormat, {})
"""What reads the schemas of Protobuf and of JSON Schema; the core has no such reader."""
