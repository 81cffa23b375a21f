"""Debezium Server's Iceberg sink as a pipeline; Debezium keeps reading the database, and writes to Kafka."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from frazil.secrets import secrets_of
from frazil.spec.partitioning import split_terms
from frazil_migrate.imports.debezium_forms import properties_of
from frazil_migrate.imports.draft import Answer, Draft, Imported, Tool, carried, number, unneeded, unsupported
from frazil_migrate.imports.kafka_connect import NAMELESS, put_catalog, put_kafka, put_registry
from frazil_migrate.imports.sources import variables

_SINK = "debezium.sink.iceberg."
_PRODUCER = "debezium.sink.kafka.producer."
_STAYS = "Debezium keeps it: run it with debezium.sink.type=kafka"
_LITERAL = re.compile(r"[\w$-]+(?:(?:\\)?\.[\w$-]+)*")
_DEFAULTS = {"debezium.source.decimal.handling.mode": "double", "debezium.source.time.precision.mode": "isostring"}
"""What the Iceberg sink's distribution sets for Debezium, and Debezium alone does not."""
_TIMES = {"__source_ts_ms": "source_ts", "__ts_ms": "connector_ts"}
"""The fields of metadata that the sink makes timestamps with a zone, each with its field of `metadata`."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][\w.-]*):([^}]*)\}")
_ROUTES = re.compile(r"\.(ByLogicalTableRouter|RegexRouter|TimestampRouter|EventRouter)$")
_PROFILE = "%prod."
"""The profile that Quarkus runs unless another one is named."""
_UNWRAPS = re.compile(r"\.ExtractNew\w+State$")
_OF_TABLES = ("write.", "read.", "commit.", "history.")
_OF_HADOOP = ("fs.", "hadoop.")
_FLAGS = dict.fromkeys(("true", "yes", "y", "on", "1"), True) | dict.fromkeys(("false", "no", "n", "off", "0"), False)
"""What Quarkus reads as true or false."""
_OPERATIONS = {"insert": ["c", "r", "i"], "update": ["u"], "delete": ["d"]}

DEBEZIUM_SERVER = Tool(
    "debezium-server",
    "Debezium Server",
    (
        *carried("the namespace of the tables", _SINK + "table-namespace"),
        *carried("the names of the tables", _SINK + "table-prefix", _SINK + "destination-regexp"),
        *carried("the names of the tables", _SINK + "destination-regexp-replace"),
        *carried("the names of the tables", *(f"{_SINK}destination-{case}case-table-names" for case in ("upper", "lower"))),
        *unsupported(
            "a class of your own names the tables", "write the names under `tables`", _SINK + "table-mapper",
            harmless=("default-mapper",),
        ),
        *carried("`mode: upsert`; without it `changelog: true`", _SINK + "upsert"),
        *carried("`deletes: soft`, or `hard` with false", _SINK + "upsert-keep-deletes"),
        *carried("`order_by`", _SINK + "upsert-dedup-column"),
        *carried("`envelope: {operation: …}` where it is not `__op`", _SINK + "upsert-op-field"),
        *carried("`schema_evolution`: `evolve`, or `freeze` with false", _SINK + "allow-field-addition"),
        *carried("`exclude`", _SINK + "excluded-columns"),
        *carried("`partition_by`", _SINK + "partition-by", _SINK + "partition-by.*"),
        *carried("`format_version`", _SINK + "format-version"),
        *unsupported("Frazil writes Parquet", "leave it out", _SINK + "write.format.default", harmless=("parquet",)),
        *unsupported("nested values become structs", "leave it out", _SINK + "nested-as-variant", harmless=("false",)),
        *unsupported("lineage is not sent", "use `frazil lineage`", _SINK + "openlineage-enabled*", harmless=("false",)),
        *unneeded("upsert tables get deletion vectors, or position deletes in format 2", _SINK + "upsert-use-dv"),
        *unneeded("the key columns of an upsert table identify its rows", _SINK + "create-identifier-fields"),
        *unneeded("inferred columns are optional", _SINK + "preserve-required-property"),
        *unneeded(NAMELESS, _SINK + "catalog-name"),
        *carried("`catalog`", _SINK + "warehouse", _SINK + "io-impl"),
        *carried("`catalog`; `write.…` in `properties`, `fs.…` in `spark.conf`", _SINK + "*"),
        *carried(
            "`kafka`",
            *(f"{_PRODUCER}{name}" for name in ("bootstrap.servers", "security.protocol", "sasl.*", "ssl.*")),
        ),
        *carried("`commit.interval`", "debezium.sink.batch.batch-size-wait.max-wait-ms"),
        *unneeded("`commit` decides when files are written", "debezium.sink.batch.*"),
        *carried("the topics", "debezium.source.topic.prefix", "debezium.source.database.server.name"),
        *carried("the topics", "debezium.source.table.include.list", "debezium.source.collection.include.list"),
        *carried("the topics, of SQL Server", "debezium.source.database.names"),
        *carried("`value.format` and `key.format`", "debezium.format.value", "debezium.format.key"),
        *carried("`registry.url`", "debezium.format.*schema.registry.url", "debezium.format.*apicurio.registry.url"),
        *carried("`registry.auth`", "debezium.format.*basic.auth.*"),
        *unsupported(
            "topics have names of another form", "write the names of the topics under `tables`",
            "debezium.source.topic.delimiter", "debezium.source.topic.naming.strategy",
            harmless=(".", "io.debezium.schema.defaulttopicnamingstrategy", "io.debezium.schema.schematopicnamingstrategy"),
        ),
        *unneeded(_STAYS, "debezium.source.*", "debezium.transforms*", "debezium.predicates*", "debezium.format.*"),
        *unneeded(_STAYS, "debezium.sink.type", "debezium.sink.kafka.*"),
        *unneeded("it configures Debezium's own process", "quarkus.*", "%*", "debezium.sink.icebergevents.*"),
    ),
)  # fmt: skip


def import_server(text: str, brokers: str | None) -> Imported:
    """Returns the pipeline file for an application.properties, or the same settings in one of the forms of
    `debezium_forms`.
    """
    given, guessed = properties_of(text, (setting.name for setting in DEBEZIUM_SERVER.keys))
    of_profile = {key.removeprefix(_PROFILE): value for key, value in given.items() if key.startswith(_PROFILE)}
    given = {key: value for key, value in given.items() if not key.startswith(_PROFILE)} | of_profile
    settings = {key: variables(_with_defaults(key, value)) for key, value in given.items()}
    draft = Draft(DEBEZIUM_SERVER, settings)
    for key in of_profile:
        draft.notes.append(f"{key} has the value of the profile `prod`")
    for key, value in given.items():
        _note_defaults(draft, key, value)
    for key, variable in guessed.items():
        reason = f"a variable has no dots and dashes: it is read as `{key.removeprefix(_SINK)}`"
        draft.lose(variable, reason, "correct the name in the pipeline file where the property has another one")
    _note_routers(draft)
    draft.notes.append("run Debezium with debezium.sink.type=kafka: these tables read the topics that it then writes")
    left_out = [f"{key}={value}" for key, value in _DEFAULTS.items() if draft.peek(key) is None]
    if left_out:
        draft.notes.append(f"to keep the types of the sink's tables, write its defaults there: {', '.join(left_out)}")
    put_kafka(draft, _PRODUCER)
    draft.put(draft.take_duration("debezium.sink.batch.batch-size-wait.max-wait-ms"), "commit", "interval")
    for key in [name for name in draft.names("debezium.format.") if name.endswith("registry.url")]:
        side = ".".join(key.split(".")[:3])
        logins = [f"{side}.{place}basic.auth.user.info" for place in ("", "schema.registry.")]
        login = next((name for name in logins if draft.peek(name)), logins[0])
        put_registry(draft, draft.take(key), draft.take(login), login=login)
        for place in ("", "schema.registry."):
            draft.take(f"{side}.{place}basic.auth.credentials.source")
    table = _settings(draft)
    prefix = draft.take("debezium.source.topic.prefix") or draft.take("debezium.source.database.server.name") or ""
    draft.name_pipeline(prefix or "debezium-server")
    _put_tables(draft, prefix, table)
    _put_rest(draft)
    return draft.finish(brokers)


def _with_defaults(key: str, value: str) -> str:
    """Returns the value with the defaults of variables that are not secrets: a variable has none in the pipeline file."""
    return _VARIABLE.sub(lambda match: match[0] if secrets_of(key, match[2]) else match[2], value)


def _note_defaults(draft: Draft, key: str, value: str) -> None:
    """Reports variables with a default where the setting is carried over."""
    setting = DEBEZIUM_SERVER.find(key)
    if setting is None or setting.answer is not Answer.CARRIED:
        return
    for name, default in _VARIABLE.findall(value):
        if secrets_of(key, default):
            draft.lose(
                key, "a variable has no default here", f"set the environment variable {name} before starting Frazil"
            )
        else:
            reason = f"a variable has no default here: `{default}` is taken"
            draft.lose(key, reason, f"where {name} is set, write its value there, and import again")


def _note_routers(draft: Draft) -> None:
    """Reports transforms that rename topics."""
    for alias in (name.strip() for name in (draft.peek("debezium.transforms") or "").split(",")):
        key = f"debezium.transforms.{alias}"
        if match := _ROUTES.search(draft.peek(f"{key}.type") or ""):
            draft.lose(key, f"{match[1]} renames topics", "write the names of the topics under `tables`")


def _is_on(draft: Draft, name: str) -> bool | None:
    return draft.take_flag(_SINK + name, _FLAGS)


def _settings(draft: Draft) -> dict[str, Any]:
    """Returns the settings that all tables share."""
    kinds = {side: draft.take(f"debezium.format.{side}") for side in ("value", "key")}
    for side, kind in kinds.items():
        if kind not in (None, "json", "jsonbytearray", "avro", "protobuf"):
            reason = f"`{kind}` is not a format of records in Kafka: the tables read JSON"
            draft.lose(f"debezium.format.{side}", reason, f"set debezium.format.{side}=json there")
    formats = {
        side: {"format": kind if kind in ("avro", "protobuf") else "json"} for side, kind in kinds.items() if kind
    }
    upserts, keeps = _is_on(draft, "upsert"), _is_on(draft, "upsert-keep-deletes")
    operation, order = draft.take(_SINK + "upsert-op-field"), draft.take(_SINK + "upsert-dedup-column")
    additions, excluded = _is_on(draft, "allow-field-addition"), draft.take(_SINK + "excluded-columns")
    version = draft.take(_SINK + "format-version")
    envelope = {"operation": operation, **_OPERATIONS} if operation not in (None, "", "__op") else "debezium"
    changes: dict[str, Any] = {"changelog": True}
    if upserts:
        changes = {"mode": "upsert", "deletes": "hard" if keeps is False else "soft", "order_by": order}
        if keeps is not False:
            draft.notes.append("deleted rows have `_deleted` in place of `__deleted`")
    elif upserts is None:
        draft.notes.append(
            f"without {_SINK}upsert the tables are changelogs: versions of the sink differ in the default, and where"
            " yours keeps current rows, write `mode: upsert` in place of `changelog: true`"
        )
    return {
        **formats,
        "envelope": envelope,
        **changes,
        **_times(draft, envelope == "debezium", order or ""),
        "exclude": [column.strip() for column in (excluded or "").split(",") if column.strip()],
        "schema_evolution": {True: "evolve", False: "freeze"}.get(additions) if additions is not None else None,
        "format_version": number(version) if version else None,
    }


def _times(draft: Draft, has_envelope: bool, order: str) -> dict[str, Any]:
    """Returns the settings for the two times of changes of which the sink makes timestamps with a zone, whose numbers
    records have where Debezium unwraps them, and the envelope otherwise. order: the column that orders changes.
    """
    unwrapped = _unwrapped_fields(draft)
    if unwrapped is not None or not has_envelope:
        return {"columns": dict.fromkeys((name for name in _TIMES if name in (unwrapped or ())), "timestamptz(ms)")}
    terms = [draft.peek(key) or "" for key in draft.names(_SINK + "partition-by")]
    named = {word for text in (order, *terms) for word in re.findall(r"\w+", text)}
    return {"metadata": {field: name for name, field in _TIMES.items() if name in named}}


def _unwrapped_fields(draft: Draft) -> list[str] | None:
    """Returns the fields that Debezium's unwrap transform adds to records; None where records are not unwrapped."""
    for alias in (draft.peek("debezium.transforms") or "").split(","):
        place = f"debezium.transforms.{alias.strip()}."
        if _UNWRAPS.search(draft.peek(f"{place}type") or ""):
            prefix = draft.peek(f"{place}add.fields.prefix") or "__"
            added = [field.strip().partition(":") for field in (draft.peek(f"{place}add.fields") or "").split(",")]
            return [prefix + (name or field.replace(".", "_")) for field, _, name in added]
    return None


