"""The keys of a table, those of one feature together: the file has them all side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PrivateAttr, SerializeAsAny
from pyiceberg.types import IcebergType, StringType

from frazil.plugins.formats import ENVELOPES
from frazil.plugins.functions import Function
from frazil.routes.share import Share
from frazil.spec import settings, table_forms
from frazil.spec.partitioning import PARTITION_BY, SORT_BY, PartitionTerm, SortTerm
from frazil.spec.syntax import forms
from frazil.spec.syntax.document import Node, Scalar, Section
from frazil.spec.syntax.keys import Declared, Form, Key, named, not_a_key, section
from frazil.spec.syntax.problems import LABEL
from frazil.spec.syntax.types import parse_numbers
from frazil.spec.syntax.units import days_text
from frazil.spec.topics import SELECTORS, START, TOPIC, Start, TopicSelector
from frazil.types import EXTRA_COLUMNS

if TYPE_CHECKING:
    from frazil.spec.syntax.reading import Reading

_DAYS = forms.days("7d", "10m")


class LateSpec(Declared):
    """Which records are late for the window of their time."""

    after_s: Annotated[
        float,
        _DAYS,
        named("after"),
        Key(lack=f"`{LABEL}` does not say after which time records are late", remedy="write `after: 7d`"),
    ]
    """How far the time of a record may be before the greatest earlier time in its partition: days, such as `7d`, or a
    duration. Records beyond that are late and change no window."""
    action: Annotated[Literal["drop", "dead_letter"], named("else")] = "drop"
    """The result of late records: they are counted as `late`, or are dead letters."""
    _recorded: tuple[tuple[str, int, int, int], ...] | None = PrivateAttr(default=None)

    @property
    def recorded(self) -> tuple[tuple[str, int, int, int], ...] | None:
        """See `of_copy`; None for a table that is not a copy."""
        return self._recorded

    def of_copy(self, recorded: tuple[tuple[str, int, int, int], ...]) -> LateSpec:
        """Returns the setting of a copy of a table. recorded: topic, partition, and the first offset from which the
        commits of the original knew this time, in microseconds, that all partitions had reached.
        """
        late = self.model_copy()
        late._recorded = recorded
        return late

    @property
    def text(self) -> str:
        """The time as a pipeline file has it."""
        return days_text(self.after_s)


def _read_late(node: Node, _: Reading) -> Node:
    """Returns the section, which a duration alone stands for too."""
    return Section({"after": node}, node.line, {"after": node.line}) if isinstance(node, Scalar) else node


LATE = Form({"anyOf": [_DAYS.schema, {"$ref": "#/$defs/late"}]}, read=_read_late)


_ENVELOPES = ("none", "debezium", "maxwell", "canal", "dms", "cloudevents", "outbox")


class SourceSpec(Declared):
    """What feeds a table: topics, and what their records are."""

    #: None where the table is read: `topics` has it.
    topic: Annotated[TopicSelector | None, TOPIC] = None
    """The topic that feeds the table."""
    topics: Annotated[tuple[TopicSelector, ...], SELECTORS] = ()
    """The topics, or a /regular expression/, that feed the table."""
    start: Annotated[Start, START, Key(default="earliest")] = Start()
    """Where to begin without progress: earliest, latest, a timestamp, or offsets."""
    on_data_loss: Literal["stop", "skip"] = "stop"
    """What to do when Kafka has deleted the record at the next offset."""
    value: Annotated[settings.ValueSpec, settings.VALUE] = settings.ValueSpec()
    """The records' values."""
    key: Annotated[settings.ValueSpec, settings.KEY] = settings.ValueSpec(format="raw")
    """The records' keys."""
    #: None: the type that a sample of the numbers needs.
    numbers: Annotated[
        SerializeAsAny[IcebergType] | None,
        forms.parsed_text(
            forms.text_of(r"^(as_seen|double|decimal\s*\(.*\))$", "double", "decimal(18,4)"), parse_numbers
        ),
        Key(default="as_seen"),
    ] = None
    """The type of numbers of JSON without a schema, in columns that are not declared: `as_seen` (long, or double if a
    sample of the topic has a fraction), `double`, or `decimal(p,s)`."""
    infer: Annotated[settings.InferSpec, section("infer")] = settings.InferSpec()
    """Types that may be inferred from fields of JSON without a schema, for columns that are not declared."""
    #: Which of its topics' records the table takes, where several tables divide them; None where it takes all.
    share: Annotated[Share | None, not_a_key("share")] = None


