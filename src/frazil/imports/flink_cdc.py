"""A pipeline of Flink CDC as one of Frazil: its sink, routes and transforms; its source must write to Kafka first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from frazil.imports.answers import Tool, carried, unneeded, unsupported
from frazil.imports.draft import Draft, Imported
from frazil.imports.kafka_connect import put_catalog
from frazil.imports.sources import flat, items, mapping, parse_yaml
from frazil.spec.partitioning import split_terms

_STAYS = "Flink CDC has no source for Kafka: run Debezium for the database, with the same tables"
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
        *carried("the topics, of tables without a route", "source.tables"),
        *unneeded(_STAYS, "source.*"),
        *carried("`catalog`", "sink.catalog.properties.*"),
        *carried("`spark.conf`, as `spark.hadoop.…`", "sink.hadoop.conf.*"),
        *carried("`properties`", "sink.table.properties.*"),
        *carried("`partition_by`", "sink.partition.key"),
        *unneeded("table maintenance compacts", "sink.*compaction.*"),
        *unneeded("it names the sink", "sink.type", "sink.name", "sink.description", "sink.job.id.prefix"),
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
        *unsupported(
            "a table reads its topics, whatever others read", "narrow the `topics`", "pipeline.route-mode",
            harmless=("all_match",),
        ),
        *unsupported(
            "queries have Spark's functions alone", "write it in Spark SQL, or run it before the topic",
            "pipeline.user-defined-function*", "pipeline.model*",
        ),
        *unsupported("times without a zone stay so", "give columns a `zone`", "pipeline.local-time-zone", harmless=("utc",)),
        *unneeded("decimals keep their precision", "pipeline.transform.decimal.precision.mode"),
        *unneeded("it configures Flink itself", "pipeline.*operator*", "pipeline.execution.*", "pipeline.sink.*"),
    ),
)  # fmt: skip


def import_pipeline(text: str, brokers: str | None) -> Imported:
    """Returns the pipeline file for a Flink CDC pipeline's YAML."""
    found = parse_yaml(text)
    rules = {kind: [flat(mapping(one)) for one in items(found.pop(kind, None))] for kind in ("route", "transform")}
    of_rules = {
        f"{number}/{kind}.{key}": value
        for kind, entries in rules.items()
        for number, entry in enumerate(entries, 1)
        for key, value in entry.items()
    }
    draft = Draft(FLINK_CDC, {**flat(found), **of_rules})
    draft.notes.append(f"{_STAYS}, whatever its topic.prefix")
    draft.name_pipeline(draft.take("pipeline.name") or FLINK_CDC.name)
    put_catalog(draft, draft.take_all("sink.catalog.properties."))
    hadoop = draft.take_all("sink.hadoop.conf.").items()
    draft.put({f"spark.hadoop.{name}": value for name, value in hadoop}, "spark", "conf")
    shared: dict[str, Any] = {"envelope": "debezium", "mode": "upsert"}
    behavior = draft.take("pipeline.schema.change.behavior")
    shared |= _BEHAVIORS.get((behavior or "").lower(), {})
    if behavior and behavior.lower() not in _BEHAVIORS:
        draft.lose("pipeline.schema.change.behavior", f"`{behavior}` is unknown", "write `schema_evolution`")
    shared["properties"] = draft.take_all("sink.table.properties.")
    partitions = dict(_partitions(draft.take("sink.partition.key")))
    transforms = [_Transform(draft, number, entry) for number, entry in enumerate(rules["transform"], 1)]
    routed = []
    for number, route in enumerate(rules["route"], 1):
        for key in ("source-table", "sink-table", "replace-symbol"):
            draft.take(f"{number}/route.{key}")
        source, sink = route.get("source-table", ""), route.get("sink-table", "")
        routed += _split(source)
        _put(draft, source, sink, route.get("replace-symbol"), (shared, transforms, partitions))
    for source in _split(draft.take("source.tables") or ""):
        if not any(one == source or _matches(one, source) for one in routed):
            _put(draft, source, source, None, (shared, transforms, partitions), routed)
    for one in transforms:
        one.settle()
    return draft.finish(brokers)


_Rules = tuple[dict[str, Any], list["_Transform"], dict[str, list[str]]]


def _put(draft: Draft, source: str, sink: str, symbol: str | None, rules: _Rules, routed: Sequence[str] = ()) -> None:
    """Writes the table of a route, or the route of many tables. routed: tables that other routes take."""
    shared, transforms, partitions = rules
    own = next((one for one in transforms if one.takes(source)), None)
    settings = {**shared, **(own.settings(shared["properties"]) if own else {})}
    settings["partition_by"] = partitions.get(sink) or settings.get("partition_by")
    is_many = (symbol is not None and symbol in sink) or "$" in sink or not _LITERAL.fullmatch(sink)
    if not is_many:
        draft.put({"topics": f"/{_topics(_split(source))}/", **settings}, "tables", sink)
        return
    database, table = (["", *re.split(r"(?<!\\)\.", source, maxsplit=1)])[-2:]
    to = sink.replace(symbol, "$1") if symbol else sink if "$" in sink else f"{sink.partition('.')[0]}.$1"
    topics = _topics([source] if "(" in source else [f"{database}.({table})"], routed)
    if "," in source or not _LITERAL.match(to.partition("$")[0] + "x"):
        draft.lose(f"route {source}", "its tables cannot be named after topics", "write `routes` for each database")
        return
    draft.put_route({"topics": f"/{topics}/", "to": to, **settings})


def _split(tables: str) -> list[str]:
    return [one.strip() for one in re.split(r"[,;]", tables) if one.strip()]


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
    for one in filter(None, (text or "").split(";")):
        table, _, terms = one.partition(":")
        yield table.strip(), _terms(terms)


def _terms(text: str) -> list[str]:
    return split_terms(_BUCKETS.sub(r"\1(\3, \2)", text))


class _Transform:
    """One rule of `transform`: settings of the tables that it is for."""

    def __init__(self, draft: Draft, number: int, entry: Mapping[str, str]) -> None:
        self._draft, self._number, self._entry = draft, number, entry
        self._is_used = False

    def takes(self, source: str) -> bool:
        """Whether the rule is for the tables of a route."""
        mine = self._entry.get("source-table", "")
        return any(one == mine or _matches(mine, one) for one in _split(source))

    def settings(self, properties: Mapping[str, str]) -> dict[str, Any]:
        """Returns the settings; of several rules for a table Flink CDC takes the first."""
        self._is_used = True
        entry, found = self._entry, dict[str, Any]()
        if projection := entry.get("projection"):
            found["select"] = f"select {projection.replace(chr(92) + '*', '*')} from records"
            self._draft.notes.append(
                "projections and filters are Flink's SQL: `frazil plan` shows whether Spark takes them"
            )
        if converter := entry.get("converter-after-transform"):
            is_soft = converter == "SOFT_DELETE"
            found["deletes"] = "soft" if is_soft else None
            if not is_soft:
                self._draft.lose(
                    self._name("converter-after-transform"), f"`{converter}` is unknown", "write a `select`"
                )
        options = entry.get("table-options", "").split(entry.get("table-options.delimiter", ","))
        found["properties"] = {**properties, **dict(one.strip().split("=", 1) for one in options if "=" in one)}
        found["where"], found["key_columns"] = entry.get("filter"), _split(entry.get("primary-keys", ""))
        found["partition_by"] = _terms(entry.get("partition-keys", ""))
        return found

    def settle(self) -> None:
        """Counts the rule as carried over, or reports one that is for no table."""
        if not self._is_used:
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