def _put_tables(draft: Draft, prefix: str, table: dict[str, Any]) -> None:
    namespace = draft.take(_SINK + "table-namespace") or "default"
    included = [draft.take(f"debezium.source.{kind}.include.list") for kind in ("table", "collection")]
    names = [name.strip() for name in (included[0] or included[1] or "").split(",") if name.strip()]
    databases = [name.strip() for name in (draft.take("debezium.source.database.names") or "").split(",")]
    shared = draft.take(_SINK + "partition-by")
    name_of = _Names(draft)
    if names and prefix and all(map(_LITERAL.fullmatch, names)):
        tables: dict[str, list[str]] = {}  # Several topics may have one table.
        for database, name in product(databases, names):
            topic = ".".join(filter(None, (prefix, database, name.replace("\\", ""))))
            tables.setdefault(f"{namespace}.{name_of(topic)}", []).append(topic)
        for name, topics in tables.items():
            terms = [draft.take(f"{_SINK}partition-by.{topic}") for topic in topics]
            partitions = split_terms((next(filter(None, terms), None) or shared or "").replace("\\", ""))
            source = {"topic": topics[0]} if len(topics) == 1 else {"topics": topics}
            draft.put({**source, **table, "partition_by": partitions}, "tables", name)
        return
    draft.notes.append("the captured tables are not listed: each topic of the prefix gets a table")
    name_of.refuse_patterns()
    has_databases = "sqlserver" in (draft.peek("debezium.source.connector.class") or "").lower()
    parts = 3 if has_databases else 2  # Of a topic, behind the prefix: SQL Server's have database, schema and table.
    to = f"{namespace}.{name_of.prefix}{'_'.join(f'${number}' for number in range(1, parts + 2))}"
    pattern = rf"/^({re.escape(prefix) if prefix else '[^.]+'})" + r"\.([^.]+)" * parts + "$/"
    draft.put_route(
        {"topics": pattern, "to": to, **table, "partition_by": split_terms((shared or "").replace("\\", ""))}
    )


