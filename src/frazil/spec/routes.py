"""The entries under `routes`, each with the settings of the tables that it makes, and the table of the rest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from frazil.plugins.catalogs import CatalogKind
from frazil.routing import Route, parse_template
from frazil.spec.changes import added_metadata
from frazil.spec.models import ROUTE_KEYS, PipelineSpec, RouteSpec, TableSpec
from frazil.spec.package_stages import stage_keys
from frazil.spec.protect import rule_of
from frazil.spec.settings import METADATA_COLUMNS, CommitSpec, MaintenanceSpec, MetadataField
from frazil.spec.syntax.document import Entry, Section, lines_of
from frazil.spec.syntax.keys import Fields, read_items
from frazil.spec.syntax.problems import Problems
from frazil.spec.syntax.secrets import Secrets
from frazil.spec.tables import STRANGE_IN_TABLE, check_topics, read_settings, with_defaults
from frazil.spec.topics import select_topics

_OF_DELETES: tuple[MetadataField, ...] = ("deleted", "deleted_at")
_OF_RECORDS: tuple[MetadataField, ...] = ("topic", "partition", "offset")


def read_routes(
    entry: Entry | None,
    inherited: tuple[CommitSpec, MaintenanceSpec],
    defaults: Section | None,
    secrets: Secrets,
    problems: Problems,
) -> tuple[RouteSpec, ...]:
    """The routes of the file, without those that are too wrong to be one."""
    items = read_items(entry.value, "routes", problems) if entry is not None else ()
    found = []
    for node in items:
        with problems.in_part(lines_of(defaults), "a route has it from `defaults`"):
            fields = Fields(
                with_defaults(node, defaults), {**ROUTE_KEYS, **stage_keys()}, "", problems, "a route", STRANGE_IN_TABLE
            )
            if fields.get("to") is None:
                problems.add(node.line, "a route does not say `to` which tables", 'write `to: "shop.${type}"`')
                continue
            named = Entry(fields.text("rest") or fields.text("to") or "", node.line, node)
            check_topics(fields, named)
            if (fields.get("topic") or fields.get("topics")) and fields.parsed("to", parse_template):
                found.append(read_settings(named, fields, inherited, secrets, RouteSpec))
                _check_route(fields, found[-1])
    return tuple(found)


def _check_route(fields: Fields, route: RouteSpec) -> None:
    """Notes settings of a route that contradict each other."""
    if route.dead_letters.table is not None:
        message = "the tables of a route cannot have one dead-letter table"
        fields.refuse_key("dead_letters", message, "leave `table` out of `dead_letters`")
    if route.is_by_topic:
        _check_by_topic(fields, route)
        return
    read = (one for one in route.to.sources if one.kind in ("field", "header"))
    names = [".".join(("_headers", *one.path) if one.kind == "header" else one.path) for one in read]
    if any(rule_of(route.protect, name) for name in names):
        message = "tables would be named after values of a field that `protect` protects"
        fields.refuse_value("to", message, "route by another field, or take this one out of `protect`")
    if any(source.kind == "capture" for source in route.to.sources):
        message = "`to` has a group of the topic's expression, and the route is by values of records"
        fields.refuse_value("to", message, "write `${topic}`, or leave `by` out")
    if route.by not in route.to.sources:
        fields.refuse_value("to", "`to` does not have the value that the route is `by`", "write it as `${…}` in `to`")
    _check_rest(fields, route.rest)
    if route.atomic is not None:
        message = "`atomic` needs a table of its own, and a route makes many"
        fields.refuse_key("atomic", message, "give the topic a table under `tables`")
    _check_readable(fields, route)


def _check_rest(fields: Fields, rest: str | None) -> None:
    """Notes a missing table of the rest, and one that is named after values."""
    if rest is None:
        message = "the route has no table for records without a table of their own"
        fields.refuse_key("by", message, "write `rest: <namespace>.<table>`")
    elif "$" in rest:
        message = f"`rest: {rest}` is the name of one table, and has no values of records"
        fields.refuse_value("rest", message, "write a name such as `rest: shop.other_events`")


def _check_by_topic(fields: Fields, route: RouteSpec) -> None:
    """Notes settings that a route by topic has no use for, and groups that a topic does not have."""
    for key in filter(fields.get, ("rest", "limit")):
        message = f"`{key}` is for routes by values of records, and by `topic` each topic has a table"
        fields.refuse_key(key, message, "remove it, or write `by`, such as `by: type`")
    if any(source.kind in ("field", "header") for source in route.to.sources):
        message = "`to` has values of records, and the route does not say `by` which"
        fields.refuse_value("to", message, 'write `by`, such as `by: type` with `to: "shop.${type}"`')
    groups = [int(source.path[0]) for source in route.to.sources if source.kind == "capture"]
    for selector in route.topics:
        most = re.compile(selector.pattern).groups if selector.pattern is not None else 0
        if any(group > most for group in groups):
            message = f"`to` has a group that `{selector.text}` does not have"
            fields.refuse_value("to", message, "put a part of the expression in parentheses, or write `${topic}`")


def _check_readable(fields: Fields, route: RouteSpec) -> None:
    """Notes fields of records that are not read, or that not all records of a row have."""
    paths = [source.path for source in route.to.sources if source.kind == "field"]
    kind = route.envelope.kind if route.envelope is not None else "none"
    if paths and route.value.format in ("text", "raw"):
        message = f"values of the format {route.value.format} have no fields to route by"
        fields.refuse_value("by", message, "write `by: header.NAME`, or `by: topic`")
    if kind == "debezium" and any(path[0] != "source" for path in paths):
        message = "a change in Debezium's envelope is routed by its source: a deleted row has no other field"
        fields.refuse_value("by", message, "write `by: source.table`, `source.schema` or `source.db`, or a header")
    if paths and kind == "none" and route.mode == "upsert" and route.tombstones in ("", "delete"):
        message = "a tombstone deletes a row, and has no field to be routed by"
        fields.refuse_value("by", message, "write `by: header.NAME`, or `tombstones: ignore`")


def rest_tables(routes: Iterable[RouteSpec], tables: Iterable[TableSpec], kind: CatalogKind) -> Iterator[TableSpec]:
    """The tables of the rest. Their rows are changes in append mode, with the place of the record: what other tables
    identify, sort and partition rows by, the rest need not have.
    """
    taken = frozenset(
        name.lower() for one in tables for name in (one.name, one.dead_letters.table or f"{one.name}__dead_letters")
    )
    for route in routes:
        if route.rest is None or route.is_by_topic:
            continue
        kind_of = route.envelope.kind if route.envelope is not None else "none"
        own = {name: column for name, column in route.metadata.items() if name not in _OF_DELETES}
        settings = {
            **dict.fromkeys(("partition_by", "sort_by", "order_by"), None),
            "name": route.rest,
            "route": Route(route.rest, route.to, route.limit, taken, kind.lowers_names),
            "mode": "append",
            "key_columns": (),
            "deletes": "hard",
            "changelog": kind_of != "none",
            "tombstones": "ignore" if route.mode == "upsert" else route.tombstones,
            "maintenance": route.maintenance.model_copy(update={"sort": (), "zorder": (), "order_lines": ()}),
        }
        rest = route.as_table().without_query().model_copy(update={**settings, "metadata": own})
        added = (*added_metadata(rest, kind_of), *_OF_RECORDS)
        columns = {name: METADATA_COLUMNS[name] for name in added if name not in own}
        yield rest.model_copy(update={"metadata": own | columns})


def check_routes(spec: PipelineSpec, problems: Problems) -> None:
    """Notes routes whose tables may be those of another route, of `topics`, or of `tables`."""
    prefixes: list[str] = [f"{spec.namespace}."] if spec.namespace else []
    for route in spec.routes:
        first = route.to.texts[0]
        if any(first.startswith(other) or other.startswith(first) for other in prefixes):
            message = f"the tables of the route to `{route.text}` may have names that `topics` or another route makes"
            problems.add(route.line, message, "begin `to` with another namespace, or with another word")
        prefixes.append(first)
        named = [selector.literal for selector in route.topics if selector.literal is not None]
        lines = {table.name: table.line for table in spec.tables}
        for name, clash in clashes_of(spec.tables, [route], named).items():
            problems.add(lines[name], *clash)


def clashes_of(
    tables: Iterable[TableSpec], routes: Iterable[RouteSpec], topics: Collection[str]
) -> dict[str, tuple[str, str]]:
    """Returns message and remedy by table, of tables under `tables` that routes by topic make of some of these topics
    and that do not take the topic themselves. One that does takes the place of the route's.
    """
    named, found = {table.name: table for table in tables}, dict[str, tuple[str, str]]()
    for route in routes:
        for topic in sorted(select_topics(route.topics, topics)) if named and route.is_by_topic else ():
            table = named.get(route.table_of(topic))
            if table is None or table.name in found or any(one.matches(topic) for one in table.topics):
                continue
            message = (
                f"`{table.name}` is under `tables`, and the route to `{route.text}` makes it of the topic `{topic}`"
            )
            remedy = "add the topic to the table's `topics`, rename the table, or begin `to` with another word"
            found[table.name] = (message, remedy)
    return found
