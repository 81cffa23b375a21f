"""The key columns of a table, read from the keys of its records and from record metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    IcebergType,
    IntegerType,
    NestedField,
    StringType,
    StructType,
)

from frazil.cdc.document_ids import ID, read_ids
from frazil.column_names import fold_case
from frazil.decode.columns import Decoded, Mismatch, shortened
from frazil.decode.connect.values import VARIABLE_SCALE, read_logical_type
from frazil.decode.conversion import Conversion
from frazil.decode.settings import EXTENDED_JSON, NO_ENVELOPE, Reading
from frazil.decode.values_as_json import json_text
from frazil.error_classes import ErrorClass
from frazil.rows.connect_messages import payloads_of
from frazil.rows.metadata_columns import own_column
from frazil.rows.record_keys import decode_keys, has_record
from frazil.schema.arrow import Bools, Ints, Records, pick, spread_places
from frazil.schema.evolve import type_at
from frazil.schema.names import as_columns, column_names, column_settings
from frazil.schema.projection import KEY_ROOT, format_path
from frazil.schema.selection import DeclaredValues, Path
from frazil.types import RESERVED_COLUMNS
from frazil.upsert.lookup.live_rows import has_column, member
from frazil.upsert.records.key_fields import bare_keys, column_of, leaves_of, places_of, struct_at
from frazil.write.target import ChangeReading, TableTarget

_ROOT = "key"
_UNNAMEABLE = "the key's field {} has a name that no key column may have: {}, and name it under `key_columns`"
_ALL: tuple[Path, ...] = ((),)
_SCALED = struct_at({("scale",): IntegerType(), ("value",): BinaryType()})


@dataclass(frozen=True)
class Keys:
    """Key columns read from records."""

    #: Refused records, mismatches and schema requests.
    decoded: Decoded
    #: By path of the key column, its value per record; empty while the table lacks a key column.
    columns: Mapping[Path, pa.Array] = field(default_factory=dict)
    #: The paths of the fields of the keys, for a table whose key columns are not known yet.
    fields: tuple[Path, ...] = ()


_ReadKeys = Callable[[TableTarget, ChangeReading, Records, int], Keys]


def read_keys(target: TableTarget, records: Records, rows: Bools, limit: int) -> Keys:
    """Returns the key columns of the records in `rows`, bool `(n_records,)`, read from their keys; a record without a
    key is refused.
    """
    nothing = Keys(Decoded([], np.zeros(rows.size, np.bool_)))
    if not rows.any():
        return nothing
    if _is_json(target) and target.envelope is not None:
        # Their fields have the types of the row; keys without an envelope have the types of their own schema.
        records = {**records, "key": bare_keys(target.envelope, records["key"])}
    keys = records["key"]
    lacking = rows & np.asarray(keys.is_null())
    mismatches = [
        Mismatch(row, "", ErrorClass.NO_KEY, "the record has no key, which identifies its row")
        for row in np.flatnonzero(lacking)[:limit].tolist()
    ]
    nothing.decoded.refused[lacking] = True
    nothing.decoded.mismatches.extend(mismatches)
    key_rows = np.flatnonzero(rows & ~lacking)
    if not key_rows.size:
        return nothing
    decoded_keys = _decode(target, pick(records, key_rows), limit)
    return _with_own(target, records, _spread(decoded_keys, nothing, key_rows, limit), rows, limit)


def read_row_keys(target: TableTarget, records: Records, rows: Bools, limit: int) -> Keys:
    """Returns the key columns of the records in `rows`, with keys read like rows of the table: the key's schema, or the
    column's unit, determines what a number in a time column means. Keys that are not records give no columns.
    """
    changes = target.changes
    assert changes is not None
    nothing = Keys(Decoded([], np.zeros(rows.size, np.bool_)))
    key_rows = np.flatnonzero(rows & np.asarray(records["key"].is_valid()))
    has_all = all(has_column(target, path) for path in changes.paths)
    if not key_rows.size or not has_all or changes.key.format in ("text", "raw"):
        return nothing
    kept = pick(records, key_rows)
    if _are_of_documents(target, changes):
        keys = _read_documents(target, changes, kept, limit, _read_as_rows)
    else:
        keys = _read_as_rows(target, changes, kept, limit)
    return _with_own(target, records, _spread(keys, nothing, key_rows, limit), rows, limit)


def _with_own(target: TableTarget, records: Records, keys: Keys, rows: Bools, limit: int) -> Keys:
    """Returns the keys with key columns that come from constants, headers and metadata. rows: the records whose keys
    are needed.
    """
    if not keys.columns:
        return keys
    fitting = Conversion(target.reading, "", rows.size, limit)
    own = own_key_columns(fitting, target, records)
    if not own:
        return keys
    more = [mismatch for mismatch in fitting.mismatches if rows[mismatch.row]]
    decoded = keys.decoded.refusing(fitting.refused & rows, more, limit)
    return replace(keys, decoded=decoded, columns={**keys.columns, **own})


def _read_as_rows(target: TableTarget, changes: ChangeReading, records: Records, limit: int) -> Keys:
    places = places_of(target, changes)
    declared = _as_declared(target, changes.key, _in_row(places, "after"))
    reading = replace(declared, unknown_fields="drop", envelope=NO_ENVELOPE)
    kinds = {place: _kind(target, path) for path, mine in places.items() for place in mine}
    decoded = decode_keys(reading, _ROOT, struct_at(kinds), records, limit)
    columns = {
        path: pc.coalesce(*(member(decoded.columns[0], place) for place in mine)) for path, mine in places.items()
    }
    return Keys(_sans_wanted(decoded), columns)


def _as_declared(target: TableTarget, key: Reading, fed: Mapping[Path, Path]) -> Reading:
    """Returns the reading of keys with the units and zones of their columns, and whether these accept other types. fed:
    the field of the row with the same column, by path in the key.
    """
    declared = target.layout.declared if target.shaping is not None else target.reading.declared
    units, zones = dict(declared.units), dict(declared.zones)
    of_key = DeclaredValues(
        units=tuple((path, units[field]) for path, field in fed.items() if field in units),
        coerced=tuple(
            path for path, field in fed.items() if any(field[: len(prefix)] == prefix for prefix in declared.coerced)
        ),
        zones=tuple((path, zones[field]) for path, field in fed.items() if field in zones),
    )
    return replace(key, declared=of_key)


def _in_row(places: Mapping[Path, tuple[Path, ...]], root: str) -> dict[Path, Path]:
    """Returns the field of the row for each place below `root`. places: as `places_of` returns them."""
    return {(root, *place): mine[0] for mine in places.values() for place in mine}


def _spread(keys: Keys, others: Keys, key_rows: Ints, limit: int) -> Keys:
    """Returns keys of some records, at the places `key_rows`, merged into the keys of all records; null elsewhere."""
    left, at = others.decoded, spread_places(key_rows, others.decoded.refused.size)
    decoded = keys.decoded.spread(key_rows, left.refused.size).refusing(left.refused, left.mismatches, limit)
    decoded = replace(decoded, refusals=decoded.refusals | left.refusals, dropped=decoded.dropped | left.dropped)
    columns = {path: column.take(at) for path, column in keys.columns.items()}
    for path, column in others.columns.items():
        columns[path] = pc.coalesce(columns[path], column) if path in columns else column
    return Keys(decoded, columns, keys.fields)


def _decode(target: TableTarget, records: Records, limit: int) -> Keys:
    changes = target.changes
    assert changes is not None
    paths = changes.paths
    if not paths:
        return _discover(target, records, limit)
    keys = Keys(Decoded([], np.zeros(len(records["key"]), np.bool_)))
    if not all(has_column(target, path) for path in paths):
        return keys  # A missing column is added by a later record; until then nothing can be deleted.
    if _are_of_documents(target, changes):
        return _read_documents(target, changes, records, limit, _read_records)
    is_record = _are_records(target, records["key"]) | (len(paths) > 1)
    if is_record.all():
        return _read_records(target, changes, records, limit)
    if not is_record.any():
        return _read_bare(target, changes, records, limit)
    bare, rows = np.flatnonzero(~is_record), np.flatnonzero(is_record)
    keys = _spread(_read_bare(target, changes, pick(records, bare), limit), keys, bare, limit)
    return _spread(_read_records(target, changes, pick(records, rows), limit), keys, rows, limit)


def _read_bare(target: TableTarget, changes: ChangeReading, records: Records, limit: int) -> Keys:
    """Returns the single key column of keys that are plain values."""
    (places,) = places_of(target, changes).values()
    reading = replace(_as_declared(target, changes.key, {(_ROOT,): places[0]}), keys=_ALL)
    kind = target.schema.find_field(changes.key_columns[0]).field_type
    if reading.format == "raw" and isinstance(kind, BinaryType):
        keys = records["key"]
        return Keys(Decoded([], np.zeros(len(keys), np.bool_)), {changes.paths[0]: keys})
    if reading.format == "raw":
        reading = replace(reading, format="text" if isinstance(kind, StringType) else "json")
    decoded = decode_keys(reading, _ROOT, kind, records, limit)
    return Keys(_sans_wanted(decoded), {changes.paths[0]: decoded.columns[0]})


def _read_records(target: TableTarget, changes: ChangeReading, records: Records, limit: int) -> Keys:
    """Returns the key columns of keys that are records."""
    unknown_fields = "refuse" if changes.is_key_of_record else "drop"
    places = places_of(target, changes)
    declared = _as_declared(target, changes.key, _in_row(places, _ROOT))
    reading = replace(declared, unknown_fields=unknown_fields, keys=_ALL)
    if reading.format == "raw":
        reading = replace(reading, format="json")
    kinds = {place: _kind(target, path) for path, mine in places.items() for place in mine}
    decoded, scaled = decode_keys(reading, _ROOT, struct_at(kinds), records, limit), {}
    if decoded.refused.any() and target.envelope is not None:
        scaled = _with_scales(changes.key, kinds, records)
        decoded = decode_keys(reading, _ROOT, struct_at(kinds | scaled), records, limit) if scaled else decoded
    arrays = {place: member(decoded.columns[0], place) for place in kinds}
    for place in scaled:
        decoded, arrays[place] = _unscaled(decoded, arrays[place], place, kinds[place], limit)
    columns = {path: pc.coalesce(*(arrays[place] for place in mine)) for path, mine in places.items()}
    mismatches = [_as_other_key(mismatch) for mismatch in decoded.mismatches]
    return Keys(replace(_sans_wanted(decoded), mismatches=mismatches), columns)


def _unscaled(
    decoded: Decoded, array: pa.Array, place: Path, kind: IcebergType, limit: int
) -> tuple[Decoded, pa.Array]:
    """Returns numbers with a scale of their own (Debezium `VariableScaleDecimal`) in the type of the key column; a key
    out of its range is refused.
    """
    meant = read_logical_type(array, replace(VARIABLE_SCALE, is_key=True), kind)
    assert meant is not None
    bad = np.flatnonzero(meant.bad & ~decoded.refused)
    path, reason = ".".join((_ROOT, *place)), f"{{value}} is out of the range of {kind}"
    mismatches = [
        Mismatch(row, path, ErrorClass.OUT_OF_RANGE, reason.replace("{value}", shortened(json_text(array[row]))))
        for row in bad[:limit].tolist()
    ]
    return decoded.refusing(meant.bad, mismatches, limit), meant.array


def _as_other_key(mismatch: Mismatch) -> Mismatch:
    """Returns the mismatch for a field that is no key column: it does not depend on `schema_evolution`."""
    if mismatch.kind != ErrorClass.UNKNOWN_FIELD:
        return mismatch
    name = mismatch.path.removeprefix(f"{_ROOT}.")
    reason = f"the record's key has the field {name}, which is none of the table's key columns: name its `key_columns`"
    return replace(mismatch, kind=ErrorClass.KEY_MISMATCH, reason=reason)


def _with_scales(reading: Reading, kinds: Mapping[Path, IcebergType], records: Records) -> dict[Path, IcebergType]:
    """Returns the fields of keys that are numbers with a scale of their own."""
    (kind,) = decode_keys(reading, _ROOT, None, records, 0).requested_fields.get((), {KEY_ROOT: None}).values()
    if not isinstance(kind, StructType):
        return {}
    scaled: dict[Path, IcebergType] = {}
    for place, required in kinds.items():
        written = type_at(kind, place)
        names = {part.name for part in written.fields} if isinstance(written, StructType) else set()
        if names == {"scale", "value"} and isinstance(required, StringType | DecimalType):
            scaled[place] = _SCALED
    return scaled


def _are_of_documents(target: TableTarget, changes: ChangeReading) -> bool:
    """Returns whether the key column is the `_id` of a document, which MongoDB's keys name differently."""
    is_debezium = target.envelope is not None and target.envelope.kind == "debezium"
    return is_debezium and all(field[0] == ID for field, *_ in places_of(target, changes).values())


