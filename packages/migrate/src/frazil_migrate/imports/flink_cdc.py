"""A pipeline of Flink CDC as one of Frazil: its sink, routes and transforms; its source must write to Kafka first.
Projections and filters become Spark's SQL: metadata by Frazil's names, and computed columns in conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frazil.errors import SpecError
from frazil.spec.partitioning import split_terms
from frazil_migrate.imports.draft import Draft, Imported, Tool, carried, unneeded, unsupported
from frazil_migrate.imports.kafka_connect import put_catalog
from frazil_migrate.imports.sources import flat, items, mapping, parse_yaml
from frazil_migrate.imports.sql import Word, comma_separated, joined, plain, without_name, words_of

EVENT_TYPE = "__data_event_type__"
_EVENT_TYPES = "case _op when 'd' then '-D' when 'u' then '+U' else '+I' end"
_LISTED = {
    "op_ts": "unix_millis(_source_ts)", "table_name": "_source_table", "schema_name": "_source_schema",
    "database_name": "_source_database",
}  # fmt: skip
"""Metadata that a source gives where its `metadata.list` asks for it."""
_STAYS = "Frazil reads topics and no database: run Debezium for it, with the same tables"
_NAMESPACE = "lake"
_CATALOG = "IcebergMetadataApplier"
"""What Flink CDC calls the catalog in which it creates tables."""
_DATABASE = re.compile(r"[\w-]+(\.[\w-]+)*")
_LITERAL = re.compile(r"[\w-]+(\.[\w-]+)+")
_BUCKETS = re.compile(r"(bucket|truncate)\[(\d+)\]\(([^()]+)\)")
_BEHAVIORS: Mapping[str, dict[str, str]] = {
    "evolve": {"schema_evolution": "evolve"},
    "try_evolve": {"schema_evolution": "evolve"},
    "lenient": {"schema_evolution": "add_only"},
    "exception": {"schema_evolution": "freeze"},
    "ignore": {"schema_evolution": "freeze"},
}
FLINK_CDC = Tool(
    "flink-cdc",
    "Flink CDC",
    (
        *carried("the topics, of tables without a route", "source.tables", "source.table-id.include-database"),
        *carried("metadata in `select` and `where`", "source.metadata.list"),
        *unneeded(_STAYS, "source.*"),
        *carried("`catalog`", "sink.catalog.properties.*"),
        *carried("`spark.conf`, as `spark.hadoop.…`", "sink.hadoop.conf.*"),
        *carried("`properties`, and `format_version`", "sink.table.properties.*"),
        *carried("`partition_by`", "sink.partition.key"),
        *unneeded("table maintenance compacts", "sink.*compaction.*"),
        *unsupported(
            "a table follows changes of the schema by one setting", "write `schema_evolution`",
            "sink.include.schema.changes", "sink.exclude.schema.changes",
        ),
        *unsupported(
            "the sink is none of Iceberg's", "write the `catalog` of your Iceberg tables", "sink.type", harmless=("iceberg",)
        ),
        *unneeded("it names the sink", "sink.name", "sink.description", "sink.job.id.prefix"),
        *unneeded("Spark's master sets how much runs at a time", "sink.parallelism", "pipeline.parallelism"),
        *carried("`topics` and the names of tables", "route.source-table", "route.sink-table", "route.replace-symbol"),
        *unneeded("it is a comment", "route.description", "transform.description"),
        *carried("the tables that the rule is for", "transform.source-table"),
        *carried("`select`", "transform.projection"),
        *carried("`where`", "transform.filter"),
        *carried("`key_columns`", "transform.primary-keys"),
        *carried("`partition_by`", "transform.partition-keys"),
        *carried("`properties`", "transform.table-options", "transform.table-options.delimiter"),
        *carried("`deletes: soft`", "transform.converter-after-transform"),
        *carried("`pipeline`", "pipeline.name"),
        *carried("`schema_evolution`", "pipeline.schema.change.behavior"),
        *carried("`topics`, without those of routes that precede", "pipeline.route-mode"),
        *unsupported(
            "queries have Spark's functions alone", "write it in Spark SQL, or run it before the topic",
            "pipeline.user-defined-function*", "pipeline.model*",
        ),
        *unsupported("times without a zone stay so", "give columns a `zone`", "pipeline.local-time-zone", harmless=("utc",)),
        *unneeded("decimals keep their precision", "pipeline.transform.decimal.precision.mode"),
        *unneeded("it configures Flink itself", "pipeline.*operator*", "pipeline.execution.*", "pipeline.sink.*"),
    ),
)  # fmt: skip


def metadata_names(source: Mapping[str, str]) -> dict[str, str]:
    """Returns the expressions for the metadata that rules may name. source: the settings of the pipeline's source."""
    has_schemas = source.get("type") in ("postgres", "oracle", "sqlserver")
    listed = [name.strip() for name in source.get("metadata.list", "").split(",")]
    return {
        "__namespace_name__": "_source_database",
        "__schema_name__": "_source_schema" if has_schemas else "_source_database",
        "__table_name__": "_source_table",
        EVENT_TYPE: _EVENT_TYPES,
        **{name: expression for name, expression in _LISTED.items() if name in listed},
    }


