"""A snapshot as a version of a Lance dataset: objects as Lance's blobs, vectors as lists of one length, which Lance indexes.

The version names the snapshot that it is a copy of. Nothing in it refers to packs, which may be removed when the snapshot
expires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from frazil.errors import FrazilError, SpecError
from frazil_blobs.dataset import BlobDataset
from frazil_blobs.values import is_blob
from frazil_blobs.vectors import declared_dimension

_BLOB = {"lance-encoding:blob": "true"}
TAG = "iceberg-"
"""The tag of a version, before the id of the snapshot."""


def export_lance(dataset: BlobDataset, uri: str, *, storage_options: Mapping[str, str] | None = None) -> int:
    """Writes the rows of a dataset's snapshot as the next version of a Lance dataset, in the order of the epoch; returns the
    version, which gets the tag `iceberg-<snapshot id>`. uri: where the Lance dataset is, or is to be. storage_options:
    Lance's, for its store.

    Raises: SpecError where pylance is not installed; as `read`.
    """
    lance = _lance()
    fields = [_field_of(field, dataset.table, field.name) for field in dataset.rows.schema]
    table, schema, rows = dataset.table, pa.schema(fields), _Rows(dataset)
    try:
        written = lance.write_dataset(
            pa.RecordBatchReader.from_batches(schema, rows.batches(schema)),
            uri,
            schema=schema,
            mode="overwrite",
            storage_options=dict(storage_options) if storage_options is not None else None,
            transaction_properties={
                "iceberg.table": ".".join(table.name()),
                "iceberg.table-uuid": str(table.metadata.table_uuid),
                "iceberg.snapshot-id": str(dataset.snapshot_id),
            },
        )
    except OSError:
        if rows.error is not None:
            raise rows.error from None
        raise
    tag, version = f"{TAG}{dataset.snapshot_id}", int(written.version)
    if tag in written.tags.list():
        written.tags.update(tag, version)
    else:
        written.tags.create(tag, version)
    return version


class _Rows:
    """The rows that Lance asks for, and the error that ends them, which Lance makes one of its own."""

    def __init__(self, dataset: BlobDataset) -> None:
        self._dataset = dataset
        self.error: FrazilError | None = None

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yields the rows in these columns."""
        try:
            for rows in self._dataset.batches():
                yield from rows.cast(schema).to_batches()
        except FrazilError as error:
            self.error = error
            raise


def _field_of(field: pa.Field, table: Table, path: str) -> pa.Field:
    """Returns a field with the bytes of objects in place of the structs, and vectors as lists of one length."""
    if is_blob(field.type):
        return pa.field(field.name, pa.large_binary(), metadata=_BLOB)
    dimension = declared_dimension(table, path)
    if dimension is not None:
        return pa.field(field.name, pa.list_(pa.float32(), dimension))
    if pa.types.is_struct(field.type):
        parts = (field.type.field(n) for n in range(field.type.num_fields))
        return pa.field(field.name, pa.struct([_field_of(part, table, f"{path}.{part.name}") for part in parts]))
    return pa.field(field.name, field.type)


def _lance() -> Any:
    if find_spec("lance") is None:
        remedy = "install `frazil-blobs[lance]` with pip from where Frazil was installed"
        raise SpecError("`export_lance` needs pylance, which is not installed", remedy=remedy)
    import lance  # noqa: PLC0415  (an extra, which takes a while)

    return lance
