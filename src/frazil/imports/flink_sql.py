"""Flink SQL as a pipeline: tables over Kafka, tables and catalogs of Iceberg, and what is inserted.

Statements are taken apart by their words: no SQL is understood beyond the clauses of DDL and `INSERT INTO … SELECT`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from frazil.errors import SpecError
from frazil.imports.answers import Answer, Tool, carried, unneeded, unsupported
from frazil.imports.draft import Draft, Imported, duration, number
from frazil.imports.kafka_connect import put_catalog, put_kafka, put_registry

_TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|`(?:[^`]|``)*`|[\w.$]+|\s+|.", re.DOTALL)
_ENVELOPES = {
    "debezium-json": ("json", "debezium"), "debezium-avro-confluent": ("avro", "debezium"),
    "canal-json": ("json", "canal"), "maxwell-json": ("json", "maxwell"),
}  # fmt: skip
_FORMATS = {
    "json": "json", "avro-confluent": "avro", "protobuf": "protobuf", "protobuf-confluent": "protobuf", "raw": "raw",
}  # fmt: skip
_KEYS = {"raw": "text", "json": "json", "avro-confluent": "avro"}
_TYPES = {
    "STRING": "string", "VARCHAR": "string", "CHAR": "string", "BOOLEAN": "boolean", "TINYINT": "int", "SMALLINT": "int",
    "INT": "int", "INTEGER": "int", "BIGINT": "long", "FLOAT": "float", "DOUBLE": "double", "DATE": "date",
    "TIMESTAMP": "timestamp", "TIMESTAMP_LTZ": "timestamptz", "BYTES": "binary", "VARBINARY": "binary",
}  # fmt: skip
_MODES = {"earliest-offset": "earliest", "latest-offset": "latest"}
_PIECES = ("topic", "partition", "offset", "timestamp", "headers")
_AROUND = ("EXECUTE", "STATEMENT", "SET", "BEGIN", "END")
_STARTS = ("scan.startup.mode", "scan.startup.timestamp-millis", "scan.startup.specific-offsets")

FLINK_SQL = Tool(
    "flink-sql",
    "Flink SQL",
    (
        *carried("`topic` or `topics`", "topic", "topic-pattern"),
        *carried("`kafka`", "properties.bootstrap.servers", "properties.security.protocol", "properties.sasl.*"),
        *carried("`kafka`", "properties.ssl.*", "properties.isolation.level"),
        *unneeded("progress is in the tables", "properties.group.id"),
        *unneeded("Frazil chooses how it fetches", "properties.*"),
        *carried("`start`", *_STARTS),
        *carried("`value.format`, and `envelope`", "format", "value.format"),
        *carried("`key.format`, of upsert tables", "key.format"),
        *carried("`registry`", "*avro-confluent.url", "*avro-confluent.schema-registry.url"),
        *carried("`registry.auth`", "*avro-confluent.basic-auth.*"),
        *carried("`on_bad_record: skip` with true", "*json.ignore-parse-errors"),
        *carried("`value.message`", "*protobuf.message-class-name"),
        *unsupported("the registry's TLS files are named otherwise", "write PEM files under `registry.tls`", "*.ssl.*"),
        *unneeded("a missing field is null", "*json.fail-on-missing-field"),
        *unneeded("texts are read in ISO 8601", "*json.timestamp-format.standard"),
        *unneeded("the id in each record names its schema", "*avro-confluent.*", "*debezium-json.schema-include"),
        *unneeded("Flink reads by it", "scan.*", "value.fields-include", "key.fields*", "sink.*", "*parallelism"),
        *carried("which tables are Kafka's and which are Iceberg's", "connector", "type"),
        *carried("`catalog`", "catalog-type", "catalog-impl", "uri", "warehouse"),
        *carried("`catalog.properties`, as all other properties of a catalog", "io-impl", "s3.*", "client.*", "glue.*"),
        *carried("`spark.conf`, as `spark.hadoop.…`", "hadoop.*"),
        *unneeded("a pipeline has one catalog", "catalog-name", "default-database", "property-version"),
        *unneeded("a pipeline has one catalog", "cache-enabled", "clients"),
        *unneeded("the table has the name that the script gives it", "catalog-database", "catalog-table"),
        *unsupported(
            "Hadoop's files are not read from there", "set HADOOP_CONF_DIR, or write `spark.conf`",
            "hive-conf-dir", "hadoop-conf-dir",
        ),
        *carried("`format_version`", "format-version"),
        *carried("`mode: upsert`", "write.upsert.enabled", "upsert-enabled"),
        *unsupported("Frazil writes Parquet", "leave it out", "write.format.default", harmless=("parquet",)),
        *unsupported("Frazil commits to the main branch", "leave it out", "branch", harmless=("main",)),
        *carried("`properties`", "write.*", "read.*", "history.*", "commit.*", "gc.*"),
        *carried("`commit.interval`", "execution.checkpointing.interval"),
        *carried("`pipeline`", "pipeline.name"),
        *unneeded("it configures Flink itself", "execution.*", "table.*", "parallelism.*", "state.*", "sql-client.*"),
        *unneeded("it configures Flink itself", "restart-*", "pipeline.*", "rest.*", "jobmanager.*", "taskmanager.*"),
    ),
)  # fmt: skip


@dataclass
class _Table:
    name: str
    options: dict[str, str]
    columns: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    computed: list[str] = field(default_factory=list)

    @property
    def is_kafka(self) -> bool:
        return self.options.get("connector", "") in ("kafka", "upsert-kafka")


def import_script(text: str, brokers: str | None) -> Imported:
    """Returns the pipeline file for a script of Flink SQL.

    Raises: SpecError for a script that inserts nothing from a table over Kafka.
    """
    script = _Script()
    for statement in _statements(text):
        try:
            script.read(statement)
        except (IndexError, ValueError):  # A clause lacks words.
            script.unknown.append(_beginning(statement))
    if not script.inserts:
        message = "the script has no `INSERT INTO … SELECT … FROM` a table over Kafka"
        raise SpecError(message, remedy="give the script with the CREATE TABLE and INSERT INTO statements")
    options = {f"{table.name}/{key}": value for table in script.tables.values() for key, value in table.options.items()}
    catalogs = {f"{name}/{key}": value for name, one in script.catalogs.items() for key, value in one.items()}
    draft = Draft(FLINK_SQL, {**options, **catalogs, **script.settings})
    draft.name_pipeline(draft.take("pipeline.name") or FLINK_SQL.name)
    if interval := draft.take("execution.checkpointing.interval"):
        draft.put(_interval(interval), "commit", "interval")
    for name, catalog in script.catalogs.items():
        _put_catalog(draft, name, catalog)
    for target, source, query in script.inserts:
        _put_table(draft, script, (target, source), query)
    for left in script.unknown:
        draft.lose(left, "the statement is not one of those that are read", "write what it does under `tables`")
    return draft.finish(brokers)


def _interval(text: str) -> str:
    """Returns Flink's duration, such as `10 s` or milliseconds, in the pipeline file's words."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    sizes = {"": 1, "ms": 1, "s": 1000, "sec": 1000, "min": 60_000, "m": 60_000, "h": 3_600_000}
    return duration(str(int(match[1]) * sizes.get(match[2], 1))) if match else text


