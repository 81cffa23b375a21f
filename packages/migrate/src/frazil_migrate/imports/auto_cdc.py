"""AUTO CDC flows of declarative pipelines, of Databricks and Spark, as tables.

Type 1 becomes `mode: upsert`, type 2 `mode: history`. The queries between a topic and a flow become one `select`. A row that
its condition does not take is a delete, in both modes: so is what APPLY AS DELETE WHEN takes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from frazil.errors import SpecError
from frazil_migrate.imports.auto_cdc_json import json_records
from frazil_migrate.imports.auto_cdc_python import statements_of
from frazil_migrate.imports.auto_cdc_script import Flow, Pipeline, Relation, read_pipeline, sources_in
from frazil_migrate.imports.draft import Draft, Imported, Tool, carried, unneeded, unsupported
from frazil_migrate.imports.kafka_connect import put_kafka
from frazil_migrate.imports.sql import comma_separated, group, plain, quoted, spelled

_READ_KAFKA = "read_kafka"
_KAFKA_COLUMNS = {
    "key": "_key",
    "topic": "_topic",
    "partition": "_kafka_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
}
"""Columns of Spark's source of Kafka, and what a query names them here."""
_RESCUED = "_rescued_data"
_SEQUENCE = "_sequence"
"""The column of a sequence that is not one column."""
_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TIMESTAMPTZ", "DATE", "")
_SCHEMA = "default"
_OF_STREAM = ("KEYS", "SEQUENCE BY", "APPLY AS DELETE WHEN", "STORED AS", "COLUMNS", "TRACK HISTORY ON", "FROM")

AUTO_CDC = Tool(
    "auto-cdc",
    "AUTO CDC",
    (
        *carried("`topic`, and the query in `select`", "FROM"),
        *carried("`key_columns`", "KEYS"),
        *carried("`order_by`, whose column stays in the table", "SEQUENCE BY"),
        *carried("the condition of the `select`: a row that it does not take is deleted", "APPLY AS DELETE WHEN"),
        *carried("the columns of the `select`", "COLUMNS"),
        *carried("`mode: upsert` for type 1, `mode: history` for type 2", "STORED AS"),
        *carried("`track`", "TRACK HISTORY ON"),
        *carried("`expect`", "CONSTRAINT"),
        *carried("`partition_by`", "PARTITIONED BY"),
        *carried("`properties`", "COMMENT", "write.*", "history.*", "format-version"),
        *unsupported(
            "a truncate is not a condition of a record", "read the source's envelope, such as `envelope: debezium`, whose"
            " truncates empty an upsert table", "APPLY AS TRUNCATE WHEN",
        ),
        *unsupported(
            "a row does not have the order of each of its values",
            "write `merge: latest_non_null` in place of `order_by`, where the records of a key come in their order",
            "IGNORE NULL UPDATES",
        ),
        *unsupported(
            "what was believed earlier is in older snapshots", "keep them, or tag them, with `maintenance` and `tags`",
            "SYSTEM SEQUENCE BY",
        ),
        *unsupported("a topic is read once from `start` on", "write older rows to the topic, or fill it before", "ONCE"),
        *unsupported("files of an Iceberg table are not clustered", "write `partition_by` or `sort_by`", "CLUSTER BY"),
        *unsupported("it is of tables in files", "write `partition_by: [\"bucket(COLUMN, N)\"]`", "CLUSTERED BY"),
        *unsupported("rows are hidden by engines", "write `where`, or `protect`", "ROW FILTER", "WITH ROW FILTER"),
        *unsupported("the catalog decides the place", "write `location`", "LOCATION"),
        *unsupported("text is compared by its bytes", "write `lower(…)` in the `select`", "DEFAULT COLLATION"),
        *unneeded("tables are Iceberg's", "USING"),
        *unneeded("a run commits as long as it lasts", "SCHEDULE", "TRIGGER ON"),
        *unneeded("they are of Delta tables, or of the pipeline", "delta.*", "pipelines.*", "quality"),
        *carried("`kafka`", "bootstrapServers", "kafka.bootstrap.servers", "kafka.security.protocol", "kafka.sasl.*"),
        *carried("`kafka`", "kafka.ssl.*", "kafka.isolation.level"),
        *carried("`topic` or `topics`", "subscribe", "subscribePattern"),
        *carried("`start`", "startingOffsets"),
        *unsupported("partitions are not chosen", "write `topic`", "assign"),
        *unsupported("it is Spark's", "write a time as `start`", "startingTimestamp", "startingOffsetsByTimestamp*"),
        *unsupported("a run does not end by itself", "run with `--until-caught-up`", "ending*"),
        *unsupported("it is a login of Databricks", "write `kafka.sasl.…`", "*serviceCredential"),
        *unneeded("progress is in the tables", "kafka.group.id", "groupIdPrefix", "consumerGroup*"),
        *unneeded("Frazil chooses how it fetches", "kafka.*", "maxOffsetsPerTrigger", "min*", "max*", "fetchOffset*"),
        *unneeded("data that Kafka has deleted stops the table", "failOnDataLoss", "kafkaConsumer*"),
        *unneeded("`_headers` is in each record", "includeHeaders"),
    ),
)  # fmt: skip


