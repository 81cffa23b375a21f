"""Protobuf record values to columns: one walk for every schema (`scan`), then one reading per column.

Few records cannot be read in place by a walk: those where a message in a oneof is replaced by another member, or a
message that becomes JSON is written in two parts. Such a record is rewritten by Protobuf's own parser in the canonical
form, and is walked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from pyiceberg.types import StructType

from frazil.decode.columns import Bodies, Columns, Fault
from frazil.decode.limits import TooMuch, check_cells, may_guess
from frazil.decode.messages import OWN_FORMS, Forms
from frazil.error_classes import ErrorClass
from frazil.raw_memory import I32, U8
from frazil_protobuf import layout
from frazil_protobuf.columns import read_records
from frazil_protobuf.json import fault_of
from frazil_protobuf.program import Cells, Refusals, compile_program
from frazil_protobuf.scan import scan_messages
from frazil_protobuf.schema import load_message, load_rewriter, read_members, struct_of
from frazil_protobuf.wire import contiguous

_FAULTS = {
    layout.CUT: Fault(ErrorClass.MALFORMED, "the message is cut short, or a length goes beyond its end"),
    layout.LONG_VARINT: Fault(
        ErrorClass.MALFORMED, "a varint is longer than ten bytes or 64 bits, or a field's tag than five bytes"
    ),
    layout.BAD_TAG: Fault(ErrorClass.MALFORMED, "a field has the number 0 or one above 536,870,911"),
    layout.BAD_WIRE: Fault(ErrorClass.MALFORMED, "a field has the wire type 6 or 7, which do not exist"),
    layout.OPEN_GROUP: Fault(ErrorClass.MALFORMED, "a group does not end"),
    layout.STRAY_END: Fault(ErrorClass.MALFORMED, "a group ends that did not begin"),
    layout.UNEVEN: Fault(ErrorClass.MALFORMED, "packed values are cut short"),
    layout.BAD_TEXT: Fault(ErrorClass.INVALID_TEXT, "a string is not UTF-8"),
    layout.TOO_DEEP: Fault(ErrorClass.TOO_DEEP, f"messages are nested more than {layout.MAX_DEPTH} levels deep"),
    layout.TOO_LARGE: Fault(
        ErrorClass.TOO_LARGE,
        f"the items of its lists would become more than {layout.MAX_CELLS:,} values in columns, and 8 per byte, absent"
        " ones included: split it",
    ),
}
_MAX_FAULTS = 250
_TOO_MANY = Fault(ErrorClass.MALFORMED, "the record has more faults than one")
_KEPT_READERS = 256


@lru_cache(maxsize=_KEPT_READERS)
def protobuf_reader(descriptors: bytes, message: tuple[int, ...] | str, forms: Forms = OWN_FORMS) -> ProtobufReader:
    """Returns the reader of one message; the 256 used last are cached.

    descriptors, message: see load_message. forms: of values that are read in another form than their schema's own.

    Raises: UnusableSchema for a message that cannot be read as columns.
    """
    return ProtobufReader(descriptors, message, forms)


class ProtobufReader:
    """A Reader (see columns.py) of the records of one message type. Used by one thread at a time."""

    def __init__(self, descriptors: bytes, message: tuple[int, ...] | str, forms: Forms = OWN_FORMS) -> None:
        descriptor = load_message(descriptors, message)
        members = read_members(descriptor, forms)
        self._struct = struct_of(members)
        self._program = compile_program(members)
        self._descriptors, self._name = descriptors, descriptor.full_name
        self._rewriter: Any = None
        self._elements_per_record = np.ones(self._program.domain_count)

    @property
    def struct(self) -> StructType:
        """The Iceberg type of a record; field ids are placeholders."""
        return self._struct

    @property
    def described(self) -> tuple[bytes, str]:
        """The descriptors, and the full name of the message."""
        return self._descriptors, self._name

    def read(self, records: Bodies) -> Columns:
        """Returns the columns; see Reader. Bad records raise nothing."""
        fault = np.zeros(len(records), np.uint8)
        faults = _Faults(self._program.paths)
        bodies, cells, slow = records, *self._walk(records, fault, faults)
        if slow.any():
            bodies = self._rewrite(records, np.flatnonzero(slow).tolist(), fault, faults)
            cells, _ = self._walk(bodies, fault, faults)
        while True:
            refusals = Refusals()
            arrays = read_records(cells, refusals)
            if not refusals.by_row:
                return Columns(arrays, fault, faults.faults, faults.paths, faults.values)
            faults.values |= refusals.values
            for row, (reason, path) in refusals.by_row.items():
                faults.add(fault, row, reason, path)
            cells, _ = self._walk(bodies, fault, faults)

    def _walk(self, bodies: Bodies, fault: U8, faults: _Faults) -> tuple[Cells, U8]:
        """Walks over the records without a `fault`, again when there was not room enough. Returns the cells, and which
        records must be rewritten.
        """
        program, rows = self._program, len(bodies)
        capacity = np.ceil(self._elements_per_record * rows).astype(np.int64)
        np.minimum(capacity, int((bodies.end - bodies.start).sum(dtype=np.int64)) + 1, out=capacity)
        used = np.zeros(program.domain_count, np.int64)
        where = np.full(rows, -1, np.int32)
        start, end = contiguous(bodies.start), contiguous(bodies.end)
        capacity[0] = rows
        if not may_guess(program.place_columns(capacity)[1]):
            capacity[:] = 0  # The numbers of earlier records do not apply: these are counted first.
        while True:
            capacity[0] = rows
            column_at, size = program.place_columns(capacity)
            check_cells(size)
            words, flags = np.zeros(size, np.int64), np.zeros(size, np.uint8)
            slow = np.zeros(rows, np.uint8)
            scan_messages(
                bodies.base, start, end, program.place_fields(column_at), program.messages,
                program.index_numbers, program.index_fields, column_at, program.column_domain, capacity, used, words, flags,
                fault, where, slow,
            )  # fmt: skip
            if (used <= capacity).all():
                break
            capacity = used.copy()
        if rows:
            self._elements_per_record = np.maximum(used * 1.1 / rows, 1.0)
        faults.note(where)
        return Cells(program, bodies, column_at, words, flags, used, fault != layout.OK), slow

    def _rewrite(self, bodies: Bodies, rows: list[int], fault: U8, faults: _Faults) -> Bodies:
        """Returns the same records, those of `rows` in the form that Protobuf itself writes."""
        if self._rewriter is None:
            self._rewriter = message_factory.GetMessageClass(load_rewriter(self._descriptors, self._name))
        start, end = bodies.start.copy(), bodies.end.copy()
        parts: list[bytes] = []
        at = bodies.buffer.size
        for row in rows:
            try:
                message = self._rewriter.FromString(bodies.buffer[start[row] : end[row]].tobytes())
            except DecodeError as error:
                faults.add(fault, row, fault_of(error), "")
                continue
            raw = message.SerializePartialToString(deterministic=True)
            if at + len(raw) >= 2**31:
                faults.add(fault, row, _FAULTS[layout.TOO_LARGE], "")
                continue
            parts.append(raw)
            start[row], end[row] = at, at + len(raw)
            at += len(raw)
        buffer = np.concatenate([bodies.buffer, np.frombuffer(b"".join(parts), np.uint8)])
        return Bodies(buffer, start, end)


class _Faults:
    """The faults of one read: codes from the walk, and faults found later."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.faults = list(_FAULTS.values())
        self._codes = {reason: code for code, reason in enumerate(self.faults, 1)}
        self.paths: dict[int, str] = {}
        self.values: dict[int, str] = {}
        self._field_paths = paths

    def note(self, where: I32) -> None:
        """Adds the paths of the walk's faults."""
        for row in np.flatnonzero(where >= 0).tolist():
            self.paths[row] = self._field_paths[where[row]]

    def add(self, fault: U8, row: int, reason: Fault, path: str) -> None:
        """Refuses one more record.

        Raises: TooMuch where the records have more reasons than there are codes; half of them have fewer.
        """
        if reason not in self._codes and len(self.faults) >= _MAX_FAULTS:
            raise TooMuch(_TOO_MANY)
        if reason not in self._codes:
            self.faults.append(reason)
            self._codes[reason] = len(self.faults)
        fault[row] = self._codes[reason]
        if path:
            self.paths[row] = path