class ShapeSpec(Declared):
    """How fields of records become columns."""

    columns: Annotated[tuple[settings.ColumnSpec, ...], table_forms.COLUMNS] = ()
    """Declared columns and overrides of inferred ones: name to type."""
    unknown_fields: Literal["add", "drop", "rescue"] = "add"
    """What happens to fields that `columns` does not name."""
    schema_evolution: Literal["evolve", "add_only", "freeze"] = "evolve"
    """What to do when the fields or types of records differ from the table."""
    rescue: bool = False
    """Whether values that do not match their column are stored in the column _rescued."""
    flatten: Annotated[
        settings.FlattenSpec | None,
        forms.words_or(section("flatten"), (True, False), lambda word: settings.FlattenSpec() if word else None),
        Key(default=False),
    ] = None
    """Whether nested records become columns of their own: `user: {id: 1}` the column user_id. Lists and maps stay."""
    column_case: Literal["keep", "lower", "snake", "camel"] = "keep"
    """How columns, and members of structs in them, are named after fields: unchanged, in lower case, as user_id, or as
    userId."""
    #: Empty: all fields.
    include: Annotated[tuple[tuple[str, ...], ...], forms.PATHS] = ()
    """Paths of the fields to read, each with everything in it; all unless written."""
    exclude: Annotated[tuple[tuple[str, ...], ...], forms.PATHS] = ()
    """Paths of the fields that are not read, each with everything in it."""

    @property
    def fitting(self) -> dict[str, Any]:
        """How values get into the table's columns, by the names of `decode.settings.Reading`."""
        is_frozen = self.schema_evolution == "freeze" and self.unknown_fields == "add"
        frozen = "rescue" if self.rescue else "refuse"
        return {
            "unknown_fields": frozen if is_frozen else self.unknown_fields,
            "is_rescuing": self.rescue,
        }

    @property
    def extra_columns(self) -> dict[str, IcebergType]:
        """The columns for what other columns cannot have, with their types."""
        has_them = self.rescue or self.unknown_fields == "rescue"
        return dict.fromkeys(EXTRA_COLUMNS, StringType()) if has_them else {}