def import_flows(text: str, brokers: str | None) -> Imported:
    """Returns the pipeline file for the AUTO CDC flows of a declarative pipeline, in SQL or Python.

    Raises: SpecError for a source without such a flow, or with none that has all clauses.
    """
    script, losses = (text, []) if _is_sql(text) else statements_of(text)
    pipeline = read_pipeline(script)
    if pipeline.incomplete and not pipeline.flows:
        incomplete = pipeline.incomplete[0]
        message = f"the AUTO CDC flow into `{incomplete.target}` cannot be read: {incomplete.reason}"
        raise SpecError(message, remedy=incomplete.remedy)
    if not pipeline.flows:
        remedy = "give the file that has `CREATE FLOW … AS AUTO CDC INTO`, or `create_auto_cdc_flow(…)`"
        raise SpecError("the pipeline has no AUTO CDC flow", remedy=remedy)
    draft = Draft(AUTO_CDC, dict(_settings(pipeline)))
    for loss in losses:
        draft.lose(*loss)
    for flow in pipeline.flows:
        _Table(draft, pipeline, flow).put()
    for incomplete in pipeline.incomplete:
        draft.lose(incomplete.target, f"{incomplete.reason} in the flow", incomplete.remedy)
    for statement in pipeline.unknown:
        draft.lose(statement, "the statement is not one of those that are read", "write what it does under `tables`")
    for name in pipeline.parameters:
        draft.lose(f"${{{name}}}", "the pipeline's settings have the parameter", "write its value in place of its name")
    draft.notes.append("the catalog of Databricks is not carried over: write `catalog`, unless the local one is meant")
    return draft.finish(brokers)


def _is_sql(text: str) -> bool:
    return re.search(r"\b(AUTO\s+CDC|APPLY\s+CHANGES)\b(?!\s*\()", text, re.IGNORECASE) is not None and not re.search(
        r"^\s*(import\s+\w+|from\s+[\w.]+\s+import\b)", text, re.MULTILINE
    )


