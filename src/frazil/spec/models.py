"""A pipeline file after reading: complete, frozen values with every default filled in.

What may hold a secret (Kafka's properties, the registry, the catalog, Spark's configuration) is neither shown by `repr`
nor serialised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny
from pyiceberg.types import IcebergType

from frazil.spec.partitioning import PartitionTerm, SortTerm
from frazil.spec.secrets import redact
from frazil.types import FORMATS_OF_REGISTRY

MetadataField = Literal[
    "topic", "partition", "offset", "timestamp", "headers", "key", "op", "image", "source_ts", "connector_ts",
    "transaction_id", "total_order", "collection_order", "position", "source_order", "source_database",
    "source_schema", "source_table", "unavailable", "deleted", "deleted_at",
]  # fmt: skip
SecretText = Annotated[str, Field(repr=False, exclude=True)]
SecretWord = Annotated[str | None, Field(repr=False, exclude=True)]
SecretStrings = Annotated[dict[str, str], Field(repr=False, exclude=True)]


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, arbitrary_types_allowed=True)


class TopicSelector(_Declared):
    """One topic by its name (`literal`), or every topic that a regular expression finds (`pattern`): one of the two.

    A pattern is searched for, not anchored: `/^device-/` and `/device/` mean what they say, and `/device/` also finds
    `my-device-1`. It never selects a topic whose name begins with `__`: those are Kafka's own.
    """

    literal: str | None = None
    pattern: str | None = None

    def matches(self, topic: str) -> bool:
        """Whether this selects `topic`."""
        if self.pattern is None:
            return topic == self.literal
        return not topic.startswith("__") and re.search(self.pattern, topic) is not None


class Start(_Declared):
    """Where a table without progress begins to read.

    `timestamp_ms`: of kind `timestamp`, milliseconds since the epoch. `offsets`: of kind `offsets`, topic to partition
    to the offset that is read first; the topic is None where the file does not name it, because the table has only one.
    """

    kind: Literal["earliest", "latest", "timestamp", "offsets"] = "earliest"
    timestamp_ms: int | None = None
    offsets: Mapping[str | None, Mapping[int, int]] = {}


class ValueSpec(_Declared):
    """What the records' values (or keys, or values of a header) are.

    `source`: whether the schema is the one that the record names, or its subject's newest. `framing`: where a
    record names its schema: in the first bytes, with an id of 4 (`confluent`) or 8 bytes (`apicurio`), or in a
    header. `subject`: where it is not the one that `registry.naming` says. `message`: full name of the Protobuf
    message, where records do not name it. `logical_types`: what becomes of an Avro logical type that stands beside a
    field's type, where Avro ignores it.
    """

    format: Literal["avro", "protobuf", "json_schema", "json", "text", "raw"] = "json"
    source: Literal["registry", "latest"] = "registry"
    framing: Literal["confluent", "apicurio", "header"] = "confluent"
    subject: str | None = None
    message: str | None = None
    logical_types: Literal["strict", "lenient"] = "strict"

    @property
    def needs_registry(self) -> bool:
        """Whether its schemas are in the registry."""
        return self.format in FORMATS_OF_REGISTRY


class ColumnSpec(_Declared):
    """A declared column. The field ids inside `type` are placeholders.

    `field`: path of the field that feeds it; None: the one that would get a column of this name. `unit`: of numbers in a
    column of time (s, ms, us, ns), counted from the epoch or, in one of times of day, from midnight. `coerce`: whether text
    in it takes numbers, booleans, objects and arrays as they are written. `zone`: of local times in it.
    `constant`: its one value, as text; `header`: the header whose
    value it gets. At most one of `field`, `constant` and `header` is there. `value`: what the header's bytes are, where they
    are not the text, the digits or the bytes that the type says.
    """

    name: str
    type: SerializeAsAny[IcebergType]
    field: tuple[str, ...] | None = None
    unit: Literal["s", "ms", "us", "ns"] | None = None
    coerce: bool = False
    zone: str | None = None
    constant: str | None = None
    header: str | None = None
    value: ValueSpec | None = None

    @property
    def is_own(self) -> bool:
        """Whether it comes from something else than the record's value."""
        return self.constant is not None or self.header is not None


class FlattenSpec(_Declared):
    """Nested records become columns, down to `depth` levels, their names joined by `separator`."""

    separator: str = "_"
    depth: int = 100


class EnvelopeSpec(_Declared):
    """How records wrap a change of their source.

    `kind`: `operation` where the field `operation` of the row itself names it; `insert`, `update`, `delete`: its values.
    `placeholder`: what Debezium writes for a value that it was not given.
    """

    kind: Literal["debezium", "maxwell", "canal", "operation"]
    operation: str = ""
    insert: tuple[str, ...] = ("c", "C", "i", "I", "insert", "INSERT")
    update: tuple[str, ...] = ("u", "U", "update", "UPDATE")
    delete: tuple[str, ...] = ("d", "D", "delete", "DELETE")
    placeholder: str = "__debezium_unavailable_value"


