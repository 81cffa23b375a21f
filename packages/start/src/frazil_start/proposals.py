"""A first pipeline file for the topics of a cluster, proposed from a few records of each.

What is proposed is what the records show: format, envelope, and whether the topic has changes of rows with keys. Topics
without such records are left out and named in a comment. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from frazil.cdc.envelope import IGNORED
from frazil.cdc.envelope_columns import IMAGES_OF, record_kind_of
from frazil.kafka.port import ReadRecord
from frazil.printable import plural
from frazil.registry.port import RegisteredSchema

_INTERNAL = re.compile(
    r"_.*|.*connect[-_.](configs?|offsets?|status(es)?)|.*-(changelog|repartition)|.*schema-?changes?(\..*)?|.*-heartbeat\..*"
)
"""Topics of Kafka, Connect, Kafka Streams and Debezium themselves."""
_ENVELOPES = {
    "debezium": {"op", "before", "after"},
    "canal": {"isDdl", "type", "data"},
    "maxwell": {"database", "table", "type", "data"},
}
"""The members by which an envelope is known; the first that has all of them is taken. Canal's has Maxwell's too."""
_ORIGINS = (("database", "db"), ("schema", "schema"), ("table", "table"))
"""Where a row comes from: the end of the name in `metadata`, and the member of Debezium's `source`."""
_WITHOUT_COLUMNS = ("text", "raw")
"""Formats of values that are one column."""
_SPACES = dict.fromkeys(map(ord, "\t\r\n"), " ")
_DAMAGED = (
    10  # Up to one record in so many may be damaged in a topic of JSON or of a registry: it becomes a dead letter.
)
_HEAD = 5  # The bytes of Confluent's wire format before the value.

Schemas = Callable[[int], RegisteredSchema | None]
"""Returns a schema of the registry by its id."""


@dataclass(frozen=True)
class Proposal:
    """What is proposed for one topic."""

    topic: str
    #: The settings of its table; None for a topic that is left out.
    settings: Mapping[str, Any] | None
    #: What was seen, or why it is left out.
    seen: str


@dataclass
class _Form:
    """What bytes are."""

    #: The format; empty where it is unknown.
    name: str
    #: The names of fields that all of them have.
    fields: set[str] = field(default_factory=set)
    is_connect: bool = False
    #: The names of fields in rows before and after changes.
    rows: set[str] = field(default_factory=set)
    #: The kinds of Debezium's records that change no row; empty where one of them may be a row or a change.
    ignored: set[str] = field(default_factory=set)
    #: How many of them are damaged, and do not have the format.
    damaged: int = 0


def is_internal(topic: str) -> bool:
    """Whether the topic has records of Kafka, Connect, Kafka Streams or Debezium themselves."""
    return _INTERNAL.fullmatch(topic) is not None


WAITS = "its records wait behind an open transaction"
"""Why a topic is left out whose records no consumer of committed records may read yet."""


def propose(
    topic: str, records: Sequence[ReadRecord], schemas: Schemas | None, has_open_transaction: bool = False
) -> Proposal:
    """Returns what is proposed for a topic. schemas: the registry; None without one."""
    if is_internal(topic):
        return Proposal(topic, None, "internal")
    values = [record.value for record in records if record.value is not None]
    if not values:
        return Proposal(topic, None, WAITS if has_open_transaction else "no records to look at")
    form = _form_of(values, schemas)
    if not form.name:
        return Proposal(topic, None, "the values look like those of a schema registry: name it with --registry")
    if form.ignored:
        return Proposal(topic, None, f"a connector's records that change no row: {', '.join(sorted(form.ignored))}")
    settings: dict[str, Any] = {"topic": topic}
    if form.name != "json":
        settings["value"] = {"format": form.name}
    first = next((name for name, members in _ENVELOPES.items() if form.fields >= members), "")
    envelope = first if form.name == "json" or first == "debezium" else ""
    if envelope:
        settings["envelope"] = envelope
    words = [_shown(form, len(records)), *(["Kafka Connect's schema in each"] if form.is_connect else [])]
    words += [f"changes of {envelope.capitalize()}"] if envelope else []
    settings |= _keys(records, envelope, schemas, words, has_columns=form.name not in _WITHOUT_COLUMNS)
    if envelope == "debezium" and "mode" in settings:
        settings |= _shards(
            records, _form_of([record.key for record in records if record.key is not None], schemas), form, words
        )
    return Proposal(topic, settings, ", ".join(words))


