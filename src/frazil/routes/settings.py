"""The entries under `routes`: each with the settings of the tables that it makes, and the table of the rest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from frazil.errors import SpecError
from frazil.plugins.catalogs import CatalogKind
from frazil.routes.share import Division, Share
from frazil.spec.changes import added_metadata
from frazil.spec.models import PipelineSpec, RouteSpec, Shared, TableSpec
from frazil.spec.settings import HISTORY, METADATA_COLUMNS, MetadataField
from frazil.spec.state import APPENDED
from frazil.spec.syntax.document import Node, Scalar, Section
from frazil.spec.syntax.problems import Mistake
from frazil.spec.syntax.reading import Reading
from frazil.spec.tables import OF_TABLES, prepare_table, refuse_keys
from frazil.spec.topics import select_topics

_OF_DELETES: tuple[MetadataField, ...] = ("deleted", "deleted_at")
_OF_RECORDS: tuple[MetadataField, ...] = ("topic", "partition", "offset")
NAME_REMEDY = "leave its topic out of `topics`, and give it a table under `tables`"
"""The remedy for the name of a table that its topic makes, and that no table can have."""


def prepare_route(node: Node, shared: Shared, reading: Reading) -> Node:
    """Returns the settings of one entry under `routes`, with those that it shares."""
    name = ""
    if isinstance(node, Section):
        remedy = "remove it: the catalog chooses a folder for each table of the route"
        node = refuse_keys(node, ("location",), "", remedy, reading)
        written = [node[key] for key in ("rest", "to") if key in node]
        name = next((value.text for value in written if isinstance(value, Scalar)), "")
    return prepare_table(node, name, "a route", node.line, shared, reading)


def _check_route(route: RouteSpec) -> Iterator[Mistake]:
    """Yields settings of a route that contradict each other."""
    if route.bad_records.dead_letters.table is not None:
        message = "the tables of a route cannot have one dead-letter table"
        yield Mistake("dead_letters", message, "leave `table` out of `dead_letters`")
    if route.is_by_topic:
        yield from _check_by_topic(route)
        return
    read = (source for source in route.division.to.sources if source.kind in ("field", "header"))
    names = [".".join(("_headers", *source.path) if source.kind == "header" else source.path) for source in read]
    for stage in route.stage_settings.values():
        yield from stage.check_share(names)
    if any(source.kind == "capture" for source in route.division.to.sources):
        message = "`to` has a group of the topic's expression, and the route is by values of records"
        yield Mistake("to", message, "write `${topic}`, or leave `by` out")
    if route.division.by not in route.division.to.sources:
        yield Mistake("to", "`to` does not have the value that the route is `by`", "write it as `${…}` in `to`")
    if route.changes.atomic is not None:
        message = "`atomic` needs a table of its own, and a route makes many"
        yield Mistake("atomic", message, "give the topic a table under `tables`")
    yield from _check_readable(route)


def _check_rest(route: RouteSpec) -> Iterator[Mistake]:
    """Yields a missing table of the rest, and one that is named after values."""
    if route.is_by_topic:
        return
    if route.division.rest is None:
        message = "the route has no table for records without a table of their own"
        yield Mistake("by", message, "write `rest: <namespace>.<table>`")
    elif "$" in route.division.rest:
        message = f"`rest: {route.division.rest}` is the name of one table, and has no values of records"
        yield Mistake("rest", message, "write a name such as `rest: shop.other_events`")


def _check_by_topic(route: RouteSpec) -> Iterator[Mistake]:
    """Yields settings that a route by topic has no use for, and groups that a topic does not have."""
    for key in sorted({"rest", "limit"} & route.division.model_fields_set, reverse=True):
        message = f"`{key}` is for routes by values of records, and by `topic` each topic has a table"
        yield Mistake(key, message, "remove it, or write `by`, such as `by: type`")
    if any(source.kind in ("field", "header") for source in route.division.to.sources):
        message = "`to` has values of records, and the route does not say `by` which"
        yield Mistake("to", message, 'write `by`, such as `by: type` with `to: "shop.${type}"`')
    groups = [int(source.path[0]) for source in route.division.to.sources if source.kind == "capture"]
    for selector in route.source.topics:
        most = re.compile(selector.pattern).groups if selector.pattern is not None else 0
        if any(group > most for group in groups):
            message = f"`to` has a group that `{selector.text}` does not have"
            yield Mistake("to", message, "put a part of the expression in parentheses, or write `${topic}`")


def _check_readable(route: RouteSpec) -> Iterator[Mistake]:
    """Yields fields of records that are not read, or that not all records of a row have."""
    paths = [source.path for source in route.division.to.sources if source.kind == "field"]
    kind = route.changes.envelope.kind if route.changes.envelope is not None else "none"
    if paths and route.source.value.format in ("text", "raw"):
        message = f"values of the format {route.source.value.format} have no fields to route by"
        yield Mistake("by", message, "write `by: header.NAME`, or `by: topic`")
    if kind == "debezium" and any(path[0] != "source" for path in paths):
        message = "a change in Debezium's envelope is routed by its source: a deleted row has no other field"
        yield Mistake("by", message, "write `by: source.table`, `source.schema` or `source.db`, or a header")
    if paths and kind == "none" and route.changes.mode == "upsert" and route.changes.tombstones in ("", "delete"):
        message = "a tombstone deletes a row, and has no field to be routed by"
        yield Mistake("by", message, "write `by: header.NAME`, or `tombstones: ignore`")


def rest_tables(routes: Iterable[RouteSpec], tables: Iterable[TableSpec], kind: CatalogKind) -> Iterator[TableSpec]:
    """The tables of the rest. Their rows are changes in append mode, with the place of the record: what other tables
    identify, sort and partition rows by, the rest need not have.
    """
    taken = frozenset(
        name.lower()
        for table in tables
        for name in (table.name, table.bad_records.dead_letters.table or f"{table.name}__dead_letters")
    )
    for route in routes:
        if route.division.rest is None or route.is_by_topic:
            continue
        kind_of = route.changes.envelope.kind if route.changes.envelope is not None else "none"
        own = {name: column for name, column in route.metadata.items() if name not in (*_OF_DELETES, *HISTORY)}
        counts = route.changes.counted_columns
        settings = {
            **APPENDED,
            **dict.fromkeys(("partition_by", "sort_by", "order_by"), None),
            "name": route.division.rest,
            "share": Share(
                Division(route.division.rest, route.division.to, route.division.limit, taken, kind.lowers_names)
            ),
            "columns": tuple(column for column in route.shape.columns if column.name not in counts),
            "changelog": kind_of != "none",
            "tombstones": "ignore" if route.changes.mode == "upsert" else route.changes.tombstones,
            "maintenance": route.maintenance.model_copy(update={"sort": (), "zorder": (), "order_lines": ()}),
        }
        rest = route.as_table().without_query().model_copy(update={**settings, "metadata": own})
        added = (*added_metadata(rest, kind_of), *_OF_RECORDS)
        columns = {name: METADATA_COLUMNS[name] for name in added if name not in own}
        yield rest.model_copy(update={"metadata": own | columns})


def check_routes(spec: PipelineSpec) -> Iterator[Mistake]:
    """Yields routes whose tables may be those of another route, of `topics`, or of `tables`."""
    prefixes: list[str] = [f"{spec.selected.namespace}."] if spec.selected.namespace else []
    for route in spec.routes:
        first = route.division.to.texts[0]
        if any(first.startswith(other) or other.startswith(first) for other in prefixes):
            message = f"the tables of the route to `{route.text}` may have names that `topics` or another route makes"
            yield Mistake((), message, "begin `to` with another namespace, or with another word", route.line)
        prefixes.append(first)
        named = [selector.literal for selector in route.source.topics if selector.literal is not None]
        lines = {table.name: table.line for table in spec.tables}
        for name, clash in clashes_of(spec, named, [route]).items():
            yield Mistake((), *clash, lines[name])


def clashes_of(
    spec: PipelineSpec, topics: Collection[str], routes: Iterable[RouteSpec] | None = None
) -> dict[str, tuple[str, str]]:
    """Returns message and remedy by table, of tables under `tables` that routes by topic make of some of these topics
    and that do not take the topic themselves. One that does takes the place of the route's. routes: some of the routes.
    """
    named, clashes = {table.name: table for table in spec.tables}, dict[str, tuple[str, str]]()
    for route in spec.routes if routes is None else routes:
        for topic in sorted(select_topics(route.source.topics, topics)) if named and route.is_by_topic else ():
            table = named.get(route.table_of(topic))
            if (
                table is None
                or table.name in clashes
                or any(selector.matches(topic) for selector in table.source.topics)
            ):
                continue
            message = (
                f"`{table.name}` is under `tables`, and the route to `{route.text}` makes it of the topic `{topic}`"
            )
            remedy = "add the topic to the table's `topics`, rename the table, or begin `to` with another word"
            clashes[table.name] = (message, remedy)
    return clashes


def name_remedy(spec: PipelineSpec, table: TableSpec) -> str:
    """Returns the remedy for a name that the catalog refuses: where the last word of the topic would do, a route that makes
    it the name of the table.
    """
    topic = next((selector.literal for selector in table.source.topics if selector.literal), "")
    before, _, word = topic.rpartition(".")
    namespace = re.sub(r"\W", "_", (spec.selected.namespace or "").lower(), flags=re.ASCII)
    if not before or table.name != f"{spec.selected.namespace}.{topic}":
        return NAME_REMEDY
    with suppress(SpecError):
        spec.catalog.kind.check_name(f"{namespace}.{word}")
        route = f"routes: [{{topics: /^{re.escape(before)}\\.(.*)$/, to: {namespace}.$1}}]"
        return f"select its topic by a route in place of `topics`, `{route}`, or {NAME_REMEDY}"
    return NAME_REMEDY


OF_ROUTES = OF_TABLES._replace(checks=(*OF_TABLES.checks, _check_route, _check_rest))
