"""A pipeline file after reading: complete, frozen values with every default filled in.

What may hold a secret (Kafka's properties, the catalog, Spark's configuration) is neither shown by `repr` nor
serialised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny
from pyiceberg.types import IcebergType

from frazil.spec.secrets import redact

MetadataField = Literal["topic", "partition", "offset", "timestamp", "headers", "key"]
SecretText = Annotated[str, Field(repr=False, exclude=True)]
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


class ColumnSpec(_Declared):
    """A declared column. The field ids inside `type` are placeholders."""

    name: str
    type: SerializeAsAny[IcebergType]


class CommitSpec(_Declared):
    """When to commit (`interval_s`: at most this many seconds after data arrived) and the size that files aim at."""

    interval_s: float = 1.0
    target_file_size_bytes: int = 128 * 1024 * 1024


class CatalogSpec(_Declared):
    """Which Iceberg catalog. Local paths are absolute; `warehouse` is None where a REST catalog chooses it itself.

    `impl` is the class of a catalog that Frazil does not know by name; always None in this version.
    """

    type: Literal["jdbc", "rest"] = "jdbc"
    impl: str | None = None
    uri: SecretText
    warehouse: Annotated[str | None, Field(repr=False, exclude=True)] = None
    properties: SecretStrings = {}


class SparkSpec(_Declared):
    """Spark's master URL and its own properties."""

    master: Annotated[str, Field(repr=False, exclude=True)] = "local[*]"
    conf: SecretStrings = {}


class TableSpec(_Declared):
    """One table: which topics feed it, and how.

    `name` has at least a namespace and a table, joined by dots. `undeclared`: what becomes of fields that `columns`
    does not name. `metadata`: what is known of a record besides its value, and the column that each is written to.
    `properties`: Iceberg's table properties. `line`: where the file declares it; 0 if the file does not.
    """

    name: str
    topics: tuple[TopicSelector, ...]
    start: Start = Start()
    columns: tuple[ColumnSpec, ...] = ()
    undeclared: Literal["add", "drop"] = "add"
    metadata: dict[MetadataField, str] = {}
    commit: CommitSpec = CommitSpec()
    on_data_loss: Literal["stop", "skip"] = "stop"
    format_version: Literal[2, 3] = 2
    properties: dict[str, str] = {}
    line: int = 0


class PipelineSpec(_Declared):
    """A whole pipeline file.

    `kafka`: client properties for every client, `isolation.level` always among them. `topics`: those that get a table
    each in `namespace`. `path`: the file it came from. `secrets`: values that must never be shown; see `redact`.
    `state_dir`: absolute, for what may be lost.
    """

    pipeline: str
    kafka: SecretStrings
    catalog: CatalogSpec
    spark: SparkSpec = SparkSpec()
    commit: CommitSpec = CommitSpec()
    tables: tuple[TableSpec, ...] = ()
    namespace: str | None = None
    topics: tuple[TopicSelector, ...] = ()
    path: Path
    secrets: Annotated[frozenset[str], Field(repr=False, exclude=True)] = frozenset()
    state_dir: Path

    def redact(self, text: str) -> str:
        """`text` with every secret of this pipeline masked."""
        return redact(text, self.secrets)

    def table_for(self, topic: str) -> TableSpec:
        """The table of `topic`, which the pipeline's own `topics` select: `<namespace>.<topic>`, with defaults."""
        name = f"{self.namespace}.{topic}"
        return TableSpec(name=name, topics=(TopicSelector(literal=topic),), commit=self.commit)


METADATA_COLUMNS: Mapping[MetadataField, str] = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "headers": "_headers",
    "key": "_key",
}
"""The column that each field of `metadata` is written to, unless the file names another."""