def _statements(text: str) -> Iterator[list[str]]:
    """Yields the words of each statement, without comments; `''` in a literal is kept."""
    words: list[str] = []
    for token in (match[0] for match in _TOKEN.finditer(text)):
        if token == ";":
            yield words
            words = []
        elif token.strip() and not token.startswith(("--", "/*")):
            words.append(token)
    yield words


def _plain(word: str) -> str:
    """Returns a literal's or a name's text."""
    quote = word[:1]
    return word[1:-1].replace(quote * 2, quote) if quote in ("'", "`") else word


def _group(words: Sequence[str], start: int) -> tuple[list[str], int]:
    """Returns the words inside the parentheses that open at `start`, and the place after them."""
    depth = 0
    for at in range(start, len(words)):
        depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(words[at], 0)
        if depth == 0:
            return list(words[start + 1 : at]), at + 1
    raise SpecError("a parenthesis of the script is not closed", remedy="correct the SQL")


def _items(words: Sequence[str]) -> Iterator[list[str]]:
    """Yields what commas divide, outside of parentheses."""
    depth, item = 0, list[str]()
    for word in words:
        depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(word, 0)
        if word == "," and depth == 0:
            yield item
            item = []
        else:
            item.append(word)
    if item:
        yield item


def _options(words: Sequence[str]) -> dict[str, str]:
    return {_plain(item[0]): _plain(item[2]) for item in _items(words) if len(item) == 3 and item[1] == "="}