def _read_documents(
    target: TableTarget, changes: ChangeReading, records: Records, limit: int, read_others: _ReadKeys
) -> Keys:
    """Returns the key columns of keys with the `_id` of a document; the other keys are read by `read_others`."""
    row = StructType(*(target.fields if target.shaping is None else target.layout.fields))
    ids = read_ids(changes.key, records, type_at(row, (ID,)))
    count, has_id = len(ids.refused), np.asarray(ids.columns[0].is_valid())
    keys = Keys(Decoded([], np.zeros(count, np.bool_), missing=ids.missing))
    rows, others = np.flatnonzero(has_id), np.flatnonzero(~has_id)
    if rows.size:
        documents = {**pick(records, rows), "key": ids.columns[0].drop_null()}
        as_json = replace(changes, key=Reading(format="json", json=EXTENDED_JSON))
        keys = _spread(_read_records(target, as_json, documents, limit), keys, rows, limit)
    if others.size and not ids.missing:
        keys = _spread(read_others(target, changes, pick(records, others), limit), keys, others, limit)
    return keys


def _sans_wanted(decoded: Decoded) -> Decoded:
    """Returns the result without schema requests: a record's key never changes the table's key columns."""
    return replace(decoded, requested_fields={}, made_optional=set())


def _discover(target: TableTarget, records: Records, limit: int) -> Keys:
    """Returns the fields of the keys as columns that the table should have."""
    assert target.changes is not None
    is_record = _are_records(target, records["key"])
    if is_record.any() and not is_record.all():
        rows = np.flatnonzero(is_record)
        others = Keys(_without_fields(Decoded([], np.zeros(is_record.size, np.bool_)), ~is_record, limit))
        return _spread(_discover(target, pick(records, rows), limit), others, rows, limit)
    decoded = decode_keys(target.changes.key, _ROOT, None, records, limit)
    (kind,) = decoded.requested_fields.get((), {KEY_ROOT: None}).values()
    if not isinstance(kind, StructType):
        is_value = np.full(decoded.refused.size, kind is not None)
        is_framed = target.changes.key.format not in ("json", "raw", "text")
        return Keys(_without_fields(replace(decoded, requested_fields={}), is_value, limit, is_framed))
    unnameable = next((path for path in _of_table(target, leaves_of(kind)) if _is_unnameable(target, path)), None)
    if unnameable is not None:
        reason = _UNNAMEABLE.format(format_path(unnameable), column_settings(unnameable))
        return Keys(_refuse_all(replace(decoded, requested_fields={}), is_record, reason, limit))
    names = column_names(target.reading.aliases)
    mine = as_columns(kind, names) if names else kind
    assert isinstance(mine, StructType)
    requested_fields: dict[Path, dict[str, IcebergType]] = {
        (): {member_.name: member_.field_type for member_ in mine.fields}
    }
    return Keys(replace(decoded, requested_fields=requested_fields), fields=tuple(_of_table(target, leaves_of(kind))))