@dataclass(frozen=True)
class Projection:
    """A projection and the filter beside it."""

    #: Empty where all fields stay as they are.
    select: str
    where: str


def project(projection: str, condition: str, metadata: Mapping[str, str]) -> Projection:
    """Returns the query and the condition. A column that is computed under the name of a field has the place of the field,
    and a condition may name a computed column.
    """
    columns = [
        _read(item, metadata) for item in comma_separated([word for word in words_of(projection) if word != "\\"])
    ]
    replaced = [column.name for column in columns if column.is_replaced]
    texts = [
        f"* except ({', '.join(replaced)})" if column.text == "*" and replaced else column.text for column in columns
    ]
    computed = {column.name: f"({column.value})" for column in columns if column.is_computed}
    where = joined([_replaced(word, {**metadata, **computed}) for word in words_of(condition)])
    return Projection("" if texts in ([], ["*"]) else f"select {', '.join(texts)} from records", where)


@dataclass(frozen=True)
class _Column:
    """A column of a projection."""

    name: str
    #: The expression without the name.
    value: str
    #: As the query has it.
    text: str
    #: Whether it has the name of a field that it is made of.
    is_replaced: bool = False
    #: Whether it has a name of its own.
    is_computed: bool = False


def _read(item: list[str], metadata: Mapping[str, str]) -> _Column:
    """Returns the column that words of a projection make."""
    words = without_name(item)
    value = joined([_replaced(word, metadata) for word in words])
    if words == item and item[0] not in metadata:
        return _Column("", value, value)
    name = plain(item[-1])
    is_replaced = words != item and any(plain(word) == name for word in words)
    return _Column(name, value, f"{value} as {item[-1]}", is_replaced, not is_replaced)


def _replaced(word: str, by: Mapping[str, str]) -> str:
    """Returns the word, or what stands for it, with the space before it."""
    replacement = Word(by.get(plain(word), word) if not word.startswith("'") else word)
    replacement.is_apart = getattr(word, "is_apart", True)
    return replacement


