"""Records of a topic as a file of cases, their values masked before anything is written.

A mask has the form of its value: characters of words become others, digits other digits, a date a date. The same value has
the same mask in one file, so that keys still belong together; the key of the masks is random for each file, and forgotten.
"""

from __future__ import annotations

import hmac
import io
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastavro import schemaless_reader

from frazil.clock import new_id
from frazil.decode.values_as_json import as_json
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tables.schemas import Schemas
from frazil.kafka.port import ReadRecord
from frazil.literals import format_moment
from frazil.spec import TableSpec
from frazil.spec.settings import ValueSpec
from frazil.spec.syntax.shown import quoted, spelt
from frazil_testing.answers import flow
from frazil_testing.encoding import WrongValue, parsed_avro

_MOMENT = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:([T ])(\d{2}):(\d{2})(?::(\d{2}))?)?", re.ASCII)
_BEHIND_MOMENT = re.compile(r"(?:[.,]\d+)?\s?(?:[Zz]|[+-]\d{2}(?::?\d{2})?)?", re.ASCII)
"""What follows a date or a time in its text: a fraction of a second, and a zone."""
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IMAGES = ("before", "after", "data", "old", "fullDocument")
"""Parts of a change that hold values of rows, by which its envelope is recognised."""
_OF_ENVELOPES: Mapping[str, frozenset[str]] = {
    "debezium": frozenset(("op", "source", "transaction", "ts_ms", "ts_us", "ts_ns")),
    "outbox": frozenset(("op", "source", "transaction", "ts_ms", "ts_us", "ts_ns")),
    "maxwell": frozenset(
        ("type", "database", "table", "ts", "xid", "xoffset", "commit", "position", "server_id", "thread_id",
         "schema_id", "primary_key_columns")
    ),
    "canal": frozenset(("type", "database", "table", "ts", "es", "id", "isDdl", "pkNames", "sqlType", "mysqlType", "gtid")),
    "dms": frozenset(("metadata",)),
    "cloudevents": frozenset(("specversion", "type", "source", "time", "datacontenttype", "dataschema")),
}  # fmt: skip
"""By envelope the parts of a change that have no values of rows, and stay."""
_STATEMENT = "query"
"""The part of Debezium's `source` that has the statement of a change, with its values."""
_OF_CONNECTORS = "__"
"""Begins names of fields and headers that a connector adds, such as `__op`; their values stay."""
_OF_ERRORS = "__connect.errors."
"""Begins names of headers whose messages may quote a record."""
_OF_KEYS = ("__debezium.newkey", "__debezium.oldkey")
"""Headers that have the key of another record."""
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_UNDECODABLE = (
    ArithmeticError, EOFError, LookupError, RecursionError, TypeError, ValueError, WrongValue, struct.error,
)  # fmt: skip
"""What fastavro raises for bytes that are not of a schema, times and numbers beyond Python's among them."""
_HEX = "0123456789abcdef"
_WITHOUT_SCHEMA = ("json", "text", "raw")