def _name(words: Sequence[str], start: int) -> tuple[str, int]:
    """Returns a name, of which back-quotes may enclose parts, and the place after it."""
    name, at = _plain(words[start]), start + 1
    while at < len(words) and (words[at].startswith(".") or name.endswith(".")):
        name, at = name + _plain(words[at]), at + 1
    return name, at


class _Script:
    """What the statements so far declare."""

    def __init__(self) -> None:
        self.catalogs: dict[str, dict[str, str]] = {}
        self.tables: dict[str, _Table] = {}
        #: Target, source, and what is selected.
        self.inserts: list[tuple[str, str, str]] = []
        self.settings: dict[str, str] = {}
        self.unknown: list[str] = []
        self._place: list[str] = []

    def read(self, words: list[str]) -> None:
        """Takes one statement."""
        while words and words[0].upper() in _AROUND and not _is_set(words):
            words = words[1:]
        upper = [word.upper() for word in words]
        match upper[:3]:
            case ["SET", _, "="]:
                self.settings[_plain(words[1])] = "".join(map(_plain, words[3:]))
            case ["CREATE", "CATALOG", *_]:
                self.catalogs[_name(words, _after_exists(upper, 2))[0]] = _options(_group(words, words.index("("))[0])
            case ["CREATE", "TABLE", _] | ["CREATE", _, "TABLE"]:
                self._read_table(words, upper)
            case ["USE", *_]:
                self._place = [_plain(words[2])] if upper[1] == "CATALOG" else [*self._place[:1], _plain(words[1])]
            case ["INSERT", "INTO", _] if "SELECT" in upper and "FROM" in upper:
                self._read_insert(words, upper)
            case [] | ["CREATE", "DATABASE", *_]:
                pass
            case _:
                self.unknown.append(_beginning(words))

    def table(self, name: str) -> _Table | None:
        """Returns a table by a name with or without its catalog and database."""
        last = name.rpartition(".")[2]
        return next(
            (one for end in (name, last) for key, one in self.tables.items() if f".{key}".endswith(f".{end}")), None
        )

    def _read_table(self, words: list[str], upper: list[str]) -> None:
        name, at = _name(words, _after_exists(upper, upper.index("TABLE") + 1))
        table = self.tables[name] = _Table(name, {})
        while at < len(words):
            if words[at] == "(" and at < (upper.index("WITH") if "WITH" in upper else len(words)):
                columns, at = _group(words, at)
                for item in _items(columns):
                    _read_column(table, item)
            elif upper[at] == "PARTITIONED":
                terms, at = _group(words, at + 2)
                table.partitions = ["".join(map(_plain, item)) for item in _items(terms)]
            elif upper[at] == "WITH":
                options, at = _group(words, at + 1)
                table.options = _options(options)
            else:
                at += 1

    def _read_insert(self, words: list[str], upper: list[str]) -> None:
        target, _ = _name(words, upper.index("INTO") + 1)
        select, start = upper.index("SELECT"), upper.index("FROM")
        source, after = _name(words, start + 1)
        hint = words[after:]
        chosen = words[select + 1 : start]
        target_table = self.tables.get(target)
        columns = [
            _joined(item) for item in _named(list(_items(chosen)), list(target_table.columns) if target_table else [])
        ]
        query = f"select {', '.join(columns)} from records {_joined(hint)}".strip()
        if any(word.upper() in ("JOIN", "GROUP", "OVER", "UNION", "WINDOW") for word in (*chosen, *hint)):
            self.unknown.append(f"INSERT INTO {target}")
        self.inserts.append((self._full(target), source, "" if query == "select * from records" else query))

    def _full(self, name: str) -> str:
        parts = name.split(".")
        for catalog in self.catalogs:
            parts = parts[1:] if parts[0] == catalog and len(parts) > 2 else parts
        return ".".join(parts) if len(parts) > 1 else ".".join([*(self._place[1:] or ["default"]), *parts])


