"""Tables whose rows are not made from records, as a task sees them: a dead-letter table, or a table under compaction."""

from __future__ import annotations

from frazil.catalog.port import TableState
from frazil.spec.settings import CommitSpec
from frazil.write.target import TableFiles, TableTarget


def plain_target(state: TableState) -> TableTarget:
    """Returns the table as a task sees it."""
    return TableTarget(
        name=state.name,
        schema_json=state.schema.model_dump_json(),
        files=files_of(state, CommitSpec().target_file_size_bytes),
    )


def files_of(state: TableState, target_file_size_bytes: int, max_partitions: int = 0) -> TableFiles:
    """Returns where the files of a table are, and how they are written."""
    return TableFiles(
        location=state.location,
        properties=tuple(sorted(state.properties.items())),
        io_properties=tuple(sorted(state.io_properties.items())),
        target_file_size_bytes=target_file_size_bytes,
        spec_id=state.layout.spec_id,
        partition_spec=state.layout.partition_spec,
        sort_order=state.layout.sort_order,
        older_specs=state.layout.older_specs,
        max_partitions=max_partitions,
    )