def import_pipeline(text: str, brokers: str | None) -> Imported:
    """Returns the pipeline file for a Flink CDC pipeline's YAML."""
    pipeline = parse_yaml(text)
    rules = {kind: list(_rules(kind, pipeline.pop(kind, None))) for kind in ("route", "transform")}
    of_rules = {
        f"{number}/{kind}.{key}": value
        for kind, entries in rules.items()
        for number, entry in enumerate(entries, 1)
        for key, value in entry.items()
    }
    draft = Draft(FLINK_CDC, {**flat(pipeline), **of_rules})
    draft.notes.append(f"{_STAYS}, whatever its topic.prefix")
    draft.name_pipeline(draft.take("pipeline.name") or FLINK_CDC.name)
    if put_catalog(draft, draft.take_all("sink.catalog.properties."), _CATALOG):
        draft.notes.append(f"Flink CDC creates tables under the catalog name {_CATALOG}: name another under `catalog`")
    hadoop = draft.take_all("sink.hadoop.conf.").items()
    draft.put({f"spark.hadoop.{name}": value for name, value in hadoop}, "spark", "conf")
    shared: dict[str, Any] = {"envelope": "debezium", "mode": "upsert"}
    behavior = draft.take("pipeline.schema.change.behavior")
    shared |= _BEHAVIORS.get((behavior or "").lower(), {})
    if behavior and behavior.lower() not in _BEHAVIORS:
        draft.lose("pipeline.schema.change.behavior", f"`{behavior}` is unknown", "write `schema_evolution`")
    shared["properties"] = draft.take_all("sink.table.properties.")
    tables = _Tables(draft, flat(pipeline.get("source") or {}))
    draft.take("source.table-id.include-database"), draft.take("source.metadata.list")
    tables.first_wins = (draft.take("pipeline.route-mode") or "").upper() == "FIRST_MATCH"
    tables.transforms = [_Transform(draft, number, entry, tables) for number, entry in enumerate(rules["transform"], 1)]
    tables.partitions = dict(_partitions(draft.take("sink.partition.key")))
    tables.shared = shared
    if "sink" not in pipeline:
        draft.lose("sink", "the pipeline has no sink", "write the `catalog` of your Iceberg tables")
    for number, route in enumerate(rules["route"], 1):
        if lacking := [key for key in ("source-table", "sink-table") if not route.get(key)]:
            draft.lose(f"{number}/route", f"it has no {lacking[0]}", "name it there, and import again")
            continue
        for key in ("source-table", "sink-table", "replace-symbol"):
            draft.take(f"{number}/route.{key}")
        tables.put(route["source-table"], route["sink-table"], route.get("replace-symbol"))
    captured = draft.take("source.tables") or ""
    if not captured and not rules["route"]:
        draft.lose("source.tables", "the pipeline names no table", "write Debezium's topics under `tables`")
    tables.put_sources(captured)
    tables.settle()
    return draft.finish(brokers)


def _rules(kind: str, entries: object) -> Iterator[dict[str, str]]:
    """Yields the routes, or the transforms, with their settings.

    Raises: SpecError for an entry without settings.
    """
    for number, entry in enumerate(items(entries), 1):
        if not isinstance(entry, dict) or not entry:
            message = f"entry {number} of `{kind}` has no settings"
            raise SpecError(message, remedy="write it as a mapping, such as `{source-table: db.orders}`")
        yield flat(mapping(entry))


