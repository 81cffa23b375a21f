"""What the core asks of Protobuf: the port `frazil.decode.messages.MessageSchemas`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.types import DateType, NestedField, TimeType

from frazil.decode.columns import Bodies, Fault, Reader
from frazil.decode.connect.values import GOOGLE_DATE, GOOGLE_TIME, GOOGLE_TIMESTAMP, LogicalType
from frazil.decode.messages import FIRST, OWN_FORMS, Forms, Indexed, Message
from frazil.decode.renames import FedColumns
from frazil.decode.settings import Envelope, Reading, WriterSchema
from frazil.rows.writer_schemas import decode_with_schemas
from frazil.schema.selection import Path
from frazil_protobuf import json_structs
from frazil_protobuf.connect_names import logical_types_of_protobuf
from frazil_protobuf.program import may_repeat_keys
from frazil_protobuf.protoc import compile_proto
from frazil_protobuf.reader import ProtobufReader, protobuf_reader
from frazil_protobuf.schema import load_message
from frazil_protobuf.wire import MESSAGE_INDEX_FAULTS, split_message_indexes

# A message of proto2, whose code includes all that proto3 needs: message Warm { optional string s = 1; }
_WARM_DESCRIPTORS = bytes.fromhex("0a1f0a0a7761726d2e70726f746f22110a045761726d12090a0173180120012809")


class ProtobufSchemas:
    """Implements the port `MessageSchemas`."""

    @property
    def index_faults(self) -> Sequence[Fault]:
        return MESSAGE_INDEX_FAULTS

    def compile(self, text: str, references: tuple[tuple[str, str], ...]) -> bytes:
        return compile_proto(text, references)

    def full_name(self, descriptors: bytes) -> str:
        return str(load_message(descriptors, FIRST).full_name)

    def reader(self, descriptors: bytes, message: Message, forms: Forms = OWN_FORMS) -> ProtobufReader:
        return protobuf_reader(descriptors, message, forms)

    def logical_types(
        self, reader: Reader, columns: Sequence[NestedField], envelope: Envelope | None
    ) -> Mapping[Path, LogicalType]:
        """See the port. In an envelope of Debezium, Google's messages for times are those of Connect's converter. Elsewhere
        a timestamp is an instant, and without any envelope a date or time stays a struct, unless the column is declared with
        a time type.
        """
        assert isinstance(reader, ProtobufReader)
        logical_types = logical_types_of_protobuf(*reader.described)
        if not logical_types or (envelope is not None and envelope.kind in ("debezium", "none")):
            return logical_types
        logical_types = {
            path: logical_type for path, logical_type in logical_types.items() if logical_type.name != GOOGLE_TIMESTAMP
        }
        if envelope is not None:
            return logical_types
        fed = FedColumns(reader.struct, columns)
        return {
            path: logical_type
            for path, logical_type in logical_types.items()
            if logical_type.name not in (GOOGLE_DATE, GOOGLE_TIME) or isinstance(fed.type_at(path), DateType | TimeType)
        }

    def split_indexes(self, bodies: Bodies) -> Indexed:
        return split_message_indexes(bodies)

    def warm_up(self, compiles_all: bool) -> None:
        """See the port. Few tables need the function that writes JSON, and it takes seconds to compile."""
        json_structs.warm_up(compiles_all)
        reading = Reading(format="protobuf", schemas=(("2", WriterSchema("protobuf", descriptors=_WARM_DESCRIPTORS)),))
        decode_with_schemas(reading, (), {"value": pa.array([b"\0\0\0\0\2\0\n\1a"], pa.binary())}, 1)
        if compiles_all:
            may_repeat_keys(np.zeros(1, np.int64), np.zeros(0, np.int64))
