"""Flink SQL as a pipeline: tables over Kafka, tables and catalogs of Iceberg, and what is inserted."""

from __future__ import annotations

import re
from typing import Any

from frazil.errors import SpecError
from frazil.spec.grouping import grouping_of
from frazil_migrate.imports.connect_metadata import COLUMNS
from frazil_migrate.imports.draft import Answer, Draft, Imported, Tool, carried, duration, number, unneeded, unsupported
from frazil_migrate.imports.flink_groups import late_of
from frazil_migrate.imports.flink_script import Insert, Script, Table
from frazil_migrate.imports.kafka_connect import NAMELESS, put_catalog, put_kafka, put_registry
from frazil_migrate.imports.sql import joined, plain, quoted, statements

_ENVELOPES = {
    "debezium-json": ("json", "debezium"), "debezium-avro-confluent": ("avro", "debezium"),
    "canal-json": ("json", "canal"), "maxwell-json": ("json", "maxwell"),
}  # fmt: skip
_FORMATS = {
    "json": "json", "avro-confluent": "avro", "protobuf": "protobuf", "protobuf-confluent": "protobuf", "raw": "raw",
}  # fmt: skip
_KEYS = {"raw": "text", "json": "json", "avro-confluent": "avro"}
_DURATIONS_MS = {
    1: ("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1000: ("s", "sec", "secs", "second", "seconds"),
    60_000: ("m", "min", "minute", "minutes"), 3_600_000: ("h", "hour", "hours"),
}  # fmt: skip
_OFFSETS = re.compile(r"\s*(?:partition:\d+,offset:\d+\s*(?:;\s*|$))+")
_MODES = {"earliest-offset": "earliest", "latest-offset": "latest"}
_PIECES = {
    **{name: name for name in ("topic", "partition", "offset", "timestamp", "headers")},
    "value.source.timestamp": "source_ts", "value.ingestion-timestamp": "connector_ts", "value.event-timestamp": "source_ts",
    **{f"value.{part}{name}": f"source_{name}" for part in ("", "source.") for name in ("database", "schema", "table")},
}  # fmt: skip
"""Metadata of Flink's connector and of its formats, as Frazil's."""
_PROPERTIES = ("write.*", "read.*", "history.*", "commit.*", "gc.*")
_HINTS = {
    "target-file-size-bytes": "write.target-file-size-bytes", "distribution-mode": "write.distribution-mode",
    "compression-codec": "write.parquet.compression-codec", "compression-level": "write.parquet.compression-level",
}  # fmt: skip
"""Options that a hint sets for a statement, and the properties of the table that they override."""
_STARTS = ("scan.startup.mode", "scan.startup.timestamp-millis", "scan.startup.specific-offsets")

FLINK_SQL = Tool(
    "flink-sql",
    "Flink SQL",
    (
        *carried("`topic` or `topics`", "topic", "topic-pattern"),
        *carried("`kafka`", "properties.bootstrap.servers", "properties.security.protocol", "properties.sasl.*"),
        *carried("`kafka`", "properties.ssl.*", "properties.isolation.level"),
        *unneeded("progress is in the tables", "properties.group.id"),
        *carried("`start`", *_STARTS, "properties.auto.offset.reset"),
        *unneeded("Frazil chooses how it fetches", "properties.*"),
        *carried("`value.format`, and `envelope`", "format", "value.format"),
        *carried("`key.format`, of upsert tables", "key.format"),
        *carried("`registry`", "*avro-confluent.url", "*avro-confluent.schema-registry.url"),
        *carried("`registry.auth`", "*avro-confluent.basic-auth.*", "*avro-confluent.bearer-auth.token"),
        *unneeded("a record whose key cannot be read is a dead letter where the key matters", "key.*ignore-parse-errors"),
        *carried("`on_bad_record: skip` with true", "*.ignore-parse-errors"),
        *carried("`value.message`", "*protobuf.message-class-name"),
        *unsupported("the registry's TLS files are named otherwise", "write PEM files under `registry.tls`", "*.ssl.*"),
        *unsupported(
            "records are not chosen by their source", "write `where` with `_source_database` and `_source_table`",
            "*canal-json.database.include", "*canal-json.table.include",
        ),
        *unsupported("texts are read as UTF-8", "write the records in it", "*raw.charset", harmless=("utf-8",)),
        *unneeded("it is for what Flink writes", "*json.encode.*", "*json.map-null-key.*"),
        *unneeded("the values are not read as this format", "*csv.*"),
        *unneeded("Flink reads by it", "*json.decode.*"),
        *unneeded("a missing field is null", "*json.fail-on-missing-field"),
        *unneeded("texts are read in ISO 8601", "*json.timestamp-format.standard"),
        *unneeded("the id in each record names its schema", "*avro-confluent.*", "*debezium-json.schema-include"),
        *unsupported("a run does not end by itself", "run with `--until-caught-up`", "scan.bounded.*"),
        *unsupported("fields of the key have no prefix", "name them in a `select`", "key.fields-prefix", harmless=("",)),
        *unneeded("key and value are read apart", "value.fields-include", "key.fields"),
        *unneeded("Flink reads by it", "scan.*", "sink.*", "*parallelism"),
        *carried("which tables are Kafka's and which are Iceberg's", "connector", "type"),
        *carried("`catalog`", "catalog-type", "catalog-impl", "uri", "warehouse"),
        *carried("`catalog.properties`, as all other properties of a catalog", "io-impl", "s3.*", "client.*", "glue.*"),
        *carried("`spark.conf`, as `spark.hadoop.…`", "hadoop.*"),
        *unneeded(NAMELESS, "catalog-name"),
        *unneeded("a pipeline has one catalog", "property-version"),
        *unneeded("a pipeline has one catalog", "cache-enabled", "clients"),
        *carried("the name of the table", "catalog-database", "catalog-table", "default-database"),
        *unsupported(
            "Hadoop's files are not read from there", "set HADOOP_CONF_DIR, or write `spark.conf`",
            "hive-conf-dir", "hadoop-conf-dir",
        ),
        *carried("`format_version`", "format-version"),
        *carried("`mode: upsert`", "write.upsert.enabled", "upsert-enabled"),
        *unsupported("Frazil writes Parquet", "leave it out", "write.format.default", "write-format", harmless=("parquet",)),
        *carried("`properties`, as the table's own property", *_HINTS),
        *unsupported("rows are added, or replaced by key", "leave it out", "overwrite-enabled", harmless=("false",)),
        *unneeded("it configures Flink's writer", "range-distribution-*", "uid-suffix", "compression-strategy"),
        *carried("`branch`", "branch"),
        *carried("`properties`", *_PROPERTIES),
        *carried("`location`", "location"),
        *carried("`commit.interval`", "execution.checkpointing.interval"),
        *carried("`pipeline`", "pipeline.name"),
        *unsupported(
            "functions of times see UTC", "use `from_utc_timestamp(column, 'ZONE')` in the `select`",
            "table.local-time-zone", harmless=("utc",),
        ),
        *unsupported(
            "a run does not end by itself", "run with `--until-caught-up`", "execution.runtime-mode",
            harmless=("streaming", "automatic"),
        ),
        *unneeded("it configures Flink itself", "execution.*", "table.*", "parallelism.*", "state.*", "sql-client.*"),
        *unneeded("it configures Flink itself", "restart-*", "pipeline.*", "rest.*", "jobmanager.*", "taskmanager.*"),
    ),
)  # fmt: skip


def import_script(text: str, brokers: str | None) -> Imported:
    """Returns the pipeline file for a script of Flink SQL.

    Raises: SpecError for a script that inserts nothing from a table over Kafka.
    """
    script = Script()
    for statement in statements(text):
        if {"'", '"', "`"} & set(statement):
            raise SpecError("a quotation mark is not closed in the script", remedy="correct the SQL")
        script.read(statement)
    if not script.inserts:
        message = "the script has no `INSERT INTO … SELECT … FROM` a table over Kafka, without joins and aggregates"
        raise SpecError(message, remedy="give the script with the CREATE TABLE and INSERT INTO statements")
    tables = [table for table in script.tables.values() if table.name not in script.bases]
    options = {f"{table.name}/{key}": value for table in tables for key, value in table.options.items()}
    catalogs = {f"{name}/{key}": value for name, catalog in script.catalogs.items() for key, value in catalog.items()}
    draft = Draft(FLINK_SQL, {**options, **catalogs, **script.settings})
    draft.name_pipeline(draft.take("pipeline.name") or FLINK_SQL.name)
    if interval := draft.take("execution.checkpointing.interval"):
        draft.put(_interval(interval), "commit", "interval")
    for name, catalog in script.catalogs.items():
        _put_catalog(draft, name, catalog, name)
    for insert in script.inserts:
        _put_table(draft, script, insert)
    for table in script.unsuited:
        reason = "joins and ranks are not carried over"
        remedy = "use `lookup` for a join with a small table, and `group by` with a window in `select` for aggregates"
        draft.lose(f"INSERT INTO {table}", reason, remedy)
    for left in script.unknown:
        draft.lose(left, "the statement is not one of those that are read", "write what it does under `tables`")
    return draft.finish(brokers)


def _interval(text: str) -> str:
    """Returns Flink's duration, such as `10 s`, `5 min` or milliseconds, in the pipeline file's words."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    size_ms = next((size for size, words in _DURATIONS_MS.items() if match and match[2] in words), None)
    return duration(str(int(match[1]) * size_ms)) if match and size_ms else text


def _put_catalog(draft: Draft, name: str, catalog: dict[str, str], named: str | None) -> None:
    """Writes a catalog. name: in front of its options. named: of the catalog."""
    left = draft.take_all(f"{name}/")
    left.pop("type", None)
    if kind := left.pop("catalog-type", None if "catalog-impl" in left else "hive"):
        left["type"] = kind
    for key in list(left):
        setting = FLINK_SQL.find(key)
        if setting is not None and setting.answer is not Answer.CARRIED:
            draft.settle(f"{name}/{key}", left.pop(key))
    left.pop("default-database", None)
    hadoop = {
        f"spark.hadoop.{key.removeprefix('hadoop.')}": left.pop(key) for key in list(left) if key.startswith("hadoop.")
    }
    trial = Draft(FLINK_SQL, {})
    put_catalog(trial, left, named)
    if catalog.get("type") != "iceberg":
        draft.lose(name, "it is not a catalog of Iceberg", "write the tables that it has as CREATE TABLE")
    elif draft.document.get("catalog", trial.document["catalog"]) != trial.document["catalog"]:
        draft.lose(name, "a pipeline has one catalog", "make a pipeline of its own for the tables of this catalog")
    else:
        draft.put(hadoop, "spark", "conf")
        put_catalog(draft, left, named)


def _put_table(draft: Draft, script: Script, insert: Insert) -> None:
    """Writes the table that a query over a table over Kafka feeds."""
    name = insert.target
    source = script.table(insert.source)
    if source is None or not source.is_kafka:
        draft.lose(f"INSERT INTO {name}", f"`{insert.source}` is not a table over Kafka", "give its CREATE TABLE")
        return
    query, metadata = _query(draft, source, insert)
    settings = {**_source(draft, source), **_target(draft, source, script.table(insert.into))}
    settings["metadata"] |= metadata
    settings |= insert.settings
    if query:
        settings["select"] = query
        _put_groups(draft, source, settings)
        draft.notes.append("queries are Flink's SQL: `frazil plan` shows whether Spark takes them")
    if name in draft.document.get("tables", {}):
        draft.lose(f"INSERT INTO {name}", "another statement fills the table", "name another table under `tables`")
    else:
        draft.put(settings, "tables", name)


def _put_groups(draft: Draft, source: Table, settings: dict[str, Any]) -> None:
    """Changes the settings of a table whose query has groups, which decide its mode and key."""
    try:
        grouping = grouping_of(settings["select"])
    except SpecError as error:
        draft.lose(settings["select"], error.message, error.remedy)
        return
    if grouping is None:
        return
    for key in ("mode", "key_columns"):
        settings.pop(key, None)
    late = late_of(source.watermark)
    if grouping.window is not None:
        draft.notes.append("windows are in the table from their first record on, and `late` is Flink's watermark")
        if late is not None:
            settings["late"] = late


def _query(draft: Draft, source: Table, insert: Insert) -> tuple[str, dict[str, str]]:
    """Returns the query, empty for all fields as they are, and the columns of metadata by piece. Columns that the query does
    more with than handing them on, and computed ones, are made in a query below it.
    """
    is_all = ["*"] in insert.columns
    computed = {name: words for name, words in source.computed.items() if is_all or _uses(insert.words, name)}
    for name in [name for name, words in computed.items() if words[0].upper() == "PROCTIME"]:
        reason = "the time of processing differs between runs: the column is the time of the record"
        draft.lose(f"{source.name}/{name}", reason, "leave it out of the `select` if that is not meant")
        computed[name] = ["_timestamp"]
        draft.unconverted.add(name)
    words = [*insert.words, *(word for expression in computed.values() for word in expression)]
    used = [name for name in source.metadata if is_all or _uses(words, name)]
    for name in [name for name in used if source.metadata[name] not in _PIECES]:
        reason = f"the metadata `{source.metadata[name]}` is unknown"
        draft.lose(f"{source.name}/{name}", reason, "see `metadata` for what there is")
        used.remove(name)
    pieces = {_PIECES[source.metadata[name]]: name for name in used}
    handed_on = sum([plain(word) for word in item] == [name] for name in used for item in insert.columns)
    is_plain = not computed and len(pieces) == len(used) and sum(_uses(words, name) for name in used) == handed_on
    added = [f"{COLUMNS[_PIECES[source.metadata[name]]]} as {quoted(name)}" for name in used] * (not is_plain)
    added += [f"{joined(words)} as {quoted(name)}" for name, words in computed.items()]
    relation = f"(select *, {', '.join(added)} from records)" if added else "records"
    chosen = ", ".join(map(joined, insert.columns))
    if is_all and not insert.rest and chosen == "*":
        return (f"select *, {', '.join(added)} from records" if added else ""), pieces if is_plain else {}
    return f"select {chosen} from {relation} {joined(insert.rest)}".strip(), pieces if is_plain else {}


def _uses(words: list[str], name: str) -> int:
    """Returns how often words name a column, with or without its table."""
    return sum(plain(word).rpartition(".")[2] == name for word in words)


def _source(draft: Draft, table: Table) -> dict[str, Any]:
    prefix, options = f"{table.name}/", table.options
    for key in ("connector", "format", "value.format", "key.format", "topic", "topic-pattern", *_STARTS):
        draft.take(prefix + key)
    put_kafka(draft, prefix + "properties.")
    format_, envelope = _format(draft, table)
    topics = [topic.strip() for topic in options.get("topic", "").split(";") if topic.strip()]
    pattern = options.get("topic-pattern")
    settings: dict[str, Any] = {
        "topic": topics[0] if len(topics) == 1 else None,
        "topics": f"/^(?:{pattern})$/" if pattern else topics if len(topics) > 1 else None,
        "value": {"format": format_},
        "key": _key(draft, table),
        "envelope": envelope,
        "start": _start(draft, prefix, options),
        "columns": {name: kind for name, kind in table.columns.items() if kind and format_ == "json"},
        "metadata": {},
    }
    if table.format == "protobuf":
        settings["value"] |= {"schema": "latest", **({} if settings["topic"] else {"subject": f"{table.name}-value"})}
    for key, value in options.items():  # A table may feed several others.
        if key.endswith(".ignore-parse-errors") and not key.startswith("key."):
            settings["on_bad_record"] = "skip" if value.lower() == "true" else "stop"
        elif key.endswith(("avro-confluent.url", "avro-confluent.schema-registry.url")):
            login = f"{key.rpartition('avro-confluent.')[0]}avro-confluent.basic-auth."
            token = f"{key.rpartition('avro-confluent.')[0]}avro-confluent.bearer-auth.token"
            put_registry(
                draft, value, options.get(f"{login}user-info"), options.get(token), f"{prefix}{login}user-info"
            )
            draft.take(f"{prefix}{login}user-info"), draft.take(f"{prefix}{login}credentials-source")
            draft.take(prefix + token)
        elif key.endswith(".message-class-name"):
            settings["value"]["message"] = value.replace("$", ".")
        else:
            continue
        draft.take(prefix + key)
    return settings


def _format(draft: Draft, table: Table) -> tuple[str, str | None]:
    """Returns the format and the envelope of values."""
    name = table.format
    if name in _ENVELOPES:
        return _ENVELOPES[name]
    if name not in _FORMATS:
        instead = "write records as JSON, Avro or Protobuf with a registry, or take their text apart in a `select`"
        draft.lose(f"{table.name}/format", f"values of the format {name} are not read", instead)
    if name == "protobuf":
        reason = "records have no id of a schema: the newest of the registry's subject is taken"
        instead = "register the schema, and name its message as it does under `value`, `message`"
        draft.lose(f"{table.name}/format", reason, instead)
    return _FORMATS.get(name, "text"), None


def _key(draft: Draft, table: Table) -> dict[str, str] | None:
    """Returns the format of keys."""
    name = table.options.get("key.format")
    if name is None:
        return None
    if name not in _KEYS:
        draft.lose(
            f"{table.name}/key.format", f"keys of the format {name} are not read", "write the format under `key`"
        )
    is_apart = table.options.get("value.fields-include") == "EXCEPT_KEY" and table.options["connector"] == "kafka"
    if is_apart:
        reason = "an append table has the fields of the value alone"
        draft.lose(f"{table.name}/value.fields-include", reason, "name fields of the key as `_key.NAME` in a `select`")
    return {"format": _KEYS.get(name, "raw")}


def _start(draft: Draft, prefix: str, options: dict[str, str]) -> object:
    mode = options.get("scan.startup.mode", "").lower().replace("_", "-")  # As Flink reads it.
    offsets = options.get("scan.startup.specific-offsets", "")
    if mode == "timestamp":
        return number(options.get("scan.startup.timestamp-millis", "0"))
    if mode == "specific-offsets" and not _OFFSETS.fullmatch(offsets):
        place = f"{prefix}scan.startup.specific-offsets"
        draft.lose(place, f"`{offsets}` is not a list of offsets", "write `start: {partition: offset}`")
    elif mode == "specific-offsets":
        pairs = re.findall(r"partition:(\d+),offset:(\d+)", offsets)
        return {int(partition): int(offset) for partition, offset in pairs}
    elif mode not in ("", *_MODES):
        draft.lose(prefix + "scan.startup.mode", f"`{mode}` is not a place in a topic", "write the offsets as `start`")
    draft.take(f"{prefix}properties.auto.offset.reset")
    reset = options.get("properties.auto.offset.reset")
    return _MODES.get(mode, reset if reset in ("earliest", "latest") else None)


def _target(draft: Draft, source: Table, target: Table | None) -> dict[str, Any]:
    """Returns how rows change the table, with its properties."""
    settings: dict[str, Any] = {}
    upserts: list[bool | None] = [False]
    if target is not None:
        prefix = f"{target.name}/"
        upserts = [draft.take_flag(prefix + key) for key in ("write.upsert.enabled", "upsert-enabled")]
        if version := draft.take(prefix + "format-version"):
            settings["format_version"] = number(version)
        draft.take(prefix + "catalog-database"), draft.take(prefix + "catalog-table")
        if target.options.get("connector") == "iceberg":
            draft.take(prefix + "connector")
            _put_catalog(draft, target.name, {"type": "iceberg"}, target.options.get("catalog-name"))
        else:
            kept = {
                key.removeprefix(prefix): key for key in draft.names(prefix) if _is_property(key.removeprefix(prefix))
            }
            settings["properties"] = {_HINTS.get(name, name): draft.take(key) for name, key in kept.items()}
            settings["location"] = draft.take(prefix + "location")
        settings["branch"] = draft.take(prefix + "branch")
        settings["partition_by"] = target.partitions
    if any(upserts) or source.options.get("connector") == "upsert-kafka" or source.format in _ENVELOPES:
        settings |= {"mode": "upsert", **_key_columns(source, target)}
    return settings


def _is_property(name: str) -> bool:
    setting = FLINK_SQL.find(name)
    return setting is not None and setting.name in (*_PROPERTIES, *_HINTS)


def _key_columns(source: Table, target: Table | None) -> dict[str, Any]:
    """Returns the columns of the key; those that only the records' keys have are theirs."""
    keys = (target.keys if target else []) or source.keys
    if source.options.get("value.fields-include") != "EXCEPT_KEY" or source.options.get("connector") != "upsert-kafka":
        return {"key_columns": keys}
    return {"metadata": {"key": keys[0]}} if source.options.get("key.format") == "raw" and keys else {}