def _beginning(words: Sequence[str]) -> str:
    """Returns what names a statement in the report, without its literals, which may be secrets."""
    return " ".join("'…'" if word.startswith("'") else word for word in words[:4])


def _is_set(words: list[str]) -> bool:
    return len(words) > 3 and words[0].upper() == "SET" and words[2] == "="


def _after_exists(upper: list[str], start: int) -> int:
    return start + 3 if upper[start : start + 3] == ["IF", "NOT", "EXISTS"] else start


def _joined(words: Sequence[str]) -> str:
    return re.sub(r" ?([(.]) ?| ([),])", r"\1\2", " ".join(words))


def _named(items: list[list[str]], columns: list[str]) -> Iterator[list[str]]:
    """Yields what is selected under the names of the target's columns: Flink inserts by place, Frazil by name."""
    for item, column in zip_longest(items, columns if len(columns) == len(items) else []):
        is_named = column is None or item == ["*"] or _plain(item[-1]) == column
        yield item if is_named else [*(item[:-2] if item[-2:-1] in (["AS"], ["as"]) else item), "as", column]


def _read_column(table: _Table, words: list[str]) -> None:
    """Takes a column, a computed or a metadata column, or the primary key; a watermark is not needed."""
    upper = [word.upper() for word in words]
    if "PRIMARY" in upper:
        table.keys = [_plain(word) for word in _group(words, words.index("("))[0] if word != ","]
    elif "AS" in upper and upper[0] != "WATERMARK":
        table.computed.append(_plain(words[0]))
    elif upper[0] == "WATERMARK":
        return
    elif "METADATA" in upper:
        table.metadata[_plain(words[0])] = (
            _plain(words[upper.index("FROM") + 1]) if "FROM" in upper else _plain(words[0])
        )
    else:
        table.columns[_plain(words[0])] = _column_type(upper[1:])


def _column_type(upper: list[str]) -> str:
    """Returns the type in Iceberg's words; empty for a nested one, which the records decide."""
    if upper[0] in ("DECIMAL", "NUMERIC"):
        return f"decimal({upper[2]},{upper[4]})" if len(upper) > 4 and upper[3] == "," else "decimal(10,0)"
    is_local = "LOCAL" in upper
    return "timestamptz" if is_local and upper[0] == "TIMESTAMP" else _TYPES.get(upper[0], "")


def _put_catalog(draft: Draft, name: str, catalog: dict[str, str]) -> None:
    left = draft.take_all(f"{name}/")
    left.pop("type", None)
    if kind := left.pop("catalog-type", None):
        left["type"] = kind
    for key in list(left):
        known = FLINK_SQL.find(key)
        if known is not None and known.answer is not Answer.CARRIED:
            draft.settle(f"{name}/{key}", left.pop(key))
    hadoop = {
        f"spark.hadoop.{key.removeprefix('hadoop.')}": left.pop(key) for key in list(left) if key.startswith("hadoop.")
    }
    if "catalog" in draft.document:
        draft.lose(name, "a pipeline has one catalog", "make a pipeline of its own for the tables of this catalog")
    elif catalog.get("type") == "iceberg":
        draft.put(hadoop, "spark", "conf")
        put_catalog(draft, left)


def _put_table(draft: Draft, script: _Script, names: tuple[str, str], query: str) -> None:
    """Writes the table that a query over a table over Kafka feeds."""
    target, source = script.table(names[0]), script.table(names[1])
    if source is None or not source.is_kafka:
        draft.lose(f"INSERT INTO {names[0]}", f"`{names[1]}` is no table over Kafka", "give its CREATE TABLE")
        return
    settings = {**_source(draft, source), **_target(draft, source, target)}
    if query:
        settings["select"] = query
        draft.notes.append("queries are Flink's SQL: `frazil plan` shows whether Spark takes them")
    for name in source.computed:
        draft.lose(f"{source.name}/{name}", "a computed column is not made", "compute it in the `select`")
    for name, piece in source.metadata.items():
        if piece not in _PIECES:
            draft.lose(
                f"{source.name}/{name}", f"the metadata `{piece}` is unknown", "see `metadata` for what there is"
            )
    if names[0] in draft.document.get("tables", {}):
        draft.lose(f"INSERT INTO {names[0]}", "another statement fills the table", "name another table under `tables`")
    else:
        draft.put(settings, "tables", names[0])


