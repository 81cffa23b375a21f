"""Records of a topic as a file of cases, their values masked before anything is written.

A mask has the form of its value: characters of words become others, digits other digits, a date a date. The same value has
the same mask in one file, so that keys still belong together; the key of the masks is random for each file, and forgotten.
"""

from __future__ import annotations

import hmac
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
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
from frazil.spec.syntax.shown import spelt
from frazil_testing.answers import flow
from frazil_testing.encoding import parsed_avro

_MOMENT = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:([T ])(\d{2}):(\d{2})(?::(\d{2}))?)?")
_IMAGES = ("before", "after", "data", "old", "fullDocument")
"""Parts of a change that hold values of rows; the others are of its envelope, and stay."""
_OF_CONNECTORS = "__"
"""Begins names of fields and headers that a connector adds, such as `__op`; their values stay."""
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_WITHOUT_SCHEMA = ("json", "text", "raw")


class Mask:
    """Masks values."""

    def __init__(self, kept: Sequence[str] = (), key: bytes = b"") -> None:
        """kept: fields whose values stay: names, also joined by dots, or regular expressions between slashes."""
        self._key = key or new_id().encode()
        self._kept = tuple(kept)

    def keeping(self, name: str) -> Mask:
        """Returns a mask that keeps the values of one more field."""
        return Mask((*self._kept, name), self._key)

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
        digest = _Digest(self._key, text)
        moment = _MOMENT.match(text)
        head = _masked_moment(moment, digest) if moment is not None else ""
        rest = text[moment.end() :] if moment is not None else text
        return head + "".join(map(digest.character, rest) if moment is None else rest)


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
        except ValueError:
            return "text", json.dumps(self._mask.text(text), ensure_ascii=False)
        if isinstance(document, str):
            return ("value" if is_json else "text"), json.dumps(self._mask.text(document), ensure_ascii=False)
        return name, flow(self._masked(document) if name == "value" else self._mask.value(document))

    def _masked(self, document: Any) -> Any:
        """Returns a value of a record with masks; of a change the parts with values of rows alone are masked."""
        if self._table.changes.envelope is None or not isinstance(document, Mapping):
            return self._mask.value(document)
        if isinstance(document.get("payload"), Mapping):
            return {**document, "payload": self._masked(document["payload"])}
        images = [name for name in _IMAGES if name in document]
        if not images:  # The fields of the row are beside those of the envelope.
            return self._mask.value(document)
        return {**document, **{name: self._mask.value(document[name]) for name in images}}

    def _header(self, name: str, value: bytes | None) -> str | None:
        if value is None:
            return None
        text = value.decode("utf-8", "replace")
        return text if name.startswith(_OF_CONNECTORS) else self._mask.text(text)

    def _decoded(self, record: ReadRecord, raw: bytes, value: ValueSpec, *, is_key: bool) -> tuple[Any, str]:
        """Returns the value that bytes with the number of a schema hold, and the name of the file with the schema.

        Raises: SpecError for a format, or for bytes, that cannot be decoded here.
        """
        place = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
        remedy = "write the case by hand, with the schema in a file beside it"
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
            decoded = schemaless_reader(io.BytesIO(raw[5:]), parsed_avro(schema.text)[0], None)
            return json.loads(as_json(decoded)), name
        except (ValueError, TypeError, EOFError, IndexError) as error:
            raise SpecError(f"the record cannot be decoded: {error}", remedy=remedy, where=place) from None
