"""Tables that topics ask for by keys of their own: AutoMQ's `automq.table.topic.*` as the settings of a table.

`frazil import automq` writes these settings into a pipeline file; with `kafka.topics_from` a running pipeline follows the
keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from frazil.errors import SpecError
from frazil.secrets import Secrets
from frazil.spec.models import PipelineSpec, TableSpec
from frazil.spec.partitioning import split_terms
from frazil.spec.syntax.document import lines_of, parse_document
from frazil.spec.syntax.reading import Reading
from frazil.spec.syntax.units import duration_text
from frazil.spec.tables import RULES, prepare_table

PREFIX = "automq.table.topic."
ENABLE = f"{PREFIX}enable"
DEFAULT_NAMESPACE = "default"
"""The namespace of tables whose topic has no key `namespace`."""
_FORMATS = {"raw": "raw", "string": "text", "by_schema_id": "avro", "by_latest_schema": "protobuf"}
_OLD_TYPES = {"schemaless": ("string", "none"), "schema": ("by_schema_id", "flatten")}
_TRANSFORMS = (None, "none", "flatten", "flatten_debezium")
_KEY_OF_RECORD = "_from_debezium_key_"
_NOTHING: tuple[object, ...] = (None, "", {}, [])


@dataclass(frozen=True)
class Difference:
    """A key that is not followed as AutoMQ does."""

    #: Without the prefix.
    key: str
    reason: str
    #: What to do.
    remedy: str


class TopicKeys:
    """The keys of one topic, without their prefix, and which of them were looked at."""

    def __init__(self, topic: str, keys: Mapping[str, str]) -> None:
        self.topic = topic
        self._keys = dict(keys)
        #: The keys that were looked at.
        self.taken: set[str] = set()
        #: Keys with a wrong value.
        self.wrong: list[Difference] = []
        #: Keys with another effect than AutoMQ's.
        self.differences: list[Difference] = []
        #: What else the reader should know.
        self.notes: list[str] = []

    @property
    def left(self) -> list[str]:
        """The keys that were not looked at: no setting of a table follows from them."""
        return sorted(self._keys.keys() - self.taken)

    def take(self, key: str) -> str | None:
        """Returns the value of a key; None without one."""
        if key not in self._keys:
            return None
        self.taken.add(key)
        return self._keys[key]

    def take_flag(self, key: str) -> bool | None:
        """Returns the value of a key that is true or false; None without one."""
        value = (self.take(key) or "").lower()
        if value not in ("", "true", "false"):
            self.reject(key, f"`{value}` is neither true nor false", "write true or false")
        return value == "true" if value else None

    def reject(self, key: str, reason: str, remedy: str) -> None:
        """Notes a wrong value."""
        self.wrong.append(Difference(key, reason, remedy))

    def differ(self, key: str, reason: str, instead: str) -> None:
        """Notes another effect than AutoMQ's."""
        self.differences.append(Difference(key, reason, instead))


def is_enabled(keys: Mapping[str, str]) -> bool:
    """Whether the keys of a topic ask for a table."""
    return keys.get(ENABLE, "").lower() == "true"


def table_of(spec: PipelineSpec, topic: str, keys: Mapping[str, str]) -> str:
    """The name of the table that a topic with these keys gets: behind its namespace it has `_` for the topic's dots."""
    return f"{keys.get(f'{PREFIX}namespace') or spec.selected.namespace or DEFAULT_NAMESPACE}.{topic.replace('.', '_')}"


def read_topic_table(
    spec: PipelineSpec, topic: str, keys: Mapping[str, str]
) -> tuple[TableSpec, tuple[Difference, ...]]:
    """The table that a topic gets by its keys, and which of them are not followed as AutoMQ does; what the keys leave out is
    taken from the pipeline file, as for other tables.

    Raises: SpecError for a key with a wrong value.
    """
    own = TopicKeys(
        topic, {name.removeprefix(PREFIX): value for name, value in keys.items() if name.startswith(PREFIX)}
    )
    own.take("namespace")
    name, settings = table_of(spec, topic, keys), table_settings(own)
    referring = next((key for key, value in keys.items() if "${" in value), None)
    if referring is not None:  # Who may change a topic must not read secrets of the process.
        own.reject(referring.removeprefix(PREFIX), "it refers to a secret", "write the value itself")
    for rejected in own.wrong:
        raise _refusal(topic, f"`{PREFIX}{rejected.key}`: {rejected.reason}", rejected.remedy)
    table = _read(spec, topic, name, settings)
    if spec.registry is None and (table.source.value.needs_registry or table.source.key.needs_registry):
        raise _refusal(
            topic, "its format needs a schema registry, and there is none", "write `registry.url` in the pipeline file"
        )
    if topic in {other.bad_records.dead_letters.topic for other in (table, *spec.tables)}:
        raise _refusal(topic, "dead letters go to it, and would be read again", f"set {ENABLE}=false")
    ignored = (
        Difference(key, "no setting of a table follows from it", "remove it, or set the pipeline file accordingly")
        for key in own.left
    )
    return table, (*own.differences, *ignored)