def _source(draft: Draft, table: _Table) -> dict[str, Any]:
    prefix = f"{table.name}/"
    for key in ("connector", "format", "value.format", "key.format", "topic", "topic-pattern", *_STARTS):
        draft.take(prefix + key)
    put_kafka(draft, prefix + "properties.")
    options = table.options
    format_, envelope = options.get("value.format") or options.get("format", "json"), "none"
    if format_ in _ENVELOPES:
        format_, envelope = _ENVELOPES[format_]
    elif format_ in _FORMATS:
        format_ = _FORMATS[format_]
    else:
        draft.lose(prefix + "format", f"the format {format_} is unknown", "write the format under `value`")
        format_ = "json"
    topics = [one.strip() for one in options.get("topic", "").split(";") if one.strip()]
    pattern = options.get("topic-pattern")
    found: dict[str, Any] = {
        "topic": topics[0] if len(topics) == 1 else None,
        "topics": f"/^(?:{pattern})$/" if pattern else topics if len(topics) > 1 else None,
        "value": {"format": format_},
        "key": {"format": _KEYS.get(options["key.format"], "json")} if "key.format" in options else None,
        "envelope": envelope if envelope != "none" else None,
        "start": _start(draft, prefix, options),
        "columns": {name: kind for name, kind in table.columns.items() if kind and format_ == "json"},
        "metadata": {piece: name for name, piece in table.metadata.items() if piece in _PIECES},
    }
    for key, value in options.items():  # A table may feed several others.
        if key.endswith(".ignore-parse-errors"):
            found["on_bad_record"] = "skip" if value == "true" else "stop"
        elif key.endswith(("avro-confluent.url", "avro-confluent.schema-registry.url")):
            login = f"{key.rpartition('avro-confluent.')[0]}avro-confluent.basic-auth."
            put_registry(draft, value, options.get(f"{login}user-info"))
            draft.take(f"{prefix}{login}user-info"), draft.take(f"{prefix}{login}credentials-source")
        elif key.endswith(".message-class-name"):
            found["value"]["message"] = value
        else:
            continue
        draft.take(prefix + key)
    return found


def _start(draft: Draft, prefix: str, options: dict[str, str]) -> object:
    mode, offsets = options.get("scan.startup.mode", ""), options.get("scan.startup.specific-offsets", "")
    if mode == "timestamp":
        return number(options.get("scan.startup.timestamp-millis", "0"))
    if mode == "specific-offsets":
        pairs = re.findall(r"partition:(\d+),offset:(\d+)", offsets)
        return {int(partition): int(offset) for partition, offset in pairs}
    if mode not in ("", *_MODES):
        draft.lose(prefix + "scan.startup.mode", f"`{mode}` is no place in a topic", "write the offsets as `start`")
    return _MODES.get(mode)


def _target(draft: Draft, source: _Table, target: _Table | None) -> dict[str, Any]:
    """Returns how rows change the table, with its properties."""
    keys = (target.keys if target else []) or source.keys
    found: dict[str, Any] = {}
    upserts = [False]
    if target is not None:
        prefix = f"{target.name}/"
        upserts = [draft.take(prefix + key) == "true" for key in ("write.upsert.enabled", "upsert-enabled")]
        if version := draft.take(prefix + "format-version"):
            found["format_version"] = number(version)
        if target.options.get("connector") == "iceberg":
            draft.take(prefix + "connector")
            _put_catalog(draft, target.name, {"type": "iceberg"})
        else:
            kept = {key.removeprefix(prefix): key for key in draft.names(prefix)}
            is_own = ("write.", "read.", "history.", "commit.", "gc.")
            found["properties"] = {name: draft.take(key) for name, key in kept.items() if name.startswith(is_own)}
        found["partition_by"] = target.partitions
    if (
        any(upserts)
        or source.options.get("connector") == "upsert-kafka"
        or (keys and source.options.get("format") in _ENVELOPES)
    ):
        found |= {"mode": "upsert", "key_columns": keys}
    return found