def _is_unnameable(target: TableTarget, field: Path) -> bool:
    """Whether no key column can have the name of this field of keys: it has a dot, is empty, or is one of Iceberg's."""
    column = column_of(target, field)
    return "." in "".join(column) or "" in column or fold_case(column[0]) in RESERVED_COLUMNS


def _without_fields(decoded: Decoded, is_value: Bools, limit: int, is_framed: bool = False) -> Decoded:
    """Refuses keys that are not records, whose fields cannot be known. is_framed: the format does not allow text."""
    or_text = "" if is_framed else "write `key: {format: text}`, or "
    return _refuse_all(decoded, is_value, f"the key is not a record; {or_text}name the `key_columns`", limit)


def _refuse_all(decoded: Decoded, is_bad: Bools, reason: str, limit: int) -> Decoded:
    rows = np.flatnonzero(is_bad & ~decoded.refused)[:limit].tolist()
    mismatches = [*decoded.mismatches, *(Mismatch(row, "", ErrorClass.NO_KEY, reason) for row in rows)]
    return replace(decoded, refused=decoded.refused | is_bad, mismatches=mismatches)


def _is_json(target: TableTarget) -> bool:
    return target.changes is not None and target.changes.key.format == "json"


def _of_table(target: TableTarget, fields: Iterable[Path]) -> Iterator[Path]:
    """Yields the fields of a key that belong to the row, without those that name the table."""
    prefix = "" if target.envelope is None else target.envelope.key_prefix
    for path in fields:
        if path[0].startswith(prefix):
            yield (path[0].removeprefix(prefix), *path[1:])


