"""The keys of a table that is published: the branch that takes its commits, and when readers see them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal, NamedTuple

from frazil.errors import SpecError
from frazil.spec.syntax import forms
from frazil.spec.syntax.keys import Declared, Key, named, not_a_key, section
from frazil.spec.syntax.problems import LABEL, Mistake, try_check
from frazil.spec.syntax.units import days_text, duration_text
from frazil.spec.topics import TOPIC_NAME
from frazil.types import MAIN

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_QUERY = re.compile(r"\s*(select|with|values|from|table)\b", re.IGNORECASE)
_AT = r"([01][0-9]|2[0-3]):([0-5][0-9]) ([A-Za-z0-9_+/-]+)"
_TAGS = '`tags: {daily: {at: "00:00 UTC", keep: 30d}}`'
_EXAMPLE = '`audits: {ids: "select count(*) = 0 from candidate where id is null"}`'


def _parse_name(text: str, what: str, example: str) -> str:
    if _NAME.fullmatch(text) is None:
        remedy = f"use letters, digits, dots, underscores and hyphens, such as `{example}`"
        raise SpecError(f"`{text}` is not {what}", remedy=remedy)
    return text


def _read_audit(name: str, query: str) -> tuple[str, str]:
    _parse_name(name, "the name of an audit", "no_null_ids")
    if _QUERY.match(query) is None:
        message = f"the audit `{name}` is not a query"
        raise SpecError(message, remedy='write one, such as "select count(*) = 0 from candidate where id is null"')
    return name, query


def subquery(query: str) -> str:
    """Returns a statement whose syntax is right only if the audit is a query: Spark would also take `with … insert` and
    `from … insert`, which change tables.
    """
    return f"select * from (\n{query.rstrip().removesuffix(';')}\n)"


def view_of(table: str) -> str:
    """Returns the name by which audits of other tables know a table."""
    return table.rpartition(".")[2]


class Reader(NamedTuple):
    """An engine that reads tables (docs/engines/README.md). False where no document of its maker contains that it does."""

    #: Its name in sentences.
    label: str
    #: The first version of which this is known; empty for a service without versions.
    version: str = ""
    #: Whether it reads position deletes, which an upsert table of format version 2 has.
    reads_position_deletes: bool = True
    #: Whether it reads tables of format version 3.
    reads_format_3: bool = True
    #: Whether it reads deletion vectors, which an upsert table of format version 3 has.
    reads_vectors: bool = True

    def reads(self, format_version: int, has_deletes: bool) -> bool:
        """Returns whether it reads tables that Frazil writes in this format version."""
        if format_version < NEWEST_FORMAT:
            return self.reads_position_deletes or not has_deletes
        return self.reads_format_3 and (self.reads_vectors or not has_deletes)


OLDER_FORMAT, NEWEST_FORMAT = 2, 3
READERS: Mapping[str, Reader] = {
    "athena": Reader("Amazon Athena", reads_format_3=False, reads_vectors=False),
    "bigquery": Reader("BigQuery"),
    "clickhouse": Reader("ClickHouse", reads_format_3=False, reads_vectors=False),
    "databricks": Reader("Databricks Runtime", "18", reads_position_deletes=False),
    "duckdb": Reader("DuckDB", "1.5.5"),
    "flink": Reader("Flink", "Iceberg 1.11", reads_vectors=False),
    "polars": Reader("Polars", "2.1"),
    "pyiceberg": Reader("PyIceberg", "0.12"),
    "redshift": Reader("Amazon Redshift"),
    "snowflake": Reader("Snowflake"),
    "spark": Reader("Spark", "4.1"),
    "starrocks": Reader("StarRocks", "3.1", reads_vectors=False),
    "trino": Reader("Trino", "480"),
}
"""The engines of `readers`."""


def refusing_reader(names: Iterable[str], format_version: int, has_deletes: bool) -> Reader | None:
    """Returns the first of these readers that cannot read a table in this format version; None where all can."""
    return next((READERS[name] for name in names if not READERS[name].reads(format_version, has_deletes)), None)


class DailyTime(NamedTuple):
    """A time of each day."""

    #: Minutes since midnight.
    minute: int
    #: A zone of the IANA database.
    zone: str


def _parse_at(text: str) -> DailyTime:
    match = re.fullmatch(_AT, text)
    if match is None:
        remedy = "write a time and a zone, such as `00:00 UTC` or `00:00 Europe/Berlin`"
        raise SpecError(f"`{text}` is not a time of the day", remedy=remedy)
    return DailyTime(int(match[1]) * 60 + int(match[2]), forms.parse_zone(match[3]))


def check_tag(tag: TagSpec) -> Iterator[Mistake]:
    """Yields a name that tags cannot begin with."""
    yield from try_check((), _parse_name, tag.name, "the beginning of names of tags", "daily")


class TagSpec(Declared):
    """A tag for each day, at the first snapshot that is complete to a time of it."""

    #: What the names of its tags begin with.
    name: Annotated[str, not_a_key("name")]
    at: Annotated[
        DailyTime,
        forms.parsed_text(forms.text_of(f"^{_AT}$", "00:00 Europe/Berlin"), _parse_at),
        Key(lack=f"`{LABEL}` has no time of the day", remedy="write `at: 00:00 UTC`, or another time and zone"),
    ]
    """The time of each day to which the snapshot is complete, and its zone: `00:00 Europe/Berlin`."""
    keep_s: Annotated[
        float,
        forms.days("30d", "12h"),
        named("keep"),
        Key(lack=f"`{LABEL}` is kept for no time", remedy="write `keep: 30d`, or another time"),
    ]
    """How long the tag and its snapshot are kept: days, such as `30d`, or a duration."""


class PublishSpec(Declared):
    """When what the branch has becomes what readers see."""

    every_s: Annotated[float, forms.DURATION, named("every")] = 600.0
    """How often the newest snapshot of the branch is audited and published."""
    #: Each with its query.
    audits: Annotated[
        tuple[tuple[str, str], ...],
        forms.words_by_name({"type": "object", "additionalProperties": forms.TEXT.schema}, _EXAMPLE, _read_audit),
    ] = ()
    """Audits, by name: queries in Spark SQL over `candidate`, the table as it would be published, and `published`, the
    table as it is. A query of one boolean must be true; any other query must return no rows. A query may use the other
    tables of the `group`, by their names without the namespace, with the rows that would be published."""
    group: Annotated[
        str | None,
        forms.parsed_text(forms.text_like("shop"), lambda text: _parse_name(text, "the name of a group", "shop")),
    ] = None
    """A name for tables that are published together, with the records of all their topics up to one moment. They have
    one interval."""
    transaction_topic: Annotated[str | None, TOPIC_NAME] = None
    """The topic to which Debezium writes when transactions begin and end, `<prefix>.transaction`. Tables of the
    `group`, all of one source, are then published at the end of a transaction; without this key, at a moment."""


class PublishingSpec(Declared):
    """What readers of a table see, and when."""

    branch: Annotated[
        str,
        forms.parsed_text(forms.text_like("ingest"), lambda text: _parse_name(text, "the name of a branch", "ingest")),
    ] = MAIN
    """The branch of the table to which Frazil commits. The first commit creates it from main."""
    #: None: nobody moves main, or somebody else does.
    publish: Annotated[PublishSpec | None, section("publish")] = None
    """When main is moved to the newest snapshot of the branch: at intervals, if every audit holds and the rows meet
    their expectations. Only with a `branch`."""
    delete_mode: Literal["merge_on_read", "copy_on_write"] = "merge_on_read"
    """`copy_on_write`: at each publish main gets data files without deleted rows, and no delete files; the branch has
    delete files until then. The default of a table with `publish` and with `readers` that lack deletion vectors."""
    tags: Annotated[tuple[TagSpec, ...], forms.by_name(section("tag").schema, _TAGS)] = ()
    """Tags of snapshots that readers see, by calendar: `{daily: {at: "00:00 Europe/Berlin", keep: 30d}}` makes a tag
    `daily-2026-11-29` at the first snapshot that is complete to this time. Expiry keeps its snapshot."""
    readers: Annotated[tuple[str, ...], forms.some_of(tuple(READERS))] = ()
    """The engines that read the table. A new upsert table gets the newest format version that all of them read, and
    `check` refuses a table that one of them cannot read."""

    @property
    def is_scheduled(self) -> bool:
        """Whether Frazil publishes or tags the table."""
        return self.publish is not None or bool(self.tags)

    @property
    def copies_rows(self) -> bool:
        """Whether main gets data files alone."""
        if "delete_mode" in self.model_fields_set:
            return self.delete_mode == "copy_on_write"
        return self.publish is not None and not all(READERS[name].reads_vectors for name in self.readers)


def describe_publishing(publishing: PublishingSpec) -> Iterator[str]:
    """Yields where commits of a table are made and what readers see of them, a line for each setting; nothing for main."""
    publish = publishing.publish
    if publishing.branch != MAIN:
        mover = "is moved by others"
        if publish is not None:
            audits = ", ".join(name for name, _ in publish.audits)
            group = "" if publish.group is None else f", together with the tables of the group {publish.group}"
            holding = f" if these audits hold: {audits}" if audits else ""
            mover = f"follows every {duration_text(publish.every_s)}{group}{holding}"
        if publishing.copies_rows:
            mover += ", without delete files"
        yield f"commits to the branch {publishing.branch}; main, which readers see, {mover}"
    for tag in publishing.tags:
        time = f"{tag.at.minute // 60:02}:{tag.at.minute % 60:02} {tag.at.zone}"
        yield f"tags a snapshot each day as {tag.name}-DATE, complete to {time}, kept for {days_text(tag.keep_s)}"