class Mask:
    """Masks values."""

    def __init__(self, kept: Sequence[str] = (), key: bytes = b"", texts: frozenset[str] = frozenset()) -> None:
        """kept: fields whose values stay: names, also joined by dots, or regular expressions between slashes. texts: values
        that stay in every field.
        """
        self._key = key or new_id().encode()
        self._kept = tuple(kept)
        self._texts = texts

    def keeping(self, name: str) -> Mask:
        """Returns a mask that keeps the values of one more field."""
        return Mask((*self._kept, name), self._key, self._texts)

    def keeping_texts(self, texts: frozenset[str]) -> Mask:
        """Returns a mask that keeps these values too."""
        return Mask(self._kept, self._key, self._texts | texts)

    def keeps(self, path: tuple[str, ...]) -> bool:
        """Whether the values of a field stay."""
        name = ".".join(path)
        return any(
            re.search(kept[1:-1], name) is not None
            if len(kept) > 2 and kept.startswith("/") and kept.endswith("/")
            else name == kept or name.startswith(f"{kept}.") or name.endswith(f".{kept}")
            for kept in self._kept
        )

    def value(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """Returns a value of JSON with masks in place of texts and numbers. path: the names of the fields to it."""
        if isinstance(value, Mapping):
            return {
                name: member if name.startswith(_OF_CONNECTORS) else self.value(member, (*path, name))
                for name, member in value.items()
            }
        if isinstance(value, list):
            return [self.value(member, path) for member in value]
        if value is None or isinstance(value, bool) or self.keeps(path):
            return value
        if isinstance(value, str):
            return self.text(value)
        digest, text = _Digest(self._key, json.dumps(value)), json.dumps(value)
        return json.loads("".join(digest.character(sign) if sign.isdecimal() else sign for sign in text))

    def text(self, text: str) -> str:
        """Returns the mask of a text."""
        if text in self._texts:
            return text
        digest = _Digest(self._key, text)
        if _UUID.fullmatch(text):
            return "".join(sign if sign == "-" else _HEX[digest.number(16)] for sign in text)
        moment = _MOMENT.match(text)
        if moment is None:
            return "".join(map(digest.character, text))
        head, rest = _masked_moment(moment, digest), text[moment.end() :]
        is_zone = moment[4] is not None and _BEHIND_MOMENT.fullmatch(rest)
        return head + (rest if is_zone else "".join(map(digest.character, rest)))


class _Digest:
    """A stream of numbers that a text determines."""

    def __init__(self, key: bytes, text: str) -> None:
        self._key, self._text, self._block, self._left = key, text.encode("utf-8", "surrogatepass"), 0, b""

    def number(self, below: int) -> int:
        """Returns the next number from 0 to below."""
        if not self._left:
            self._block += 1
            self._left = hmac.digest(self._key, self._block.to_bytes(4, "big") + self._text, "sha256")
        byte, self._left = self._left[0], self._left[1:]
        return byte % below

    def character(self, character: str) -> str:
        """Returns the mask of a character: of a digit a digit. 0 stays, so that no number begins with it."""
        if character.isdecimal():
            return character if character == "0" else str(1 + self.number(9))
        if not character.isalpha():
            return character
        masked = _ALPHABET[self.number(len(_ALPHABET))]
        return masked.upper() if character.isupper() else masked


def _masked_moment(moment: re.Match[str], digest: _Digest) -> str:
    day = f"{2000 + digest.number(30)}-{1 + digest.number(12):02}-{1 + digest.number(28):02}"
    if moment[4] is None:
        return day
    seconds = f":{digest.number(60):02}" if moment[7] is not None else ""
    return f"{day}{moment[4]}{digest.number(24):02}:{digest.number(60):02}{seconds}"


def record_cases(
    table: TableSpec, name: str, records: Sequence[ReadRecord], path: Path, mask: Mask, schemas: Schemas | None
) -> None:
    """Writes a file with one case, which has the masked records, and beside it the schemas that they name. table: the
    settings under which the records are read. name: of the table.

    Raises: SpecError for a format whose values cannot be masked, and for a file that exists; UnavailableError where it
    cannot be written.
    """
    recording = _Recording(table, path, mask, schemas)
    lines = [f"table: {spelt(name)}", "cases:", f"  {spelt(f'recorded from {name}')}:", "    records:"]
    for record in records:
        lines += recording.lines(record)
    try:
        for file_name, text in recording.files.items():
            (path.parent / file_name).write_text(text, encoding="utf-8")
        with path.open("x", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except FileExistsError:
        raise SpecError("the file of cases exists", remedy="name another file", where=str(path)) from None
    except OSError as error:
        remedy = "name a file in a folder that exists and can be written"
        raise UnavailableError(
            f"the cases cannot be written: {error.strerror}", remedy=remedy, where=str(path)
        ) from None


class _Recording:
    def __init__(self, table: TableSpec, path: Path, mask: Mask, schemas: Schemas | None) -> None:
        self._table = table
        self._stem = path.stem
        envelope = table.changes.envelope
        self._mask = mask.keeping(envelope.operation) if envelope is not None and envelope.operation else mask
        self._schemas = schemas
        #: The schemas, by the name of their file.
        self.files: dict[str, str] = {}

    def lines(self, record: ReadRecord) -> Iterator[str]:
        """Yields the lines of a record."""
        entries = dict(self._entries(record))
        yield from (
            f"      {'- ' if number == 0 else '  '}{name}: {text}"
            for number, (name, text) in enumerate(entries.items())
        )

    def _entries(self, record: ReadRecord) -> Iterator[tuple[str, str]]:
        yield from self._value(record)
        if record.key is not None:
            yield from self._key(record)
        headers = {name: self._header(name, value) for name, value in record.headers}
        if headers:
            yield "headers", flow(headers)
        yield "topic", spelt(record.topic)
        if record.partition:
            yield "partition", str(record.partition)
        if record.timestamp_ms is not None:
            yield "timestamp", f"{format_moment(record.timestamp_ms * 1000, 'milliseconds')}Z"

    def _value(self, record: ReadRecord) -> Iterator[tuple[str, str]]:
        value = self._table.source.value
        if record.value is None:
            yield "value", "null"
        elif value.format in _WITHOUT_SCHEMA:
            yield self._plain(record.value, "value", value.format == "json")
        else:
            document, name = self._decoded(record, record.value, value, is_key=False)
            yield "value", flow(self._masked(document))
            yield "schema", name

    def _key(self, record: ReadRecord) -> Iterator[tuple[str, str]]:
        key = self._table.source.key
        assert record.key is not None
        if key.format in _WITHOUT_SCHEMA:
            yield "key", self._plain(record.key, "key", is_json=True)[1]
        else:
            document, name = self._decoded(record, record.key, key, is_key=True)
            yield "key", flow(self._mask.value(document))
            yield "key_schema", name

    def _plain(self, raw: bytes, name: str, is_json: bool) -> tuple[str, str]:
        """Returns a value of JSON, or the masked text of another value, with the key that it is written under."""
        text = raw.decode("utf-8", "replace")
        try:
            document = json.loads(text) if is_json else text
        except (ValueError, RecursionError):
            return "text", quoted(self._mask.text(text))
        if isinstance(document, str):
            return ("value" if is_json else "text"), quoted(self._mask.text(document))
        masked = self._masked(document) if name == "value" else self._of_payload(document, self._mask.value)
        if _has_surrogate(masked):  # JSON may escape a half of a pair, which no text has.
            return ("json" if name == "value" else name), quoted(json.dumps(masked))
        return name, flow(masked)

    def _masked(self, document: Any) -> Any:
        """Returns a value of a record with masks; of a change the parts with values of rows alone are masked."""
        return self._of_payload(document, self._of_change)

    def _of_payload(self, document: Any, mask: Callable[[Any], Any]) -> Any:
        """Returns a value with masks; of Kafka Connect's JSON, which has its schema, the payload alone is masked."""
        if isinstance(document, Mapping) and document.keys() == {"schema", "payload"}:
            return {"schema": document["schema"], "payload": mask(document["payload"])}
        return mask(document)

    def _of_change(self, document: Any) -> Any:
        envelope = self._table.changes.envelope
        if envelope is None or not isinstance(document, Mapping) or not any(name in document for name in _IMAGES):
            return self._mask.value(document)  # The fields of the row may be beside those of an envelope.
        kept = _OF_ENVELOPES.get(envelope.kind, frozenset())
        return {
            name: self._without_statement(member)
            if name in kept
            else self._mask.value(member, () if name in _IMAGES else (name,))
            for name, member in document.items()
        }

    def _without_statement(self, member: Any) -> Any:
        if not isinstance(member, Mapping) or _STATEMENT not in member:
            return member
        return {**member, _STATEMENT: self._mask.value(member[_STATEMENT])}

    def _header(self, name: str, value: bytes | None) -> str | None:
        if value is None:
            return None
        text = value.decode("utf-8", "replace")
        if name in _OF_KEYS:
            try:
                return json.dumps(self._of_payload(json.loads(text), self._mask.value))
            except (ValueError, RecursionError):
                return self._mask.text(text)
        stays = name.startswith(_OF_CONNECTORS) and not name.startswith(_OF_ERRORS)
        return text if stays else self._mask.text(text)

    def _decoded(self, record: ReadRecord, raw: bytes, value: ValueSpec, *, is_key: bool) -> tuple[Any, str]:
        """Returns the value that bytes with the number of a schema hold, and the name of the file with the schema.

        Raises: SpecError for a format, or for bytes, that cannot be decoded here.
        """
        place = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
        remedy = "write the case by hand, with the schema in a file next to it"
        number = int.from_bytes(raw[1:5], "big")
        if self._schemas is None or value.format not in ("avro", "json_schema") or value.framing != "confluent":
            raise SpecError(f"records in {value.format} cannot be masked", remedy=remedy, where=place)
        (schema,) = self._schemas.fetch([str(number)], record.topic, value, is_key).values()
        if schema.kind not in ("avro", "json_schema") or schema.references or raw[:1] != b"\0":
            raise SpecError("the schema of the record cannot be written into one file", remedy=remedy, where=place)
        name = f"{self._stem}-{number}.{'avsc' if schema.kind == 'avro' else 'json'}"
        self.files[name] = schema.text
        try:
            if schema.kind == "json_schema":
                return json.loads(raw[5:]), name
            parsed, names = parsed_avro(schema.text)
            decoded = schemaless_reader(io.BytesIO(raw[5:]), parsed, None)
            symbols = [frozenset(kind.get("symbols", ())) for kind in names.values()]
            self._mask = self._mask.keeping_texts(frozenset[str]().union(*symbols))  # Others could not be written.
            return json.loads(as_json(decoded)), name
        except _UNDECODABLE as error:
            raise SpecError(f"the record cannot be decoded: {error}", remedy=remedy, where=place) from None


def _has_surrogate(document: Any) -> bool:
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