def _shards(records: Sequence[ReadRecord], key: _Form, form: _Form, words: list[str]) -> dict[str, Any]:
    """Returns the settings for changes whose keys have fields that rows lack, as ByLogicalTableRouter adds one for the
    table of the row; nothing for others. words: what was seen, to be added to.
    """
    absent = key.fields - form.rows
    if not (absent and key.fields & form.rows):
        return {}
    words.append(f"rows lack {', '.join(sorted(absent))}, so that the source table identifies each too")
    sources = [change["source"] for record in records if isinstance((change := _change_of(record)).get("source"), dict)]
    own_names = [
        name for name, member in _ORIGINS if name == "table" or len({str(source.get(member)) for source in sources}) > 1
    ]
    columns = [*(f"_source_{name}" for name in own_names), *sorted(key.fields & form.rows)]
    return {"metadata": [f"source_{name}" for name in own_names], "key_columns": columns}


def _change_of(record: ReadRecord) -> dict[str, Any]:
    """Returns the change in a JSON record, with or without its schema; nothing for other records."""
    decoded = _object_of(record.value or b"") or {}
    payload = decoded.get("payload") if decoded.keys() == {"schema", "payload"} else decoded
    return payload if isinstance(payload, dict) else {}


def _keys(
    records: Sequence[ReadRecord], envelope: str, schemas: Schemas | None, words: list[str], has_columns: bool
) -> dict[str, Any]:
    """Returns the settings for records with keys. words: what was seen, to be added to. has_columns: whether values have
    fields that can be key columns.
    """
    keys = [record.key for record in records if record.key is not None]
    key = _form_of(keys, schemas) if len(keys) == len(records) else _Form("")
    has_tombstones = any(record.value is None for record in records)
    if has_tombstones:
        words.append("tombstones")
    if not (envelope or has_tombstones):
        words += ["add `mode: upsert` and `key_columns` to keep one row for each key"] if has_columns else []
        return {}
    if not key.fields:
        words.append("add `mode: upsert` and `key_columns` to apply the changes: the keys have no fields")
        return {}
    words.append(f"keys of {', '.join(sorted(key.fields))}")
    return {"mode": "upsert", "key": {"format": key.name}}


def _form_of(values: Sequence[bytes], schemas: Schemas | None) -> _Form:
    """Returns what these bytes are, except for the few that are damaged."""
    if not values:
        return _Form("")
    with_ids = [value for value in values if value[:1] == b"\0" and len(value) >= _HEAD]
    if _are_most(len(with_ids), len(values)):
        return _registered_form(with_ids, schemas, len(values))
    objects = [_object_of(value) for value in values]
    present = [decoded for decoded in objects if decoded is not None]
    if not _are_most(len(present), len(values)):
        return _Form("text" if all(map(_is_text, values)) else "raw")
    is_connect = all({"schema", "payload"} == decoded.keys() for decoded in present)
    rows = [decoded["payload"] if is_connect else decoded for decoded in present]
    named = [set(row) if isinstance(row, dict) else set() for row in rows]
    images = [
        row[name] for row in rows if isinstance(row, dict) for name in IMAGES_OF if isinstance(row.get(name), dict)
    ]
    form = _form("json", named, is_connect, [set(image) for image in images])
    return replace(form, damaged=len(values) - len(present))


def _are_most(part: int, count: int) -> bool:
    """Whether so few of the records are damaged that the others show the format."""
    return part * _DAMAGED >= count * (_DAMAGED - 1)


def _registered_form(with_ids: Sequence[bytes], schemas: Schemas | None, count: int) -> _Form:
    """Returns what records are that have schema ids; without a name where the registry does not know most of the ids.
    count: of the records, of which others have no id.
    """
    numbers = [int.from_bytes(value[1:_HEAD]) for value in with_ids]
    registered = {number: schemas(number) for number in set(numbers)} if schemas else {}
    known_schemas = {number: schema for number, schema in registered.items() if schema is not None}
    kinds = {schema.kind for schema in known_schemas.values()}
    decodable = sum(number in known_schemas for number in numbers)
    if len(kinds) != 1 or not _are_most(decodable, count):
        return _Form("")
    form = _form(
        kinds.pop(),
        [_fields_of(schema) for schema in known_schemas.values()],
        rows=[_row_fields_of(schema) for schema in known_schemas.values()],
    )
    return replace(form, damaged=count - decodable)