class QuerySpec(Declared):
    """What a table does to its records before its rows are written."""

    where: Annotated[str, forms.TEXT] = ""
    """The condition for the records of the table, in Spark SQL: `type = 'order'`. Other records make no row and are
    counted."""
    lookup: Annotated[tuple[settings.LookupSpec, ...], table_forms.LOOKUP] = ()
    """Reference tables with which records are joined, each by the name of the column that it fills."""
    rename: Annotated[tuple[tuple[tuple[str, ...], str], ...], table_forms.RENAME] = ()
    """New names of fields: `{old: new}`, nested ones by their path."""
    drop_fields: Annotated[tuple[tuple[str, ...], ...], forms.PATHS] = ()
    """Paths of fields that rows do not have, each with everything in it. Conditions may use them; `exclude` leaves fields
    unread."""
    keep_fields: Annotated[tuple[tuple[str, ...], ...], forms.PATHS] = ()
    """Paths of the fields that rows have, each with everything in it; all unless written."""
    cast: Annotated[
        tuple[tuple[tuple[str, ...], SerializeAsAny[IcebergType]], ...],
        table_forms.CAST,
    ] = ()
    """New types of fields, as Spark's `cast` makes them: `{amount: "decimal(12,2)"}`."""
    add_fields: Annotated[tuple[tuple[str, settings.Constant], ...], table_forms.ADD_FIELDS] = ()
    """Columns to add: a constant, or metadata of the record or of its change by name: `{origin: shop, topic: _topic, sent:
    source.ts_ms}`."""
    filter: Annotated[str, forms.TEXT] = ""
    """The condition for the rows of the table, in Spark SQL, over the result of the other steps. Other rows are
    counted."""
    select: Annotated[str, forms.TEXT] = ""
    """The query that makes the table's rows, in Spark SQL, from one relation, `records`: `select id, lower(email) as
    email from records`."""
    udf: Annotated[tuple[Function, ...], table_forms.UDF] = ()
    """Python functions that the table's query and conditions may call, each as `module.function`."""
    on_error: Literal["dead_letter", "null"] = "dead_letter"
    """The result of a record for which an expression of the query fails: a dead letter, or a row with null in the
    column."""

    @property
    def waits(self) -> tuple[settings.LookupSpec, ...]:
        """The lookups whose records wait for their row of the reference table."""
        return tuple(lookup for lookup in self.lookup if lookup.wait_s is not None)

    @property
    def has_steps(self) -> bool:
        """Whether fields are renamed, dropped, cast or added, or rows filtered, before the query."""
        steps = (self.rename, self.drop_fields, self.keep_fields, self.cast, self.add_fields, self.filter)
        return any(steps)


class BadRecordsSpec(Declared):
    """What happens to records that cannot become rows."""

    on_bad_record: Literal["dead_letter", "stop", "skip"] = "dead_letter"
    """What to do with a record that cannot become a row."""
    dead_letters: Annotated[settings.DeadLettersSpec, section("dead_letters")] = settings.DeadLettersSpec()
    """Where bad records are written, and how many are too many."""
    limits: Annotated[settings.LimitsSpec, section("limits")] = settings.LimitsSpec()
    """Limits of columns, partitions and record sizes."""


def _envelope_of(word: str) -> settings.EnvelopeSpec | None:
    """Returns the envelope of this name. Raises: SpecError where its package is not installed."""
    if word == "none":
        return None
    ENVELOPES.get(word)
    return settings.EnvelopeSpec(kind=word)