def _read(spec: PipelineSpec, topic: str, name: str, settings: Mapping[str, Any]) -> TableSpec:
    reading = Reading(Path(topic), Secrets(os.environ), RULES)
    reading.shared_lines = lines_of(spec.file.shared.defaults)
    try:
        document = parse_document(yaml.safe_dump(settings, allow_unicode=True), Path(topic))
        table = reading.read(TableSpec, prepare_table(document, name, f"table `{name}`", 0, spec.file.shared, reading))
        reading.problems.raise_any()
    except SpecError as error:
        raise _refusal(topic, error.message, error.remedy) from None
    assert table is not None
    return table


def _refusal(topic: str, reason: str, remedy: str) -> SpecError:
    return SpecError(f"the configuration of topic {topic} is wrong: {reason}", remedy=remedy, where=f"topic {topic}")


def table_settings(keys: TopicKeys) -> dict[str, Any]:
    """The settings of a topic's table, as under `tables` in a pipeline file."""
    keys.take_flag("enable")
    tolerance, terms = keys.take("errors.tolerance"), keys.take("partition.by")
    if tolerance not in (None, "", "none", "invalid_data", "all"):
        keys.reject("errors.tolerance", f"`{tolerance}` is unknown", "write none, invalid_data or all")
    settings: dict[str, Any] = {
        "topic": keys.topic,
        **_formats(keys),
        **_changes(keys),
        "partition_by": [
            re.sub(r"^\w+(?=\()", lambda word: word[0].lower(), term) for term in split_terms(terms or "")
        ],
        "on_bad_record": ("stop" if tolerance == "none" else "dead_letter") if tolerance else None,
        "commit": _commit(keys),
        "maintenance": _maintenance(keys),
    }
    return {key: value for key, value in settings.items() if value not in _NOTHING}


def _commit(keys: TopicKeys) -> dict[str, str]:
    interval = keys.take("commit.interval.ms")
    if not interval:
        return {}
    if not interval.isdecimal():
        keys.reject("commit.interval.ms", f"`{interval}` is not a number of milliseconds", "write one, such as 60000")
        return {}
    is_whole = int(interval) % 1000 == 0
    return {"interval": duration_text(int(interval) // 1000) if is_whole else f"{interval}ms"}


def _formats(keys: TopicKeys) -> dict[str, Any]:
    old = keys.take("schema.type") or "none"
    if old not in (*_OLD_TYPES, "none"):
        keys.reject("schema.type", f"`{old}` is unknown", "write none, schemaless or schema")
    kind, transform = _OLD_TYPES.get(old, (keys.take("convert.value.type") or "raw", keys.take("transform.value.type")))
    if transform not in _TRANSFORMS:
        keys.reject("transform.value.type", f"`{transform}` is unknown", "write none, flatten or flatten_debezium")
    settings: dict[str, Any] = {"value": _format(keys, "value", kind)}
    if kind == "by_schema_id":
        keys.notes.append(f"{keys.topic}: the values are Avro here; write `format: protobuf` where they are not")
    if kind.startswith("by_") and transform in (None, "none"):
        keys.differ(
            "transform.value.type",
            "fields are columns, not members of `_kafka_value`",
            "name a struct in a `select`",
        )
    if transform == "flatten_debezium":
        settings |= {"envelope": "debezium", "changelog": True}
        keys.differ(
            "transform.value.type", "`_cdc` is not a struct", "read `_op` and `_source_ts`, or name them in `metadata`"
        )
    if key := keys.take("convert.key.type"):
        settings |= {"key": _format(keys, "key", key), "metadata": {"key": "_kafka_key"}}
    return settings


def _format(keys: TopicKeys, side: str, kind: str) -> dict[str, Any]:
    if kind not in _FORMATS:
        keys.reject(f"convert.{side}.type", f"`{kind}` is unknown", f"write one of {', '.join(_FORMATS)}")
    settings = {"format": _FORMATS.get(kind, "raw")}
    if kind == "by_latest_schema":
        settings["schema"] = "latest"
        for name, key in (("subject", "subject"), ("message", "message.full.name")):
            if value := keys.take(f"convert.{side}.by_latest_schema.{key}"):
                settings[name] = value
    return settings


def _changes(keys: TopicKeys) -> dict[str, Any]:
    upserts, operation = keys.take_flag("upsert.enable"), keys.take("cdc.field")
    is_debezium = (operation or "").startswith("_cdc.")
    columns = split_terms(keys.take("id.columns") or "")
    if not upserts and not operation:
        return {}
    settings: dict[str, Any] = {
        "mode": "upsert",
        "changelog": None,
        "key_columns": [column for column in columns if column != _KEY_OF_RECORD],
    }
    if operation and not is_debezium:
        settings["envelope"] = {
            "operation": operation,
            "insert": ["I", "i"],
            "update": ["U", "u"],
            "delete": ["D", "d"],
        }
    return settings


def _maintenance(keys: TopicKeys) -> dict[str, Any]:
    hours, expires = keys.take("expire.snapshot.older.than.hours"), keys.take_flag("expire.snapshot.enabled")
    settings: dict[str, Any] = {"snapshots": {"age": f"{hours}h"}} if hours else {}
    return settings | ({"skip": ["expire"]} if expires is False else {})
