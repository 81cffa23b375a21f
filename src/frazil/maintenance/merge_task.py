"""Compacts data files of one partition in Python tasks by copying rows column by column.

Only what all of the files share is copied: files with the table's current columns, except columns that were added
since. Everything else, such as columns that were widened, is left to Iceberg's own writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.catalog.maintenance_port import Merge, Merging
from frazil.catalog.port import TableState
from frazil.catalog.scans import LiveFile
from frazil.files import release_memory
from frazil.schema.arrow import as_written, field_id_of
from frazil.stages.stage import TableStage
from frazil.types import DataFile
from frazil.upsert.lookup.delete_files import read_deletes, rows_of
from frazil.write.cluster import Partition
from frazil.write.plain_target import plain_target
from frazil.write.target import LINEAGE_SINCE, ROW_ID_FIELD, UPDATED_FIELD, TableTarget, has_lineage, lineage_schema
from frazil.write.transforms import short_path
from frazil.write.write import FileWriter, file_io

_ROWS = 16_384
_BYTES = 32 * 1024 * 1024
"""The maximum number of rows, and of bytes, that are read of a file at a time."""


class _Differs(Exception):
    """A file has other columns than those that can be copied."""


def merge_of(state: TableState, stages: tuple[TableStage, ...] = ()) -> Merge | None:
    """Returns the function that compacts files of this table; None where all of them need Iceberg's own writer: the
    table sorts its rows, has a type that Frazil does not write, or has columns with the names of Iceberg's row ids.
    stages: what writes values of the rows beside the new files.
    """
    target = replace(plain_target(state), stages=stages)
    keeps_ids = state.format_version >= LINEAGE_SINCE
    try:
        is_written = bool(target.arrow_schema) and (not keeps_ids or has_lineage(target, state.format_version))
    except KeyError:  # A type is unknown.
        is_written = False
    return partial(merge_files, target, keeps_ids) if is_written and not target.sorting.fields else None


def merge_files(target: TableTarget, keeps_ids: bool, merging: Merging) -> list[DataFile] | None:
    """Returns the files that the files of `merging` become; see Merge. keeps_ids: whether the files have the columns of
    row lineage, as in format version 3.
    """
    target = replace(target, files=replace(target.files, target_file_size_bytes=merging.most_bytes))
    schema = lineage_schema(target) if keeps_ids else target.arrow_schema
    writer = FileWriter(target, schema, _partition(target, merging))
    try:
        for file, number in merging.files:
            for rows in _rows(target, schema, file, number):
                writer.write(rows)
        return writer.finish()
    except (_Differs, OSError, ValueError, pa.ArrowException):  # ValueError: for example text that is not UTF-8.
        writer.abandon()
        return None
    except BaseException:
        writer.abandon()
        raise
    finally:
        release_memory()


def _partition(target: TableTarget, merging: Merging) -> Partition:
    """Returns the partition of all the files; Iceberg's JSON has its values as a list, or by the ids of partition
    fields.
    """
    partition = merging.files[0][0].description.get("partition") or ()
    ids = [str(field.field_id) for field in target.partitioning.fields]
    values = tuple(partition.get(field_id) for field_id in ids) if isinstance(partition, dict) else tuple(partition)
    return Partition(values, short_path(merging.folder))


def _rows(target: TableTarget, schema: pa.Schema, file: LiveFile, number: int) -> Iterator[pa.Table]:
    """Yields the rows of a file that are not deleted. number: its data sequence number.

    Raises: _Differs; OSError where the store fails.
    """
    with file_io(target).new_input(file.path).open() as stream:
        # Otherwise the store is asked for one column after the other.
        parquet = pq.ParquetFile(stream, pre_buffer=True)
        if parquet.metadata.num_rows != file.record_count:
            raise _Differs
        places = _places(target, parquet.schema_arrow)
        gone = rows_of(read_deletes(target, file.path, file.deletes))
        first_row = 0
        for batch in _batches(parquet):
            columns = [
                pa.nulls(len(batch), field.type) if place is None else as_written(batch.column(place), field.type)
                for place, field in zip(places, target.arrow_schema, strict=True)
            ]
            if len(schema) > len(columns):
                columns += _lineage(batch, file.first_row_id, number, first_row)
            rows = pa.Table.from_arrays(columns, schema=schema)
            mine = gone[np.searchsorted(gone, first_row) : np.searchsorted(gone, first_row + len(batch))] - first_row
            if mine.size:
                rows = rows.take(pa.array(np.delete(np.arange(len(batch)), mine)))
            first_row += len(batch)
            if rows.num_rows:
                yield rows


def _batches(parquet: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file in batches, none of which spans two row groups: row groups of Frazil's own files are
    small in memory too, however well they are compressed.
    """
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        count = min(_ROWS, _BYTES * group.num_rows // max(1, group.total_byte_size))
        yield from parquet.iter_batches(max(1, count), row_groups=[number], use_threads=False)


def _places(target: TableTarget, stored_schema: pa.Schema) -> list[int | None]:
    """Returns the index of each column of the table in the file; None where the file lacks it and all values are null.

    Raises: _Differs.
    """
    by_id = {field_id_of(field): place for place, field in enumerate(stored_schema)}
    if -1 in by_id:
        raise _Differs  # The file was not written for Iceberg: its columns are matched by name.
    fixed = {field.source_id for field in target.partitioning.fields}
    places: list[int | None] = []
    for field, wanted in zip(target.schema.fields, target.arrow_schema, strict=True):
        place = by_id.get(field.field_id)
        if place is None:
            # The column may have a value all the same: its default, or that of the partition.
            if field.required or field.initial_default is not None or field.field_id in fixed:
                raise _Differs
        elif not _is_same(stored_schema.field(place), wanted):
            raise _Differs
        places.append(place)
    return places


def _is_same(stored: pa.Field, wanted: pa.Field) -> bool:
    """Returns whether a column can be copied; names may differ."""
    if field_id_of(stored) != field_id_of(wanted) or (stored.nullable and not wanted.nullable):
        return False
    kind, wanted_kind = stored.type, wanted.type
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted_kind):
        return kind.num_fields == wanted_kind.num_fields and all(map(_is_same, kind, wanted_kind))
    if pa.types.is_map(kind) and pa.types.is_map(wanted_kind):
        return _is_same(kind.key_field, wanted_kind.key_field) and _is_same(kind.item_field, wanted_kind.item_field)
    if pa.types.is_list(kind) and pa.types.is_list(wanted_kind):
        return _is_same(kind.value_field, wanted_kind.value_field)
    return not pa.types.is_nested(kind) and bool(kind.equals(wanted_kind))


def _lineage(batch: pa.RecordBatch, first: int | None, number: int, first_row: int) -> list[pa.Array]:
    """Returns the row ids, and the sequence numbers of the rows' last change: the file's own columns, and where they
    are null the values inherited from the file. first: the id of the file's first row, None before a commit assigned
    it. first_row: the position of the batch in the file. Source: Iceberg specification, "Row Lineage".
    """
    count = len(batch)
    inherited = [pa.nulls(count, pa.int64())] * 2
    if first is not None:
        inherited = [
            pa.array(first + first_row + np.arange(count, dtype=np.int64)),
            pa.array(np.full(count, number, np.int64)),
        ]
    stored_columns = {field_id_of(field): column for field, column in zip(batch.schema, batch.columns, strict=True)}
    columns = []
    for field_id, values in zip((ROW_ID_FIELD, UPDATED_FIELD), inherited, strict=True):
        column = stored_columns.get(field_id)
        columns.append(values if column is None else pa.compute.coalesce(column.cast(pa.int64()), values))
    return columns