class ChangesSpec(Declared):
    """How a table takes changes."""

    #: None: records are rows.
    envelope: Annotated[
        settings.EnvelopeSpec | None,
        forms.words_or(section("envelope"), _ENVELOPES, _envelope_of),
        Key(default="none", registered=ENVELOPES),
    ] = None
    """The envelope of records: none; debezium, maxwell, canal, dms or a field that names the operation, of changes;
    cloudevents or outbox, of events."""
    mode: Literal["append", "upsert", "history"] = "append"
    """Whether records are appended (append), replace rows by key (upsert), or become versions of the row of their key
    (history): each has `valid_from`, `valid_to` and `is_current`."""
    #: Whether every version of a row is kept, of a table whose `mode`, once the file is read, is upsert.
    keeps_history: Annotated[bool, not_a_key("keeps_history")] = False
    track: Annotated[tuple[str, ...], forms.NAMES] = ()
    """With `mode: history` the columns whose changes make a version; all except the key, `order_by` and metadata unless
    written. The other columns have the values of the version's last record."""
    #: Empty: those of the record's key.
    key_columns: Annotated[tuple[str, ...], forms.NAMES] = ()
    """The columns that identify a row; by default the fields of the record's key, or the columns that Canal's messages
    name."""
    #: None: partition and offset.
    order_by: Annotated[str | None, forms.TEXT] = None
    """The column that orders the changes of a key; by default partition and offset."""
    changelog: bool = False
    """Whether every change becomes a row, with the rows before and after it."""
    deletes: Literal["hard", "soft"] = "hard"
    """Whether a deleted row is removed (hard), or kept with `_deleted` and `_deleted_at` (soft)."""
    #: Empty: the file has none.
    tombstones: Literal["", "delete", "ignore", "dead_letter", "row"] = ""
    """What happens to a record without a value (a tombstone): `delete` deletes the row of its key, `ignore` counts it
    only, `dead_letter` makes a dead letter, `row` a row with null in the columns of the value. Unless written
    `delete` for upsert; for append `dead_letter`, or `ignore` with an `envelope`."""
    #: None: a snapshot may show a part of a transaction.
    atomic: Annotated[
        settings.AtomicSpec | None,
        forms.words_or(
            section("atomic"),
            ("batch", "transaction"),
            lambda word: settings.AtomicSpec() if word == "transaction" else None,
        ),
        Key(default="batch"),
    ] = None
    """Whether a snapshot may show a part of a transaction of the source: `transaction` is for a table of one topic,
    with Debezium's envelope."""
    merge: Annotated[tuple[tuple[str, str], ...], table_forms.MERGE] = ()
    """How the records of a key are merged, by column: `{amount: sum, orders: count}`, or one function for all columns;
    `latest` for a column that is not named. `count` makes a new column."""
    #: None: equal records are rows of their own.
    dedupe: Annotated[settings.DedupeSpec | None, section("dedupe")] = None
    """Which records of an append table are duplicates, which are dropped: `{by: [event_id], within: 24h}`."""
    #: None: no record is late.
    late: Annotated[LateSpec | None, LATE] = None
    """Which records are late for the windows of a query with GROUP BY: `7d`, or `{after: 7d, else: dead_letter}`; by
    default `else` is drop."""
    emit: Literal["update", "closed"] = "update"
    """When readers see a window: from its first record on (update), or once it is complete (closed)."""

    @property
    def envelope_kind(self) -> str:
        """The kind of the envelope; `none` where records are rows."""
        return "none" if self.envelope is None else self.envelope.kind

    @property
    def wraps_changes(self) -> bool:
        """Whether records wrap changes of rows of a source, which an event is not."""
        return self.envelope_kind not in ("none", "cloudevents", "outbox")

    @property
    def looks_up_rows(self) -> bool:
        """Whether what becomes of a record depends on the rows that the table has."""
        return self.mode == "upsert" or self.dedupe is not None

    @property
    def counts_every_row(self) -> bool:
        """Whether all records of a key make its row, and not the latest alone."""
        return any(function != "latest" for _, function in self.merge)

    @property
    def kind(self) -> str:
        """The name of the table's kind (`plugins.tables`); empty where rows are appended, or are the latest of their key."""
        if self.keeps_history:
            return "history"
        if self.counts_every_row:
            return "merge"
        return "" if self.dedupe is None else "dedupe"

    @property
    def counted_columns(self) -> tuple[str, ...]:
        """The columns that count records."""
        return tuple(name for name, function in self.merge if function == "count")


class LayoutSpec(Declared):
    """How a table is stored."""

    #: None: the file has none; then what the table has stays.
    partition_by: Annotated[tuple[PartitionTerm, ...] | None, PARTITION_BY] = None
    """How the table is partitioned: columns, or year, month, day, hour, bucket, truncate or void of a column. An
    existing table keeps its partition spec unless this is written; `[]` is for none."""
    #: None: the file has none; then what the table has stays.
    sort_by: Annotated[tuple[SortTerm, ...] | None, SORT_BY] = None
    """How rows are sorted inside a file: terms as in `partition_by`, each with asc or desc, nulls first or last."""
    format_version: Literal[2, 3] = 2
    """Iceberg's format version of a new table; unless written 2 for append, 3 for upsert."""
    #: None: the catalog chooses it.
    location: Annotated[str | None, forms.TEXT] = None
    """The folder of a new table in the store; the catalog chooses it unless written, and some catalogs require it. The
    dead-letter table is in the folder `<location>__dead_letters`."""
    properties: Annotated[dict[str, str], table_forms.PROPERTIES] = Field({})
    """Iceberg's table properties, with Iceberg's names, of a new table; an existing table keeps its own."""
