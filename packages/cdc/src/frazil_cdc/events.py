"""CloudEvents, and events of an outbox, as one JSON object each.

What an event has in its headers and in its key is written around its data, so that the members of both are opened as
those of other envelopes are.

CloudEvents: Kafka Protocol Binding 1.0.2, sections 3.1 to 3.3. Outbox: Debezium's Outbox Event Router.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField

from frazil.cdc.envelope import BAD_HEADER, OTHER_DATA, OTHER_FORMAT
from frazil.cdc.json_envelopes import open_json
from frazil.decode.columns import Decoded, Mismatch
from frazil.decode.json import scan
from frazil.decode.json.records import open_any
from frazil.decode.settings import OWN_TYPES, Reading
from frazil.error_classes import ErrorClass
from frazil.rows.connect_messages import payloads_of
from frazil.schema.arrow import Records, arrow_type
from frazil_cdc.raw_json import members

_STRUCTURED, _PREFIX = "application/cloudevents", "ce_"
_ATTRIBUTES = frozenset(
    ("specversion", "id", "source", "type", "time", "subject", "dataschema", "datacontenttype", "data", "data_base64")
)
_OUTBOX_HEADERS = {
    "id": "id",
    "type": "type",
    "eventType": "type",
    "aggregatetype": "aggregatetype",
    "aggregateType": "aggregatetype",
}
"""By header of a routed event, the column of the outbox table that it has. The router always writes `id`."""
_HALF = "has half of a surrogate pair, which is not text"
_Event = tuple[bytes | None, int]
"""An event's JSON object, or a value that is not JSON, as it is; null where it has none. And the kind of an event that is
none (`frazil.cdc.envelope`), or 0.
"""


def open_cloud_events(records: Records, fields: tuple[NestedField, ...], reading: Reading, limit: int) -> Decoded:
    """Returns the columns `fields` of `frazil.cdc.envelope`, one CloudEvent per record. Bad records raise nothing."""
    values = _without_marks(records["value"])
    parts = zip(
        values.to_pylist(),
        np.isin(open_any(values)[2], (scan.OK, scan.ESCAPED_KEY)).tolist(),
        _headers(records["headers"]),
        strict=True,
    )
    return _opened([_cloud_event(*part) for part in parts], fields, reading, limit)


def open_outbox(records: Records, fields: tuple[NestedField, ...], reading: Reading, limit: int) -> Decoded:
    """Returns the columns `fields` of `frazil.cdc.envelope`, one outbox event per record. Bad records raise nothing."""
    values, keys = payloads_of(_without_marks(records["value"])), payloads_of(records["key"])
    lists = (
        values.to_pylist(),
        np.isin(open_any(values)[2], (scan.OK, scan.ESCAPED_KEY)).tolist(),
        _headers(records["headers"]),
        keys.to_pylist(),
    )
    return _opened([_outbox_event(*part) for part in zip(*lists, strict=True)], fields, reading, limit)


def _without_marks(values: pa.Array) -> pa.Array:
    """Returns the values without a byte order mark, which may begin a JSON text, and not one inside of another."""
    is_marked = pc.fill_null(pc.starts_with(values, BOM_UTF8), False)
    if not pc.any(is_marked).as_py():
        return values
    plain = [value.removeprefix(BOM_UTF8) for value in values.filter(is_marked).to_pylist()]
    return pc.replace_with_mask(values, is_marked, pa.array(plain, values.type))


def _opened(events: Sequence[_Event], fields: tuple[NestedField, ...], reading: Reading, limit: int) -> Decoded:
    objects = pa.array([value for value, _ in events], pa.binary())
    kinds = np.array([number for _, number in events], np.int32)
    decoded = open_json(objects, fields, reading, limit)
    columns = {field.name: column for field, column in zip(fields, decoded.columns, strict=True)}
    number = np.where(kinds > 0, kinds, np.asarray(columns["record_kind"]))
    columns["record_kind"] = pa.array(number.astype(np.int32))
    half: dict[int, str] = {}
    if "ce_extensions" in columns:
        columns["ce_extensions"], half = _extensions_of(objects)
    mismatches = [
        Mismatch(row, "", ErrorClass.INVALID_TEXT, f"the extension {json.dumps(name)} {_HALF}")
        for row, name in half.items()
        if not decoded.refused[row]
    ]
    is_half = np.isin(np.arange(len(events)), list(half))
    return replace(decoded, columns=list(columns.values())).refusing(is_half, mismatches, limit)


def _headers(lists: pa.ListArray) -> list[dict[str, bytes | None]]:
    """Returns the last header of each name, of each record; None for a header without a value."""
    flat = lists.flatten()
    names, values = flat.field("key").to_pylist(), flat.field("value").to_pylist()
    ends = np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(lists), 0))).tolist()
    return [dict(zip(names[at:to], values[at:to], strict=True)) for at, to in zip([0, *ends], ends, strict=False)]


def _cloud_event(value: bytes | None, is_json: bool, every: Mapping[str, bytes | None]) -> _Event:
    # An attribute without a value is absent.
    headers = {name: text for name, text in every.items() if text is not None}
    content = headers.get("content-type", b"").decode("latin-1")
    media_type = content.partition(";")[0].strip().lower()
    if media_type.startswith(_STRUCTURED):
        return _structured(value, is_json) if media_type == f"{_STRUCTURED}+json" else (None, OTHER_FORMAT)
    if f"{_PREFIX}specversion" not in headers:
        return _structured(value, is_json)
    if value is None:
        return None, 0
    if media_type and not media_type.endswith(("/json", "+json")):
        return None, OTHER_DATA
    if not is_json:
        return value, 0
    try:
        attributes = {name[len(_PREFIX) :]: text.decode() for name, text in headers.items() if name.startswith(_PREFIX)}
    except UnicodeDecodeError:
        return None, BAD_HEADER
    if content:
        attributes["datacontenttype"] = content
    return _object(attributes, "data", value), 0


def _structured(value: bytes | None, is_json: bool) -> _Event:
    if is_json and value is not None and b'"data_base64"' in value:
        names = dict(_read(value)).keys()
        if "data_base64" in names and "data" not in names:
            return None, OTHER_DATA
    return value, 0


def _read(value: bytes | None) -> list[tuple[str, str]]:
    """Returns the names of a JSON object with the texts of their values; none of another value."""
    try:
        return members((value or b"").decode())
    except (ValueError, RecursionError):
        return []


def _object(own: Mapping[str, Any], name: str, value: bytes) -> bytes:
    """Returns a JSON object of these members, without those that are None, and one whose value is a JSON text."""
    texts = json.dumps({member: text for member, text in own.items() if text is not None})[1:-1]
    head = f'{{{texts}{"," if texts else ""}"{name}":'.encode()
    return head + value + b"}"


def _extensions_of(objects: pa.BinaryArray) -> tuple[pa.Array, dict[int, str]]:
    """Returns the extension attributes of CloudEvents, maps of texts, values other than texts as JSON; and by row, of the
    rows that have one, the name of an attribute with half of a surrogate pair: these rows have no attributes.
    """
    events, half = [list(_texts(_read(value))) for value in objects.to_pylist()], {}
    for row, texts in enumerate(events):
        name = next((name for name, text in texts if not _is_text(name + text)), None)
        if name is not None:
            half[row], events[row] = name, []
    return pa.array(events, arrow_type(OWN_TYPES["ce_extensions"])), half


def _texts(event: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for name, text in event:
        if name not in _ATTRIBUTES and text != "null":
            yield name, json.loads(text) if text.startswith('"') else text


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _outbox_event(value: bytes | None, is_json: bool, headers: Mapping[str, bytes | None], key: bytes | None) -> _Event:
    if value is None or not is_json or "id" not in headers:
        return value, 0  # A row of the outbox table in Debezium's envelope.
    try:
        own = {column: _text(headers[name]) for name, column in _OUTBOX_HEADERS.items() if name in headers}
        own["id"] = own["id"] or None  # An empty id would make one row of all events that have it.
        own["aggregateid"] = _text(key)
    except UnicodeDecodeError:
        return None, BAD_HEADER
    return b'{"op":"c","after":' + _object(own, "payload", value) + b"}", 0


def _text(raw: bytes | None) -> str | None:
    """Returns the text of a header or a key, which some converters write as a JSON string."""
    if raw is None:
        return None
    text = raw.decode()
    try:
        decoded = json.loads(text) if text.startswith('"') else text
    except ValueError:
        return text
    return str(decoded)
