"""A dead-letter table as a task sees it."""

from __future__ import annotations

from frazil.catalog.port import TableState
from frazil.ingest.target import TableTarget
from frazil.spec.models import CommitSpec


def letters_target(letters: TableState) -> TableTarget:
    """What tasks get to know of a dead-letter table."""
    return TableTarget(
        name=letters.name,
        schema_json=letters.schema.model_dump_json(),
        location=letters.location,
        properties=tuple(sorted(letters.properties.items())),
        io_properties=tuple(sorted(letters.io_properties.items())),
        spec_id=letters.spec_id,
        metadata=(),
        target_file_size_bytes=CommitSpec().target_file_size_bytes,
        partition_spec=letters.partition_spec,
        sort_order=letters.sort_order,
    )