def _are_records(target: TableTarget, keys: pa.Array) -> Bools:
    """Returns which keys are records, bool `(n_keys,)`. Keys without a declared format may be JSON, unless the whole
    key is the key column.
    """
    changes = target.changes
    assert changes is not None
    reading = changes.key
    if reading.format == "json" or (reading.format == "raw" and not _is_key_column(target, changes)):
        keys = payloads_of(keys)
        return np.asarray(pc.match_substring_regex(keys.cast(pa.binary()), r"^[ \t\r\n]*\{"))
    return np.full(len(keys), reading.format not in ("text", "raw") and has_record(reading))


def _is_key_column(target: TableTarget, changes: ChangeReading) -> bool:
    return changes.key_columns == (dict(target.metadata).get("key"),)


def _kind(target: TableTarget, path: Path) -> IcebergType:
    kind: IcebergType = target.schema.find_field(".".join(path)).field_type
    return kind


def put_keys(column: NestedField, values: pa.Array, keys: Keys, rows: Bools) -> pa.Array:
    """Returns the column with the keys' values in `rows`, where it is a key column or contains one."""
    mine = {path[1:]: key for path, key in keys.columns.items() if path[0] == column.name}
    if not mine:
        return values
    return pc.if_else(pa.array(rows), _nested(column.field_type, mine, values), values)