class _Tables:
    """Tables of the pipeline file, made of routes and of the source's own tables."""

    def __init__(self, draft: Draft, source: Mapping[str, str]) -> None:
        self._draft = draft
        self._kind, self._has_database = source.get("type"), source.get("table-id.include-database") == "true"
        self.metadata = metadata_names(source)
        #: Whether a table goes through its first route alone.
        self.first_wins = False
        self.transforms: list[_Transform] = []
        self.partitions: dict[str, list[str]] = {}
        self.shared: dict[str, Any] = {}
        self._routed: list[str] = []
        self._merged: dict[str, list[str]] = {}
        #: The names of tables and templates that the pipeline file has.
        self._filled: set[str] = set()

    def in_topics(self, tables: str) -> list[str]:
        """Returns the names of tables as Debezium's topics have them: those of PostgreSQL lack the database."""
        names = [_parts(name) for name in _split(tables)]
        return [
            ".".join(name_parts[1:] if self._kind == "postgres" and len(name_parts) == 3 else name_parts)
            for name_parts in names
        ]

    def put(self, source: str, sink: str, symbol: str | None) -> None:
        """Writes the tables of a route."""
        sources = self.in_topics(source)
        self._put(sources, sink, symbol, tuple(self._routed) if self.first_wins else ())
        self._routed += sources

    def put_sources(self, tables: str) -> None:
        """Writes the source's tables that no route has."""
        for table in _split(tables):
            (name,) = self.in_topics(table)
            if not any(other == name or _matches(other, name) for other in self._routed):
                self._put([name], table if self._has_database else name, None, self._routed)

    def _put(self, sources: list[str], sink: str, symbol: str | None, without: Sequence[str]) -> None:
        """Writes one table, or a route and those of its tables that have a rule of their own. without: tables of other
        routes.
        """
        without = [
            other_table
            for other_table in without
            if not _LITERAL.fullmatch(other_table) or any(_matches(mine, other_table) for mine in sources)
        ]
        if not ((symbol and symbol in sink) or "$" in sink or not _LITERAL.fullmatch(sink)):
            held = self._merged.setdefault(sink, [])  # Several routes may lead to one table.
            held += sources
            topics = _topics(held, [other_table for other_table in without if other_table not in held])
            self._draft.put({"topics": f"/{topics}/", **self._settings(held, sink)}, "tables", sink)
            return
        for table in self._with_own(sources, without):
            name = _name_of(table, sources[0], sink, symbol)
            self._draft.put({"topics": f"/{_topics([table])}/", **self._settings([table], name)}, "tables", name)
        expression, to = _template(sources, sink, symbol)
        if not to:
            reason = "its tables cannot be named after topics"
            self._draft.lose(f"route {','.join(sources)}", reason, "write `routes` for each database")
            return
        if "." not in to.partition("$")[0][1:]:
            to = f"{_NAMESPACE}.{to.replace('.', '_')}"
            reason = f"tables of a route begin with a namespace: they are `{to}` here"
            self._draft.lose(
                f"route {','.join(sources)}", reason, "write `routes` for each database, with its name in `to`"
            )
        self._draft.put_route(
            {"topics": f"/{_topics([expression], without)}/", "to": to, **self._settings(sources, sink)}
        )

    def _with_own(self, sources: list[str], without: Sequence[str]) -> list[str]:
        """Returns the tables among many that have a rule, or partitions, of their own."""
        rules = [
            transform.source
            for transform in self.transforms
            if transform.is_for_one and self._rule([transform.source]) is transform
        ]
        named = [
            table
            for table in dict.fromkeys([*rules, *self.partitions])
            if any(_matches(mine, table) for mine in sources)
        ]
        return [table for table in named if not any(_matches(other, table) for other in without)]

    def settle(self) -> None:
        """Reports rules and partitions that are for no table."""
        for rule in self.transforms:
            rule.settle()
        for table in sorted(self.partitions.keys() - self._filled):
            reason = f"no table of its own is `{table}`"
            self._draft.lose(
                "sink.partition.key", reason, "write `partition_by` in the table, or the route, that has it"
            )

    def _rule(self, sources: list[str]) -> _Transform | None:
        """Returns the rule for tables; of several Flink CDC takes the first."""
        return next((transform for transform in self.transforms if transform.takes(sources)), None)

    def _settings(self, sources: list[str], sink: str) -> dict[str, Any]:
        rule = self._rule(sources)
        settings = {**self.shared, **(rule.settings(self.shared["properties"]) if rule else {})}
        self._filled.add(sink)
        settings["partition_by"] = self.partitions.get(sink) or settings.get("partition_by")
        return settings


def _parts(table: str) -> list[str]:
    """Returns the parts of a name, which dots without a backslash divide."""
    return re.split(r"(?<!\\)\.", table)


def _ungrouped(expression: str) -> str:
    return re.sub(r"(?<!\\)\((?!\?)", "(?:", expression)


def _template(sources: Sequence[str], sink: str, symbol: str | None) -> tuple[str, str]:
    """Returns the expression for the tables of a route, and what names them; nothing where topics cannot."""
    heads = {".".join(_parts(source)[:-1]) for source in sources}
    head, tails = heads.pop(), "|".join(_ungrouped(_parts(source)[-1]) for source in sources)
    if heads or ("$" in sink and len(sources) > 1):
        return "", ""
    if symbol and symbol in sink:
        return f"{_ungrouped(head)}.({tails})", sink.replace(symbol, "$1")
    if "$" in sink:
        return sources[0], sink
    if _DATABASE.fullmatch(head):
        return f"{head}.({tails})", f"{'.'.join(_parts(sink)[:-1])}.$1"
    return f"({_ungrouped(head)}).({tails})", "$1.$2"


def _name_of(table: str, source: str, sink: str, symbol: str | None) -> str:
    """Returns the name that a route gives to one table."""
    if symbol and symbol in sink:
        return sink.replace(symbol, _parts(table)[-1])
    if "$" in sink:
        match = re.fullmatch(_expression(source), table)
        return re.sub(r"\$(\d)", lambda group: match[int(group[1])] if match else "", sink)
    head = ".".join(_parts(sink)[:-1])
    return f"{head}.{_parts(table)[-1]}" if _DATABASE.fullmatch(head) else table


def _split(tables: str) -> list[str]:
    return [table.strip() for table in re.split(r"[,;]", tables) if table.strip()]


