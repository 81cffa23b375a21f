"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.envelopes import EnvelopeKind, Members

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