def _nested(kind: IcebergType, members: Mapping[Path, pa.Array], values: pa.Array) -> pa.Array:
    if () in members:
        return members[()].cast(values.type)
    assert isinstance(kind, StructType)
    arrays = []
    for place, inner in enumerate(kind.fields):
        mine = {path[1:]: key for path, key in members.items() if path[0] == inner.name}
        own = member(values, [inner.name])
        arrays.append(_nested(inner.field_type, mine, own) if mine else own)
        assert values.type.field(place).name == inner.name
    return pa.StructArray.from_arrays(arrays, fields=list(values.type))


def own_key_columns(fitting: Conversion, target: TableTarget, records: Records) -> dict[Path, pa.Array]:
    """Returns, by path, key columns that come from constants, headers and record metadata, one value per record. A
    value that does not match its column is a mismatch. A record without a value has them too.
    """
    changes, shaping = target.changes, target.shaping
    assert changes is not None
    metadata_columns = {column: source for source, column in target.metadata if source in ("topic", "partition")}
    plain = (
        {*dict(shaping.constants), *dict(shaping.headers)} - {*dict(target.record.headers)}
        if shaping is not None
        else {}
    )
    arrays: dict[Path, pa.Array] = {}
    for path in changes.paths:
        if path[0] in metadata_columns and metadata_columns[path[0]] in records:
            arrays[path] = records[metadata_columns[path[0]]]
        elif shaping is not None and path[0] in plain:
            field = next(table_field for table_field in target.fields if table_field.name == path[0])
            arrays[path] = own_column(fitting, shaping, field, records)
    return arrays