def _form(name: str, named: Sequence[set[str]], is_connect: bool = False, rows: Iterable[set[str]] = ()) -> _Form:
    """Returns what records are whose fields have these names. rows: the fields of the rows in them."""
    kinds = {IGNORED.get(record_kind_of([*names]), "") for names in named}
    return _Form(name, set.intersection(*named), is_connect, set().union(*rows), set() if "" in kinds else kinds)


def _object_of(value: bytes) -> dict[str, Any] | None:
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def _is_text(value: bytes) -> bool:
    try:
        return value.decode().translate(_SPACES).isprintable()
    except UnicodeDecodeError:
        return False


def _fields_of(schema: RegisteredSchema) -> set[str]:
    """Returns the names of a schema's own fields; for Protobuf those that its text names."""
    if schema.kind == "protobuf":
        return set(re.findall(r"(\w+)\s*=\s*\d+\s*[;\[]", schema.text))
    parsed = json.loads(schema.text)
    if not isinstance(parsed, dict):
        return set()
    return set(parsed.get("properties", ())) | {field["name"] for field in parsed.get("fields", ())}


def _row_fields_of(schema: RegisteredSchema) -> set[str]:
    """Returns the names of fields of the rows in an envelope's schema, which it describes once; none for Protobuf."""
    parsed = json.loads(schema.text) if schema.kind != "protobuf" else None
    if not isinstance(parsed, dict):
        return set()
    images = [field.get("type") for field in parsed.get("fields", ()) if field["name"] in IMAGES_OF]
    images += [parsed.get("properties", {}).get(name) for name in IMAGES_OF]
    return set().union(*map(_names_in, images))


def _names_in(kind: Any) -> set[str]:
    """Returns the names of the fields of a record in a schema, which may be one of several choices."""
    if isinstance(kind, list):
        return set().union(*map(_names_in, kind))
    if not isinstance(kind, dict):
        return set()
    own_names = {field["name"] for field in kind.get("fields", ())} | set(kind.get("properties", ()))
    return own_names.union(*(_names_in(kind.get(word)) for word in ("oneOf", "anyOf")))


def _shown(form: _Form, count: int) -> str:
    names = {
        "json": "JSON",
        "avro": "Avro",
        "protobuf": "Protobuf",
        "json_schema": "JSON with a schema of the registry",
    }
    name = names.get(form.name, form.name)
    if form.damaged:
        return f"{name} in {count - form.damaged} of {plural(count, 'record')}, the others are damaged"
    return f"{name} in {plural(count, 'record')}"


# ---- the file


def file_of(head: Mapping[str, Any], namespace: str, proposals: Sequence[Proposal]) -> str:
    """Returns the text of the pipeline file. head: what is above the tables."""
    return "\n".join(_lines(head, namespace, proposals)) + "\n"


def _lines(head: Mapping[str, Any], namespace: str, proposals: Sequence[Proposal]) -> Iterator[str]:
    yield "# Made by `frazil init` from a few records of each topic: read it, change it, and see what a run would do with"
    yield "# `frazil plan`. Every key is explained in the reference of the pipeline file."
    yield _yaml(head)
    yield "tables:"
    for proposal in proposals:
        if proposal.settings is not None:
            # A line break in a field's name would end the comment.
            seen = "".join(character if character.isprintable() else " " for character in proposal.seen)
            yield f"  # {seen}"
            yield from (
                f"  {line}" for line in _yaml({_table(namespace, proposal.topic): proposal.settings}).splitlines()
            )
    left_out = [proposal for proposal in proposals if proposal.settings is None]
    if left_out:
        yield "# Left out:"
        yield from (f"#   {proposal.topic}: {proposal.seen}" for proposal in left_out)


def _table(namespace: str, topic: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]+", "_", topic).strip("_").lower() or "topic"
    if name.endswith("__dead_letters"):  # The table of the dead letters of another table.
        name = f"{name.removesuffix('__dead_letters')}_dead_letters"
    return f"{namespace}.{name}"


def _yaml(settings: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True, width=110).rstrip()


def clashing_tables(namespace: str, proposals: Iterable[Proposal]) -> list[Proposal]:
    """Returns the proposals with those left out whose tables would have the name of another."""
    seen: dict[str, str] = {}
    kept = []
    for proposal in proposals:
        first = (
            seen.setdefault(_table(namespace, proposal.topic), proposal.topic)
            if proposal.settings is not None
            else proposal.topic
        )
        kept.append(
            proposal
            if first == proposal.topic
            else Proposal(proposal.topic, None, f"its table would be that of {first}")
        )
    return kept