def _settings(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Returns each clause, property and option as a setting, by table or source."""
    settings: list[tuple[str, str]] = []
    for flow in pipeline.flows:
        relation = pipeline.of_target(flow.target)
        settings += [(f"{flow.target}/{name}", _text(words)) for name, words in flow.clauses.items()]
        settings += [
            (f"{flow.target}/{name}", _text(words))
            for name, words in relation.clauses.items()
            if name != "TBLPROPERTIES"
        ]
        settings += [(f"{flow.target}/CONSTRAINT", name) for name in relation.expectations]
        properties = relation.clauses.get("TBLPROPERTIES", [])
        for item in comma_separated(group(properties, 0)[0] if properties else []):
            settings.append((f"{flow.target}/{plain(item[0])}", plain(item[-1])))
    for relation in [*pipeline.relations.values(), *(Relation("", flow.clauses["FROM"]) for flow in pipeline.flows)]:
        for option, value in _options(relation).items():
            settings.append((f"{relation.name}/{option}", value))
    return settings


def _options(relation: Relation) -> dict[str, str]:
    """Returns the options of the topic that a query reads; none of another query."""
    words = relation.query if relation.name else ["FROM", *relation.query]
    lower = [word.lower() for word in words]
    if _READ_KAFKA not in lower:
        return {}
    arguments = group(words, lower.index(_READ_KAFKA) + 1)[0]
    pairs = (item for item in comma_separated(arguments) if len(item) > 2 and item[1] == "=>")
    return {plain(item[0]): _value(item[2:]) for item in pairs}


def _value(words: Sequence[str]) -> str:
    """Returns a literal's text; of `secret(SCOPE, KEY)` a reference to a variable, and what `concat` joins of both."""
    parts, place = [], 0
    while place < len(words):
        if words[place].lower() == "secret":
            inner, place = group(words, place + 1)
            key = plain(inner[-1])
            parts.append(f"${{env:{re.sub(r'[^A-Za-z0-9]+', '_', key).upper()}}}")
        else:
            is_name = re.fullmatch(r"[\w.]+", words[place]) and words[place].lower() != "concat"
            if words[place][0] in "'\"" or is_name:
                parts.append(plain(words[place]))
            place += 1
    return " ".join("".join(parts).replace("kafkashaded.", "").split())


class _Table:
    """The table that a flow fills."""

    def __init__(self, draft: Draft, pipeline: Pipeline, flow: Flow) -> None:
        self._draft, self._pipeline, self._flow = draft, pipeline, flow
        self._clauses, self._relation = flow.clauses, pipeline.of_target(flow.target)
        self._is_history = self._clauses.get("STORED AS", ["1"])[-1] == "2"
        self._topic: dict[str, Any] = {}
        #: The topic's options and their place among the settings; none for a source that the pipeline does not declare.
        self._options: tuple[str, dict[str, str]] | None = None
        self._open: set[str] = set()
        #: The types of the records' fields, where the flow reads them as they are.
        self._fields: dict[str, str] = {}

    def put(self) -> None:
        """Writes the table into the pipeline file."""
        draft, flow = self._draft, self._flow
        for name in (*_OF_STREAM, "CONSTRAINT", "PARTITIONED BY"):
            draft.take(f"{flow.target}/{name}")
        parts = flow.target.split(".")[-2:]
        table = ".".join(parts if len(parts) > 1 else [_SCHEMA, *parts])
        if table in draft.document.get("tables", {}):
            draft.lose(flow.target, "another flow fills the table", "name another table under `tables`")
            return
        query = self._query()
        settings = {**self._topic, **self._changes(), "select": query, **self._shape()}
        draft.put({key: value for key, value in settings.items() if value is not None}, "tables", table)
        draft.notes.append("queries are Databricks' SQL: `frazil plan` shows whether Spark takes them")

    # What the table has

    def _changes(self) -> dict[str, Any]:
        """Returns mode, keys and order."""
        settings: dict[str, Any] = {"mode": "history" if self._is_history else "upsert"}
        settings |= {"key_columns": self._keys, "order_by": self._order}
        if self._is_history:
            settings |= {"track": self._tracked(), "metadata": {"valid_from": "__START_AT", "valid_to": "__END_AT"}}
            self._check_times(settings)
        elif "APPLY AS DELETE WHEN" in self._clauses:
            self._draft.notes.append(
                "a change that comes after the delete of its key, and is older, makes the row again: `deletes: soft` keeps"
                " the order of the delete"
            )
        stored = self._clauses.get("STORED AS", [])
        if stored and stored[-1] not in ("1", "2"):
            reason = f"{_text(stored)} keeps what was believed earlier with what is true, and the table has type 1"
            remedy = "write `mode: history` for versions; what was believed earlier is in older snapshots"
            self._draft.lose(f"{self._flow.target}/STORED AS", reason, remedy)
        return settings

    def _check_times(self, settings: dict[str, Any]) -> None:
        """Leaves out an order that is known to be of other values than times."""
        types = {name.lower(): kind for name, kind in self._relation.types.items()}
        types |= self._fields
        kind = types.get("__start_at", types.get(str(self._order).lower(), ""))
        if kind in _TIMES:
            self._draft.notes.append(
                f"versions are valid from the time in `{self._order}`: it must be a timestamp or a date"
            )
            return
        del settings["order_by"]
        reason = f"versions are valid from times, and `{self._order}` is {kind}: they follow the order of the records"
        remedy = (
            f"make a time of it, such as `timestamp_millis({self._order}) as changed_at`, and write it as `order_by`"
        )
        self._draft.lose(f"{self._flow.target}/SEQUENCE BY", reason, remedy)

    def _tracked(self) -> list[str] | None:
        words = self._clauses.get("TRACK HISTORY ON", [])
        if not words:
            return None
        if words[0] != "*":
            return [plain(item[-1]) for item in comma_separated(_without_parentheses(words))]
        left_out = {name.lower() for name in _except(words)}
        known = [name for name in self._relation.types if name.lower() not in ("__start_at", "__end_at")]
        listed = self._clauses.get("COLUMNS", ["*"])
        names = (
            [plain(item[-1]) for item in comma_separated(_without_parentheses(listed))] if listed[0] != "*" else known
        )
        if names:
            others = left_out | {key.lower() for key in self._keys} | {str(self._order).lower()}
            return [name for name in names if name.lower() not in others]
        reason = "the columns of the table are not in the script, and `track` names those that count"
        remedy = f"list the others under `track`: all but {', '.join(_except(words))}"
        self._draft.lose(f"{self._flow.target}/TRACK HISTORY ON", reason, remedy)
        return None

    def _shape(self) -> dict[str, Any]:
        """Returns expectations, partitions and properties."""
        relation, target = self._relation, self._flow.target
        settings: dict[str, Any] = {}
        if relation.expectations:
            settings["expect"] = {
                re.sub(r"\W+", "_", name): {"that": _text(words), "else": action}
                for name, (words, action) in relation.expectations.items()
            }
        if "PARTITIONED BY" in relation.clauses:
            terms = comma_separated(group(relation.clauses["PARTITIONED BY"], 0)[0])
            settings["partition_by"] = [_text(list(map(plain, term))) for term in terms]
        prefix = f"{target}/"
        names = [name.removeprefix(prefix) for name in self._draft.names(prefix)]
        kept = [
            name for name in names if name == "COMMENT" or name.startswith(("write.", "history.", "format-version"))
        ]
        properties = {name.lower(): str(self._draft.take(prefix + name)) for name in kept}
        if "comment" in properties:
            properties["comment"] = plain(properties["comment"])
        return settings | ({"properties": properties} if properties else {})

    # The query

    @property
    def _keys(self) -> list[str]:
        return [plain(item[-1]) for item in comma_separated(_without_parentheses(self._clauses["KEYS"]))]

    @property
    def _order(self) -> str:
        words = self._clauses["SEQUENCE BY"]
        return plain(words[0]) if len(words) == 1 else _SEQUENCE

    def _query(self) -> str | None:
        """Returns the query of the table; None for all fields of the records as they are."""
        source = self._parsed(self._relation_of(["from", *self._clauses["FROM"]]))
        deletes = self._clauses.get("APPLY AS DELETE WHEN")
        condition = f" where not coalesce({_text(deletes)}, false)" if deletes else ""
        items = self._items(is_whole=source == " from records")
        query = f"select {items}{source}{condition}"
        return None if query == "select * from records" else query

    def _parsed(self, source: str) -> str:
        """Returns a source whose queries parse the records with `from_json` as one over their fields, and declares these."""
        if not re.search(r"\bfrom_json\b", source, re.IGNORECASE):
            return source
        try:
            records = json_records(source, _KAFKA_COLUMNS)
        except SpecError as error:
            reason = f"a table with keys refuses `from_json`, which only Spark computes, and {error.message}"
            self._draft.lose(
                f"{self._flow.target}/FROM", reason, f"write `value: {{format: json}}`, and {error.remedy}"
            )
            return source
        self._topic |= {"value": {"format": "json"}, "columns": records.columns, "unknown_fields": "drop"}
        if records.source == " from records":
            self._fields = {name.lower(): kind.upper() for name, kind in records.columns.items()}
        return records.source

    def _items(self, *, is_whole: bool) -> str:
        """Returns what is selected. is_whole: whether it is selected of the records themselves."""
        words, order, target = self._clauses.get("COLUMNS", ["*"]), self._clauses["SEQUENCE BY"], self._flow.target
        added = "" if len(order) == 1 else f", {self._sequence(order)} as {_SEQUENCE}"
        if words[0] != "*":
            listed = list(comma_separated(_without_parentheses(words)))
            items, names = [_text(item) for item in listed], {plain(item[-1]).lower() for item in listed}
            missing = [
                name for name in (*self._keys, *([self._order] if not added else [])) if name.lower() not in names
            ]
            if self._order in missing:
                self._report_order(target)
            return ", ".join([*items, *map(quoted, missing)]) + added
        left_out = _except(words)
        if not added and self._order.lower() in (name.lower() for name in left_out):
            self._report_order(target)
        left_out = [name for name in left_out if name.lower() != self._order.lower()]
        if is_whole:  # Databricks' reader of files makes it, and no record has it.
            left_out = [name for name in left_out if name != _RESCUED]
        return f"* except ({', '.join(map(quoted, left_out))}){added}" if left_out else f"*{added}"

    def _report_order(self, target: str) -> None:
        reason = f"`{self._order}` stays in the table, where it orders the changes that arrive later"
        self._draft.lose(f"{target}/COLUMNS", reason, "leave it out in a view over the table")

    def _sequence(self, words: list[str]) -> str:
        """Returns the expression of the order."""
        if words[0].upper() != "STRUCT":
            return _text(words)
        items = list(comma_separated(group(words, 1)[0]))
        if not items:
            return _text(words)
        first, *others = items
        if others:
            reason = f"changes are ordered by one column: of equal {_text(first)} the last record counts"
            remedy = f"make one value of all in the `select` as `{_SEQUENCE}`, such as a text that sorts as they do"
            self._draft.lose(f"{self._flow.target}/SEQUENCE BY", reason, remedy)
        return _text(first)

    def _relation_of(self, words: list[str]) -> str:
        """Returns words with a query or the records in place of each relation behind FROM."""
        made, place = "", 0
        for start, end, name in sources_in(words):
            if start < place:
                continue
            made += spelled(words[place:start])
            relation = self._pipeline.find(name.removeprefix("LIVE."))
            if relation is None or not relation.query or relation.name in self._open:
                if name.lower() == _READ_KAFKA and self._options is None:
                    self._options = "", _options(Relation("", words))
                made += self._records(name, [*words[:start], *words[end:]])
            else:
                self._open.add(relation.name)
                if options := _options(relation):
                    self._options = relation.name, options
                inner = self._relation_of(relation.query).strip()
                made += " records" if inner.lower() == "select * from records" else f" ({inner})"
            place = end
        return made + spelled(words[place:])

    def _records(self, name: str, words: list[str]) -> str:
        """Returns what the query has in place of a topic, and takes the topic's settings."""
        if self._topic:
            reason = "the query reads several relations"
            self._draft.lose(f"{self._flow.target}/FROM", reason, "use `lookup` for a join with a small table")
            return " records"
        if self._options is None:
            topic = name.rpartition(".")[2]
            reason = (
                f"`{name}` is not a table over Kafka that the pipeline declares: the topic is taken to be `{topic}`"
            )
            self._draft.lose(f"{self._flow.target}/FROM", reason, "write the topic whose records are its rows")
            self._topic = {"topic": topic}
            return " records"
        self._topic = self._topic_settings(*self._options)
        used = {plain(word).lower() for word in words}
        if "value" not in used:
            return " records"
        self._topic["value"] = {"format": "raw"}
        columns = ["value", *(f"{own} as {column}" for column, own in _KAFKA_COLUMNS.items() if column in used)]
        return f" (select {', '.join(columns)} from records)"

    def _topic_settings(self, name: str, options: dict[str, str]) -> dict[str, Any]:
        """Takes the options of a topic."""
        draft, prefix = self._draft, f"{name}/"
        put_kafka(draft, f"{prefix}kafka.")
        if servers := draft.take(f"{prefix}bootstrapServers"):
            draft.put(servers, "kafka", "bootstrap.servers")
        for option in ("subscribe", "subscribePattern", "startingOffsets"):
            draft.take(prefix + option)
        topics = [topic.strip() for topic in options.get("subscribe", "").split(",") if topic.strip()]
        pattern, start = options.get("subscribePattern"), options.get("startingOffsets")
        if start not in (None, "earliest", "latest"):
            reason = "Spark's offsets are JSON by topic"
            draft.lose(f"{prefix}startingOffsets", reason, "write `start: {PARTITION: OFFSET}`")
            start = None
        return {
            "topic": topics[0] if len(topics) == 1 else None,
            "topics": f"/^(?:{pattern})$/" if pattern else topics if len(topics) > 1 else None,
            "start": start or "latest",  # Spark's default for a stream.
        }


def _without_parentheses(words: Sequence[str]) -> list[str]:
    return group(words, 0)[0] if words[:1] == ["("] else list(words)


def _except(words: Sequence[str]) -> list[str]:
    """Returns the columns that `* EXCEPT (…)` leaves out."""
    upper = [word.upper() for word in words]
    if "EXCEPT" not in upper:
        return []
    return [plain(item[-1]) for item in comma_separated(group(words, upper.index("EXCEPT") + 1)[0])]


def _text(words: Sequence[str]) -> str:
    return spelled(words).strip()
