"""Derives columns, file layout and change settings of a table from the pipeline file. Pure."""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.types import IcebergType, StringType

from frazil.catalog.layout import Layout
from frazil.decode.envelope import Envelope
from frazil.schema.projection import Shaping, counted_in
from frazil.spec import TableSpec
from frazil.types import RESCUED_COLUMN
from frazil.write.target import metadata_columns


def layout_of(spec: TableSpec) -> Layout:
    """Returns the layout of the table's files in the pipeline file."""
    return Layout(spec.partition_by, spec.sort_by)


def own_columns(spec: TableSpec) -> dict[str, IcebergType]:
    """Returns the columns that do not come from the record's value."""
    columns = metadata_columns(spec.metadata, spec.key.format)
    columns |= {column.name: column.type for column in spec.columns if column.is_own}
    if spec.rescue or spec.unknown_fields == "rescue":
        columns[RESCUED_COLUMN] = StringType()
    return columns


def envelope_of(spec: TableSpec, keys: tuple[tuple[str, ...], ...]) -> Envelope | None:
    """Returns how a table's records contain changes; None where they are rows. keys: paths of the key columns, where
    known.
    """
    envelope = spec.envelope
    if envelope is None:
        return None
    values = (envelope.insert, envelope.update, envelope.delete) if envelope.kind == "operation" else ((), (), ())
    return Envelope(
        envelope.kind,
        envelope.operation,
        *values,
        placeholder=envelope.placeholder,
        keys=keys,
        is_log=spec.changelog,
        marks_deletes=spec.deletes == "soft",
        is_upsert=spec.mode == "upsert",
    )


def key_column_of(spec: TableSpec) -> str:
    """Returns the column of decoded record keys; empty where there is none, or where keys are kept as bytes."""
    return spec.metadata.get("key", "") if spec.key.format != "raw" else ""


def shaping_of(spec: TableSpec) -> Shaping | None:
    """Returns how the table's columns are derived from its records; None where they are the records' fields."""
    fields = tuple((column.name, column.field) for column in spec.columns if column.field)
    shaping = Shaping(
        depth=spec.flatten.depth if spec.flatten else 0,
        separator=spec.flatten.separator if spec.flatten else "_",
        case=spec.column_case,
        include=spec.include,
        exclude=spec.exclude,
        fields=fields,
        units=tuple((column.name, column.unit) for column in spec.columns if column.unit),
        counted=tuple(
            (one.name, *inner) for one in spec.columns if not one.is_own for inner in counted_in(one.type, one.unit)
        ),
        coerced=tuple(column.name for column in spec.columns if column.coerce),
        zones=tuple((column.name, column.zone) for column in spec.columns if column.zone),
        constants=tuple((one.name, one.constant) for one in spec.columns if one.constant is not None),
        headers=tuple((column.name, column.header) for column in spec.columns if column.header is not None),
        key=key_column_of(spec),
    )
    if shaping.include and not shaping.makes_names:  # A declared column is always included.
        others = tuple((column.name,) for column in spec.columns if not column.field and not column.is_own)
        shaping = replace(shaping, include=shaping.include + others)
    return shaping if shaping != Shaping() else None
