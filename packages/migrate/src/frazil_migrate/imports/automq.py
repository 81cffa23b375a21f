"""AutoMQ's table topics as a pipeline: the keys of topics and brokers, from a file or from a live cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from frazil.errors import SpecError
from frazil.spec.topic_keys import DEFAULT_NAMESPACE, ENABLE, PREFIX, TopicKeys, is_enabled, table_settings
from frazil_migrate.imports.draft import Draft, Imported, Tool, carried, unsupported
from frazil_migrate.imports.kafka_connect import put_catalog, put_registry
from frazil_migrate.imports.sources import flat, parse, variables

_TIMEOUT_S = 10.0
_CATALOGS = {"tablebucket": "software.amazon.s3tables.iceberg.S3TablesCatalog"}
_SECTION = re.compile(r"(?:.* )?configs for topic (\S+) are:\s*", re.IGNORECASE)
_OF_TOPICS = re.compile(r"^Topic: (\S+)\s.*\bConfigs: (\S.*)$", re.MULTILINE)
"""What `kafka-topics.sh --describe` prints of a topic with settings."""
_COMMAND = re.compile(r"\s--(?:config|add-config|override)[ =]")
_PAIRS = re.compile(r",\s*(?=[\w.]+=)")
_DESCRIBED = re.compile(r"\s*(\S+?)=(.*?) sensitive=\S+ synonyms=.*")

AUTOMQ = Tool(
    "automq",
    "AutoMQ's table topics",
    tuple(
        replace(table_key, name=PREFIX + table_key.name)
        for part in (
            carried("an entry under `tables`; none with false", "enable"),
            carried("the namespace of the table's name", "namespace"),
            carried("`commit.interval`", "commit.interval.ms"),
            carried("`value.format`", "schema.type", "convert.value.type"),
            carried("`key.format`, with the column `_kafka_key`", "convert.key.type"),
            carried("`value.subject`", "convert.value.by_latest_schema.subject"),
            carried("`value.message`", "convert.value.by_latest_schema.message.full.name"),
            carried("`key.subject`", "convert.key.by_latest_schema.subject"),
            carried("`key.message`", "convert.key.by_latest_schema.message.full.name"),
            carried("`envelope`", "transform.value.type"),
            carried("`key_columns`, of upsert tables", "id.columns"),
            carried("`partition_by`", "partition.by"),
            carried("`mode: upsert`", "upsert.enable"),
            carried("`mode: upsert` and `envelope: {operation: …}`", "cdc.field"),
            carried("`on_bad_record`", "errors.tolerance"),
            carried("`maintenance.snapshots.age`", "expire.snapshot.older.than.hours"),
            carried("`maintenance.skip: [expire]` with false", "expire.snapshot.enabled"),
            unsupported(
                "a table keeps the snapshots of the last `age`, however few",
                "raise `maintenance.snapshots.age`",
                "expire.snapshot.retain.last",
                harmless=("1",),
            ),
            unsupported(
                "Hive's login is a matter of Hadoop's files",
                "write it under `spark.conf`, as `spark.hadoop.…`",
                "catalog.auth",
                harmless=("none://?",),
            ),
            carried("`catalog`; of the type `tablebucket` its class as `impl`", "catalog.type", "catalog.*"),
            carried("`spark.conf`, as `spark.hadoop.…`", "hadoop.*"),
            carried("`registry.url`", "schema.registry.url"),
            carried("`registry.auth`", "schema.registry.config.basic.auth.*"),
            unsupported(
                "the registry's TLS files are named otherwise",
                "write PEM files under `registry.tls`",
                "schema.registry.config.*",
            ),
        )
        for table_key in part
    ),
)


def import_topics(text: str, brokers: str | None, topic: str | None = None) -> Imported:
    """Returns the pipeline file for the keys of topics and brokers.

    Takes what `kafka-configs.sh --describe` prints, the commands that set the keys, JSON (topics as objects beside the
    brokers' keys), or properties, of one topic or with `topic` to name it.

    Raises: SpecError where no topic is a table topic.
    """
    if _SECTION.search(text):
        topics, shared = _described(text)
    elif described := _OF_TOPICS.findall(text):
        topics, shared = {name: dict(_pairs(keys)) for name, keys in described}, {}
    elif _COMMAND.search(text):
        topics, shared = _commanded(text)
    else:
        settings = parse(text)
        topics = {name: flat(keys) for name, keys in settings.items() if isinstance(keys, dict)}
        shared = flat({name: value for name, value in settings.items() if not isinstance(value, dict)})
        if topic:
            topics, shared = {topic: shared}, {}
    return _import(topics, shared, brokers)


def import_cluster(brokers: str) -> Imported:
    """Returns the pipeline file for the topics of a live cluster.

    Raises: SpecError where the cluster does not answer, or no topic is a table topic.
    """
    try:
        admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
        metadata = admin.list_topics(timeout=_TIMEOUT_S)
        names = [name for name in metadata.topics if not name.startswith("__")]
        broker = ConfigResource(ResourceType.BROKER, str(next(iter(metadata.brokers), 0)))
        asked = [broker, *(ConfigResource(ResourceType.TOPIC, name) for name in names)]
        answers = {resource: future.result(_TIMEOUT_S) for resource, future in admin.describe_configs(asked).items()}
    except (KafkaException, TimeoutError) as error:
        raise SpecError(f"{brokers} does not answer: {error}", remedy="name a broker that answers") from None
    keys_by_topic = {
        resource.name: _set_keys(entries)
        for resource, entries in answers.items()
        if resource.restype is ResourceType.TOPIC
    }
    return _import(keys_by_topic, _set_keys(answers[broker]), brokers)


def _set_keys(entries: Mapping[str, Any]) -> dict[str, str]:
    """Returns AutoMQ's keys of a resource that somebody has set."""
    return {
        name: entry.value
        for name, entry in entries.items()
        if name.startswith(PREFIX) and entry.value and not entry.is_default
    }


def _described(text: str) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Returns the keys by topic, and those outside of any topic."""
    topics: dict[str, dict[str, str]] = {}
    shared: dict[str, str] = {}
    keys = shared
    for line in text.splitlines():
        if section := _SECTION.fullmatch(line):
            keys = topics.setdefault(section[1], {})
        elif (match := _DESCRIBED.fullmatch(line)) and match[1].startswith(PREFIX):
            keys[match[1]] = match[2]
    return topics, shared


def _commanded(text: str) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Returns the keys by topic that commands set, and those of brokers.

    Raises: SpecError for a quotation mark that is not closed.
    """
    topics: dict[str, dict[str, str]] = {}
    shared: dict[str, str] = {}
    try:
        lines = [
            shlex.split(line, comments=True) for line in text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines()
        ]
    except ValueError as error:
        raise SpecError(f"the commands cannot be read: {error}", remedy="close the quotation mark") from None
    for words in lines:
        given = list(
            pairwise(
                word
                for word_of_command in words
                for word in (word_of_command.split("=", 1) if word_of_command.startswith("--") else [word_of_command])
            )
        )
        names = [value for option, value in given if option in ("--topic", "--entity-name")]
        keys = shared if not names or ("--entity-type", "brokers") in given else topics.setdefault(names[0], {})
        for option, value in given:
            if option == "--add-config":
                keys |= dict(_pairs(value))
            elif option in ("--config", "--override"):
                name, _, text = value.partition("=")
                keys |= {name: text} if name.startswith(PREFIX) else {}
    return topics, shared


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yields AutoMQ's keys, and their values, of pairs with commas between them."""
    for pair in _PAIRS.split(text.strip()):
        name, _, value = pair.partition("=")
        if name.startswith(PREFIX):
            yield name, value


def _import(topics: Mapping[str, Mapping[str, str]], shared: Mapping[str, str], brokers: str | None) -> Imported:
    enabled = {name: keys for name, keys in topics.items() if is_enabled(keys)}
    if not enabled:
        message = f"no topic has {ENABLE}=true"
        raise SpecError(
            message, remedy="give the configuration of a table topic; --topic names the topic of plain properties"
        )
    settings = {f"{name}/{key}": value for name, keys in enabled.items() for key, value in keys.items()} | dict(shared)
    settings = {name: variables(value) for name, value in settings.items()}
    draft = Draft(AUTOMQ, settings)
    for name in topics.keys() - enabled.keys():
        draft.notes.append(f"the topic {name} is not a table topic")
    namespace = ""
    for place in [*(f"{name}/" for name in enabled), ""]:
        catalog = draft.take_all(f"{place}{PREFIX}catalog.")
        if kind := _CATALOGS.get(catalog.get("type", "")):
            catalog |= {"catalog-impl": kind}
            del catalog["type"]
        if login := catalog.pop("auth", None):
            draft.settle(f"{PREFIX}catalog.auth", login)
        put_catalog(draft, catalog, None)
        hadoop = draft.take_all(f"{place}{PREFIX}hadoop.").items()
        draft.put({f"spark.hadoop.{name}": value for name, value in hadoop}, "spark", "conf")
        registry = f"{place}{PREFIX}schema.registry."
        draft.take(f"{registry}config.basic.auth.credentials.source")
        login = f"{registry}config.basic.auth.user.info"
        put_registry(draft, draft.take(f"{registry}url"), draft.take(login), login=login)
    namespace = draft.take(f"{PREFIX}namespace") or DEFAULT_NAMESPACE
    for name in enabled:
        _put_table(draft, name, enabled[name], namespace)
    draft.notes.append(
        "AutoMQ adds `_kafka_header`, `_kafka_key` and `_kafka_metadata`: `metadata` requests such columns"
    )
    return draft.finish(brokers)


def _put_table(draft: Draft, topic: str, keys: Mapping[str, str], namespace: str) -> None:
    """Writes the table of a topic. namespace: that of topics without one."""
    topic_keys = TopicKeys(topic, {name.removeprefix(PREFIX): value for name, value in keys.items()})
    table = f"{topic_keys.take('namespace') or namespace}.{topic.replace('.', '_')}"
    settings = table_settings(topic_keys)
    if table in draft.document.get("tables", {}):
        draft.lose(topic, f"another topic has the table `{table}`", "write a table of another name for it")
    else:
        draft.put(settings, "tables", table)
    if "." in topic:
        reason = f"AutoMQ's table has dots in its name, which divide namespaces here: the table is `{table}`"
        draft.lose(topic, reason, "name it otherwise under `tables` if you like")
    for key in topic_keys.taken:
        draft.take(f"{topic}/{PREFIX}{key}")
    for problem in (*topic_keys.wrong, *topic_keys.differences):
        draft.lose(f"{topic}/{PREFIX}{problem.key}", problem.reason, problem.remedy)
    draft.notes += topic_keys.notes