class AtomicSpec(_Declared):
    """That a snapshot shows transactions of the source whole. `transaction_topic`: where Debezium says how many changes each
    had; None: a transaction is whole when the next one has begun.
    """

    transaction_topic: str | None = None


class CommitSpec(_Declared):
    """When to commit (`interval_s`: at most this many seconds after data arrived) and the size that files aim at.
    min_file_size_bytes: a commit need not wait for its interval when about this much can be written; None: the target.
    """

    interval_s: float = 1.0
    target_file_size_bytes: int = 128 * 1024 * 1024
    min_file_size_bytes: int | None = None


class MaintenanceSpec(_Declared):
    """How a table is cared for.

    `cores`: tasks of table care at a time; `window`: minutes of the day (UTC) in which files are rewritten, None: always.
    `target_file_size_bytes`: None: that of `commit`. `min_input_files`, `small_file_share`: what is not worth a compaction.
    `snapshot_age_s`, `snapshot_count`: what goes beyond either is expired. `orphan_age_s`: how old a file must be that no
    snapshot names. `sort`, `zorder`: columns (the former with asc or desc) that compaction orders rows by; at most one of
    the two is there; `order_lines`: where the file has them. `statistics`: whether distinct values are counted.
    """

    is_on: bool = True
    cores: int = 1
    window: tuple[int, int] | None = None
    target_file_size_bytes: int | None = None
    min_input_files: int = 50
    small_file_share: float = 0.1
    snapshot_age_s: float = 24 * 3600.0
    snapshot_count: int = 200
    orphan_age_s: float = 72 * 3600.0
    manifests: bool = True
    sort: tuple[str, ...] = ()
    zorder: tuple[str, ...] = ()
    order_lines: tuple[int, ...] = ()
    statistics: bool = False


class DeadLettersSpec(_Declared):
    """Where bad records go: to `table` (None: `<table>__dead_letters`), and to the Kafka topic `topic` too if it is named.
    `stop_above`: the share of bad records above which the table stops instead.
    """

    table: str | None = None
    topic: str | None = None
    stop_above: float = 0.2


class LimitsSpec(_Declared):
    """What a table takes: `columns`, nested fields counted, that records may bring it to; `partitions` that one batch may
    write; `record_bytes` of one value.
    """

    columns: int = 1000
    partitions: int = 10_000
    record_bytes: int = 16 * 1024 * 1024


class CatalogSpec(_Declared):
    """Which Iceberg catalog. Local paths are absolute; `warehouse` is None where a REST catalog chooses it itself.

    `impl` is the class of a catalog that Frazil does not know by name; always None in this version.
    """

    type: Literal["jdbc", "rest"] = "jdbc"
    impl: str | None = None
    uri: SecretText
    warehouse: SecretWord = None
    properties: SecretStrings = {}


class AuthSpec(_Declared):
    """How to log in to the registry: with user and password, with a token, or (all are None) not at all."""

    username: SecretWord = None
    password: SecretWord = None
    token: SecretWord = None


class TlsSpec(_Declared):
    """Files for TLS, their paths absolute; what is None is the machine's own choice."""

    ca: SecretWord = None
    certificate: SecretWord = None
    key: SecretWord = None
    key_password: SecretWord = None


class RegistrySpec(_Declared):
    """The schema registry.

    `urls`: at least one, without credentials and without a slash at the end. `context`: of subjects and ids, empty for
    the default one. `naming`: how producers name subjects. `properties`: the client's own.
    """

    urls: Annotated[tuple[str, ...], Field(repr=False, exclude=True)]
    auth: AuthSpec = AuthSpec()
    tls: TlsSpec = TlsSpec()
    context: str = ""
    naming: Literal["topic", "record", "topic_record"] = "topic"
    properties: SecretStrings = {}


class SparkSpec(_Declared):
    """Spark's master URL and its own properties."""

    master: Annotated[str, Field(repr=False, exclude=True)] = "local[*]"
    conf: SecretStrings = {}