class _Names:
    """How destinations become names of tables."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.prefix = draft.take(_SINK + "table-prefix") or ""
        self._pattern = draft.take(_SINK + "destination-regexp")
        self._replacement = draft.take(_SINK + "destination-regexp-replace") or ""
        self._is_upper, self._is_lower = (
            _is_on(draft, f"destination-{case}case-table-names") for case in ("upper", "lower")
        )

    def __call__(self, topic: str) -> str:
        if self._pattern:
            try:
                topic = re.sub(self._pattern, re.sub(r"\$(\d)", r"\\\1", self._replacement), topic)
            except re.error:
                self._refuse("the expression is Java's alone")
        name = self.prefix + topic.replace(".", "_")
        return name.upper() if self._is_upper else name.lower() if self._is_lower else name

    def refuse_patterns(self) -> None:
        """Reports what a route cannot do to names."""
        if self._pattern or self._is_upper or self._is_lower:
            self._refuse("a route does not replace parts of names, nor their case")

    def _refuse(self, reason: str) -> None:
        self._draft.lose(_SINK + "destination-regexp", reason, "list the tables under `tables`")


def _put_rest(draft: Draft) -> None:
    """Writes what the sink passes to the catalog, to tables and to Hadoop."""
    catalog: dict[str, str] = {}
    for key in draft.names(_SINK):
        name, setting = key.removeprefix(_SINK), DEBEZIUM_SERVER.find(key)
        if setting is None or setting.name not in (_SINK + "warehouse", _SINK + "io-impl", _SINK + "*"):
            continue
        if DEBEZIUM_SERVER.meant(key):
            continue
        value = draft.take(key) or ""
        if name.startswith(_OF_HADOOP):
            draft.put(value, "spark", "conf", f"spark.hadoop.{name}")
        elif name.startswith(_OF_TABLES):
            draft.put(value, "defaults", "properties", name)
        else:
            catalog[name] = value
    if put_catalog(draft, catalog, draft.peek(_SINK + "catalog-name") or "default"):
        draft.take(_SINK + "catalog-name")
