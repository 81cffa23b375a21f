"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.formats import EnvelopeKind, Members

CANAL = EnvelopeKind(
    None,
    metadata=("source_ts", "connector_ts", "source_database", "source_schema", "source_table", "unavailable"),
    open_rows="frazil_cdc.canal.messages:open_canal",
    images=("data", "old"),
    names_keys=True,
)

_CONTROL_OPERATIONS = (
    "create-table", "rename-table", "drop-table", "change-columns", "add-column", "drop-column", "rename-column",
    "column-type-change",
)  # fmt: skip
"""The operations of AWS DMS's control records (AWS DMS User Guide, Using Apache Kafka as a target, Message format)."""

_SCHEMA_CHANGES = {
    f"{what}-{how}": "schema_change" for what in ("table", "database") for how in ("create", "alter", "drop")
}
MAXWELL = EnvelopeKind(
    Members(
        operation="type",
        operations={"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"},
        after="data",
        before="old",
        ignored={
            "bootstrap-start": "heartbeat",
            "bootstrap-complete": "heartbeat",
            "heartbeat": "heartbeat",
            **_SCHEMA_CHANGES,
        },
        before_has="changed",
        metadata={
            "source_ts": ("ts", "s"),
            "transaction_id": ("xid", "number"),
            "source_database": ("database", "text"),
            "source_table": ("table", "text"),
        },
    ),
    metadata=("source_schema",),
    key_prefix="pk.",
    flat_keys="frazil_cdc.maxwell:flat_keys",
)

CLOUDEVENTS = EnvelopeKind(
    Members(
        operation="specversion",
        operations={"1.0": "c"},
        after="data",
        required=("id", "source", "type"),
        metadata={
            "ce_id": ("id", "text"),
            "ce_source": ("source", "text"),
            "ce_type": ("type", "text"),
            "ce_time": ("time", "timestamp"),
            "ce_subject": ("subject", "text"),
            "ce_dataschema": ("dataschema", "text"),
            "ce_datacontenttype": ("datacontenttype", "text"),
        },
    ),
    metadata=("ce_extensions",),
    columns=("ce_id", "ce_source", "ce_type", "ce_time", "ce_subject"),
    has_key_fields=False,
    open_events="frazil_cdc.events:open_cloud_events",
)

OUTBOX = EnvelopeKind(
    Members(
        operation="op",
        operations={"c": "c", "r": "r"},
        after="after.payload",
        before="before",
        ignored={"d": "delete"},
        required=("after.id",),
        metadata={
            "event_id": ("after.id", "text"),
            "event_type": ("after.type", "text"),
            "aggregate_type": ("after.aggregatetype", "text"),
            "aggregate_id": ("after.aggregateid", "text"),
        },
    ),
    columns=("event_id", "event_type", "aggregate_type", "aggregate_id"),
    has_key_fields=False,
    open_events="frazil_cdc.events:open_outbox",
)

DMS = EnvelopeKind(
    Members(
        operation="metadata.operation",
        operations={"load": "r", "insert": "c", "update": "u", "delete": "d"},
        after="data",
        before="before-image",
        ignored=dict.fromkeys(_CONTROL_OPERATIONS, "schema_change"),
        before_has="some",
        metadata={
            "source_ts": ("metadata.commit-timestamp", "timestamp"),
            "connector_ts": ("metadata.timestamp", "timestamp"),
            "transaction_id": ("metadata.transaction-id", "number"),
            "total_order": ("metadata.transaction-record-id", "number"),
            "source_schema": ("metadata.schema-name", "text"),
            "source_table": ("metadata.table-name", "text"),
        },
    ),
    has_key_fields=False,
)