def _topics(tables: Iterable[str], without: Iterable[str] = ()) -> str:
    """Returns the expression for Debezium's topics of tables, `without` some."""
    plain, others = "|".join(map(_expression, tables)), "|".join(map(_expression, without))
    return rf"^[^.]+\.{f'(?!(?:{others})$)' if others else ''}{f'(?:{plain})' if '|' in plain else plain}$"


def _expression(tables: str) -> str:
    """Returns the regular expression of Flink CDC's, in which `\\.` is any sign and a dot divides names."""
    return re.sub(r"\\?\.", lambda dot: "." if len(dot[0]) > 1 else r"\.", tables)


def _matches(pattern: str, table: str) -> bool:
    try:
        return re.fullmatch(_topics([pattern]), f"x.{table}") is not None
    except re.error:
        return False


def _partitions(text: str | None) -> Iterable[tuple[str, list[str]]]:
    """Yields the partitions of each table in `db.t:bucket[10](id);db.u:day(ts)`."""
    for entry in filter(None, (text or "").split(";")):
        table, _, terms = entry.partition(":")
        yield table.strip(), _terms(terms)


def _terms(text: str) -> list[str]:
    return split_terms(_BUCKETS.sub(r"\1(\3, \2)", text))


class _Transform:
    """One rule of `transform`: settings of the tables that it is for."""

    def __init__(self, draft: Draft, number: int, entry: Mapping[str, str], tables: _Tables) -> None:
        self._draft, self._number, self._entry, self._tables = draft, number, entry, tables
        self._is_used = False
        self.source = next(iter(tables.in_topics(entry.get("source-table", ""))), "")

    @property
    def is_for_one(self) -> bool:
        """Whether the rule names one table."""
        return _LITERAL.fullmatch(self.source) is not None

    def takes(self, sources: Sequence[str]) -> bool:
        """Whether the rule is for one of these tables."""
        return any(source == self.source or _matches(self.source, source) for source in sources)

    def settings(self, properties: Mapping[str, str]) -> dict[str, Any]:
        """Returns the settings."""
        self._is_used = True
        entry, settings = self._entry, dict[str, Any]()
        for key in ("projection", "filter"):
            if {"'", '"', "`"} & set(words_of(entry.get(key, ""))):
                self._draft.lose(self._name(key), "a quotation mark is not closed", "close it there, and import again")
        query = project(entry.get("projection", ""), entry.get("filter", ""), self._tables.metadata)
        settings["select"], settings["where"] = query.select, query.where
        if query.select or query.where:
            self._draft.notes.append(
                "projections and filters are Flink's SQL: `frazil plan` shows whether Spark takes them"
            )
        if converter := entry.get("converter-after-transform"):
            is_soft = converter == "SOFT_DELETE"
            settings["deletes"] = "soft" if is_soft else None
            key = self._name("converter-after-transform")
            if not is_soft:
                self._draft.lose(key, f"`{converter}` is unknown", "write a `select`")
            elif EVENT_TYPE in entry.get("projection", ""):
                self._draft.lose(
                    key, "a deleted row keeps the values that it had, and the type of that change", "read `_deleted`"
                )
        options = entry.get("table-options", "").split(entry.get("table-options.delimiter", ","))
        settings["properties"] = {
            **properties,
            **dict(option.strip().split("=", 1) for option in options if "=" in option),
        }
        settings["key_columns"] = _split(entry.get("primary-keys", ""))
        settings["partition_by"] = _terms(entry.get("partition-keys", ""))
        return settings

    def settle(self) -> None:
        """Counts the rule as carried over, or reports one that is for no table."""
        earlier = self._tables.transforms[: self._number - 1]
        if not self._is_used and any(other.takes([self.source]) for other in earlier):
            reason = "a rule before it is for the table too: here a table has one `select` and one `where`"
            self._draft.lose(self._name("source-table"), reason, "write both as one `select`, with `case when … end`")
        elif not self._is_used:
            table = self._entry.get("source-table", "")
            self._draft.lose(
                self._name("source-table"),
                f"no route and no table is `{table}`",
                "write it in the table that it is for",
            )
        for key in self._entry:
            if key != "description":
                self._draft.take(self._name(key))

    def _name(self, key: str) -> str:
        return f"{self._number}/transform.{key}"