class TableSpec(_Declared):
    """One table: which topics feed it, and how.

    `name` has at least a namespace and a table, joined by dots. `value`, `key`: what the records hold.
    `unknown_fields`: what becomes of fields that `columns` does not name. `rescue`: whether what does not fit its
    column goes to the column `_rescued`. `numbers`: what all numbers of JSON become where no column is declared; None: what
    a sample of them needs. `infers_timestamps`: whether text that is always an ISO 8601 time becomes a time.
    `flatten`, `column_case`: how columns are made from nested records and called.
    `include`, `exclude`: paths of the fields that are taken (none: all) and left out.
    `envelope`: how records wrap changes; None: they are rows. `changelog`: whether every image of every change becomes a
    row. `deletes`: whether a deleted row goes or is marked. `tombstones`: what becomes of a record without a value; empty
    where the file does not say. `atomic`: None where a snapshot may show a part of a transaction. `schema_evolution`:
    which changes records may bring about. `metadata`: what is known of a record besides its value, and the column that each
    is written to. `partition_by`, `sort_by`: None where the file does not say; then what the table has stays. `mode`:
    whether records are appended or replace the row of their key, which `key_columns` are (none: those of the record's key);
    `order_by`: the column that tells the last change (None: partition and offset do). `properties`: Iceberg's table
    properties. `line`: where the file declares it; 0 if it does not.
    """

    name: str
    topics: tuple[TopicSelector, ...]
    start: Start = Start()
    value: ValueSpec = ValueSpec()
    key: ValueSpec = ValueSpec(format="raw")
    columns: tuple[ColumnSpec, ...] = ()
    unknown_fields: Literal["add", "drop", "rescue"] = "add"
    rescue: bool = False
    numbers: SerializeAsAny[IcebergType] | None = None
    infers_timestamps: bool = False
    flatten: FlattenSpec | None = None
    column_case: Literal["keep", "lower", "snake", "camel"] = "keep"
    include: tuple[tuple[str, ...], ...] = ()
    exclude: tuple[tuple[str, ...], ...] = ()
    schema_evolution: Literal["evolve", "add_only", "freeze"] = "evolve"
    on_bad_record: Literal["dead_letter", "stop", "skip"] = "dead_letter"
    dead_letters: DeadLettersSpec = DeadLettersSpec()
    limits: LimitsSpec = LimitsSpec()
    metadata: dict[MetadataField, str] = {}
    partition_by: tuple[PartitionTerm, ...] | None = None
    sort_by: tuple[SortTerm, ...] | None = None
    commit: CommitSpec = CommitSpec()
    maintenance: MaintenanceSpec = MaintenanceSpec()
    on_data_loss: Literal["stop", "skip"] = "stop"
    mode: Literal["append", "upsert"] = "append"
    key_columns: tuple[str, ...] = ()
    order_by: str | None = None
    envelope: EnvelopeSpec | None = None
    changelog: bool = False
    deletes: Literal["hard", "soft"] = "hard"
    tombstones: Literal["", "delete", "ignore", "dead_letter", "row"] = ""
    atomic: AtomicSpec | None = None
    format_version: Literal[2, 3] = 2
    properties: dict[str, str] = {}
    line: int = 0


class PipelineSpec(_Declared):
    """A whole pipeline file.

    `kafka`: client properties for every client, `isolation.level` always among them. `topics`: those that get a
    table each in `namespace`, with the settings of `defaults`. `path`: the file it came from. `secrets`: values
    that must never be shown; see `redact`. `state_dir`: absolute, for what may be lost.
    """

    pipeline: str
    kafka: SecretStrings
    registry: RegistrySpec | None = None
    catalog: CatalogSpec
    spark: SparkSpec = SparkSpec()
    commit: CommitSpec = CommitSpec()
    maintenance: MaintenanceSpec = MaintenanceSpec()
    tables: tuple[TableSpec, ...] = ()
    namespace: str | None = None
    topics: tuple[TopicSelector, ...] = ()
    defaults: TableSpec | None = None
    path: Path
    secrets: Annotated[frozenset[str], Field(repr=False, exclude=True)] = frozenset()
    state_dir: Path

    def redact(self, text: str) -> str:
        """`text` with every secret of this pipeline masked."""
        return redact(text, self.secrets)

    def table_for(self, topic: str) -> TableSpec:
        """The table of `topic`, which the pipeline's own `topics` select: `<namespace>.<topic>`, with defaults."""
        name = f"{self.namespace}.{topic}"
        chosen = {"name": name, "topics": (TopicSelector(literal=topic),), "line": 0}
        if self.defaults is not None:
            return self.defaults.model_copy(update=chosen)
        return TableSpec.model_validate({**chosen, "commit": self.commit, "maintenance": self.maintenance})


METADATA_COLUMNS: Mapping[MetadataField, str] = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "headers": "_headers",
    "key": "_key",
    "op": "_op",
    "image": "_image",
    "source_ts": "_source_ts",
    "connector_ts": "_connector_ts",
    "transaction_id": "_transaction_id",
    "total_order": "_total_order",
    "collection_order": "_collection_order",
    "position": "_position",
    "source_order": "_source_order",
    "source_database": "_source_database",
    "source_schema": "_source_schema",
    "source_table": "_source_table",
    "unavailable": "_unavailable",
    "deleted": "_deleted",
    "deleted_at": "_deleted_at",
}
"""The column that each field of `metadata` is written to, unless the file names another."""
