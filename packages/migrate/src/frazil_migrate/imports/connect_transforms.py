"""Kafka Connect's single-message transforms as settings of a table, and the chain of a connector read in its order.

A transform that is not carried over exactly is reported, by the name that the connector gives it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from frazil.spec.steps import OF_CHANGES
from frazil_migrate.imports.connect_metadata import (
    COLUMNS,
    PIECES,
    MetadataColumn,
    cast,
    converted,
    flattened,
    has_schemas,
    inserted,
    kafka_metadata,
    of_change,
    selected,
)
from frazil_migrate.imports.draft import Draft
from frazil_migrate.imports.sql import quoted as name_of

_TYPES = {
    "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double",
    "boolean": "boolean", "string": "string",
}  # fmt: skip
_UNITS = {"seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_UNWRAPPED = {
    "op": "op", "source.ts_ms": "source_ts", "ts_ms": "connector_ts",
    **{f"{part}{name}": f"source_{field}" for part in ("", "source.") for name, field in
       (("db", "database"), ("schema", "schema"), ("table", "table"))},
}  # fmt: skip
"""Fields that Debezium's unwrap transform adds, and metadata with their values."""
_OWNERS = re.compile(r"org\.apache\.(kafka|iceberg)\.|io\.(tabular\.iceberg|debezium|confluent)\.|[^.]+$")
"""What the classes begin with whose names are known here; a short name is one of Kafka's."""
_WORDS = re.compile(r"[\s,:]+")
_STEPS = ("rename", "drop_fields", "keep_fields", "cast", "add_fields", "select")
_ALL = "*"
_NO_STRUCT = "its values are columns of their own, not members of a struct"
_ORDER = "in Frazil's order of steps it would come before a transform that precedes it here"
_ITSELF = "write its result as `select` or `where`, or run it before the topic"


@dataclass
class Shape:
    """The settings of tables that the transforms so far amount to."""

    settings: dict[str, object] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)
    #: The columns of a query behind the steps.
    selected: list[str] = field(default_factory=list)
    #: Of DebeziumTransform: the pattern of the tables' names.
    target: str = ""
    #: Columns of record metadata so far, by name.
    metadata: dict[str, MetadataColumn] = field(default_factory=dict)
    #: Fields that hold the topic's name.
    topic_fields: set[str] = field(default_factory=set)
    #: The transform that renames topics; empty without one.
    router: str = ""
    #: The fields of the key, of ValueToKey.
    key_fields: list[str] = field(default_factory=list)
    #: The last name of each field that is renamed.
    renamed: dict[str, str] = field(default_factory=dict)
    #: The fields that each of `_STEPS` has to do with.
    touched: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in _STEPS})

    def add(self, name: str, value: Mapping[str, object] | list[str]) -> None:
        """Adds to a setting that is a mapping or a list."""
        held = self.settings.setdefault(name, type(value)())
        if isinstance(held, dict) and isinstance(value, Mapping):
            held.update(value)
        elif isinstance(held, list):
            held.extend(value)

    def place_metadata(self) -> None:
        """Writes the columns of record metadata: a field once under `metadata`, others under `add_fields` or in a query."""
        fields: dict[str, str] = {}
        for name, column in self.metadata.items():
            if column.field and column.field not in fields and "keep_fields" not in self.settings:
                fields[column.field] = name
            elif column.added_name:
                self.add("add_fields", {name: column.added_name})
            else:
                self.selected += [*([] if self.selected else ["*"]), selected(name, column)]
        if fields:
            self.add("metadata", fields)

    def as_settings(self) -> dict[str, object]:
        """Returns the settings of a table."""
        settings = {**self.settings}
        if self.conditions:
            settings["where"] = " and ".join(self.conditions)
        if self.selected:
            settings["select"] = f"select {', '.join(self.selected)} from records"
        return settings


@dataclass
class Transform:
    """One transform of the chain, with its settings."""

    alias: str
    name: str
    options: dict[str, str]
    draft: Draft
    shape: Shape
    used: set[str] = field(default_factory=set)

    def take(self, name: str, default: str = "") -> str:
        self.used.add(name)
        return self.options.get(name, default)

    def take_list(self, name: str) -> list[str]:
        return [part.strip() for part in self.take(name).split(",") if part.strip()]

    def lose(self, reason: str, instead: str, option: str = "") -> None:
        """Reports the transform, or one option of it. The columns that it names are not what they are in the sink."""
        self.draft.unconverted |= {word for text in self.options.values() for word in _WORDS.split(text)}
        key = f"transforms.{self.alias}.{option}" if option else f"transforms.{self.alias}"
        self.draft.lose(key, f"{self.name}: {reason}", instead)

    def step(self, name: str, value: Mapping[str, object] | list[str], also: Iterable[str] = ()) -> None:
        """Adds a step, and reports one that Frazil does before a step that precedes it here. also: further names that the
        step has to do with.
        """
        if value:
            self.touch(name, {*value, *also})
            self.shape.add(name, value)

    def of_records(self, names: Iterable[str]) -> list[str]:
        """Returns what records call fields, which settings beside the steps name; reports those that a step makes."""
        renamed = {new: old for old, new in self.shape.renamed.items()}
        made = self.shape.touched["add_fields"] | self.shape.touched["select"]
        for name in [name for name in names if path(name) in made or _ALL in made]:
            self.lose(f"a transform that precedes makes {name}", "write the step in the `select` that makes it")
        return [renamed.get(name, name) for name in names]

    def touch(self, name: str, fields: set[str]) -> None:
        """Reports a step that Frazil does before one of the same fields that precedes it here."""
        later = set().union(*(self.shape.touched[step] for step in _STEPS[_STEPS.index(name) + 1 :]))
        clashes = self.shape.touched["add_fields"] - fields if name == "keep_fields" else later & fields
        if clashes or _ALL in later:
            self.lose(_ORDER, "write these steps as a `select`")
        self.shape.touched[name] |= fields


def read_chain(draft: Draft) -> Shape:
    """Returns what the transforms of a connector amount to; reports those that it cannot carry over."""
    shape = Shape()
    predicates = {name: _options(draft, f"predicates.{name}.") for name in _names(draft.take("predicates"))}
    for alias in _names(draft.take("transforms")):
        options = _options(draft, f"transforms.{alias}.")
        place = options.pop("type", "")
        kind, _, side = place.rpartition(".")[2].partition("$")
        transform = Transform(alias, kind if _OWNERS.match(place) else place, options, draft, shape)
        named = options.pop("predicate", "")
        predicate = predicates.get(named)
        is_negated = options.pop("negate", "false").lower() == "true"
        if not place:
            draft.lose(f"transforms.{alias}", "it has no type", "name its class there, or take it out of `transforms`")
        elif named and predicate is None:
            transform.lose(f"no predicate is `{named}`", "name it under `predicates` there, and import again")
        elif side == "Key":
            transform.lose("it changes record keys", "name `key_columns` where the key matters")
        elif transform.name == "Filter" and not options:
            _filter(transform, predicate, is_negated)
        elif predicate and not (is_negated and _kind(predicate) == "RecordIsTombstone"):
            transform.lose("its predicate selects some records", _ITSELF)
        elif transform.name in _TRANSFORMS:
            _TRANSFORMS[kind](transform)
            for name in [name for name in options if name not in transform.used]:
                draft.settle(f"transforms.{alias}.{name}", options[name], f"{kind}.{name}")
        else:
            transform.lose("it is a class that Frazil does not know", _ITSELF)
    shape.place_metadata()
    return shape


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _options(draft: Draft, prefix: str) -> dict[str, str]:
    return draft.take_all(prefix)


def _kind(predicate: Mapping[str, str]) -> str:
    return predicate.get("type", "").rpartition(".")[2]


def _filter(transform: Transform, predicate: Mapping[str, str] | None, is_negated: bool) -> None:
    kind = _kind(predicate or {})
    if kind == "RecordIsTombstone" and not is_negated:
        transform.shape.settings["tombstones"] = "ignore"
    elif kind == "TopicNameMatches" and predicate:
        _note_router(transform, "the topic")
        condition = matches("_topic", predicate.get("pattern", ""))
        transform.shape.conditions.append(condition if is_negated else f"not ({condition})")
    elif kind == "HasHeaderKey" and predicate:
        name = predicate.get("name", "")
        transform.shape.add("columns", {name: {"type": "string", "header": name}})
        transform.shape.settings["filter"] = f"`{name}` is {'not null' if is_negated else 'null'}"
        transform.lose(f"the header `{name}` becomes a column", "leave it out in a `select`")
    else:
        transform.lose("its predicate cannot be a condition", "write the condition as `where`")


def _note_router(transform: Transform, name: str) -> None:
    """Reports a value that is the topic's name as a transform has changed it. name: of the value."""
    if router := transform.shape.router:
        reason = f"`transforms.{router}` renames the topic before, and {name} is its own name here"
        transform.lose(reason, "make the name with `regexp_replace(_topic, …)` in a `select` or `where`")


def path(name: str) -> str:
    """Returns the path of a field at the top, which may have dots in its name."""
    return json.dumps([name], ensure_ascii=False) if "." in name else name


def quoted(text: str) -> str:
    """Returns a literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# ---- Kafka's own


def _replace_field(transform: Transform) -> None:
    renamed = dict(pair.split(":", 1) for pair in transform.take_list("renames") if ":" in pair)
    dropped = transform.take_list("exclude") + transform.take_list("blacklist")
    kept = transform.take_list("include") + transform.take_list("whitelist")
    replaced = _replace_metadata(transform.shape, renamed, dropped, kept)
    _rename(transform, {old: new for old, new in renamed.items() if old not in {*dropped, *replaced}})
    transform.step("drop_fields", [path(name) for name in dropped if name not in {*renamed.values(), *replaced}])
    if kept:
        transform.shape.settings.pop("keep_fields", None)
    fields = [path(renamed.get(name, name)) for name in kept if name not in replaced]
    transform.step("keep_fields", fields)
    if kept and not fields:
        transform.lose("no field of the records is kept", "write a `select`", "include")
    if swapped := [name for name in dropped if name in renamed.values()]:
        transform.lose(f"{', '.join(swapped)} is dropped and the name of a renamed field", "write a `select`")


def _rename(transform: Transform, names: Mapping[str, str]) -> None:
    """Renames fields, also those that a transform before has renamed: Frazil renames each field once."""
    renamed = transform.shape.renamed
    before = {new: old for old, new in renamed.items()}
    again = {before[old]: new for old, new in names.items() if old in before}
    also = map(path, (*names, *names.values()))
    names = {old: new for old, new in names.items() if old not in before} | again
    transform.step("rename", {path(old): new for old, new in names.items()}, also)
    renamed.update(names)


def _replace_metadata(shape: Shape, renamed: Mapping[str, str], dropped: list[str], kept: list[str]) -> set[str]:
    """Renames and removes columns of metadata, and returns the names that they had."""
    before = shape.metadata
    stay = [name for name in before if name not in dropped and (not kept or name in kept)]
    shape.metadata = {renamed.get(name, name): before[name] for name in stay}
    shape.topic_fields |= {renamed[name] for name in shape.topic_fields & renamed.keys()}
    return set(before)


def _cast(transform: Transform) -> None:
    pairs = [pair.rpartition(":") for pair in transform.take_list("spec")]
    if whole := [kind for name, _, kind in pairs if not name]:
        transform.lose(f"it casts whole values to {whole[0]}", "give the column its type under `columns`", "spec")
    types = {name: _TYPES.get(kind, kind) for name, _, kind in pairs if name}
    for name in types.keys() & transform.shape.metadata.keys():
        column = cast(transform.shape.metadata[name], types.pop(name))
        if column is None:
            transform.lose(f"{name} has no such cast in Frazil", "write its expression in a `select`", "spec")
        else:
            transform.shape.metadata[name] = column
    transform.step("cast", {path(name): kind for name, kind in types.items()})


def _insert_field(transform: Transform) -> None:
    for piece in PIECES:
        if name := transform.take(f"{piece}.field").rstrip("!?"):
            if piece == "topic":
                _note_router(transform, name)
            _add_metadata(transform.shape, {name: inserted(piece, transform.draft, name)})
    if name := transform.take("static.field").rstrip("!?"):
        _add_constant(transform, name, transform.take("static.value"))


def _add_constant(transform: Transform, name: str, value: str) -> None:
    """Adds a column with a text, in a query where `add_fields` would take it for the name of metadata."""
    if value in COLUMNS.values() or value in OF_CHANGES or value.startswith(("source.", "transaction.")):
        head = [] if transform.shape.selected else ["*"]
        _select(transform, [*head, f"{quoted(value)} as {name_of(name)}"], {name})
    else:
        transform.step("add_fields", {name: value})


def _add_metadata(shape: Shape, columns: Mapping[str, MetadataColumn]) -> None:
    shape.metadata.update(columns)
    shape.topic_fields |= {name for name, column in columns.items() if column.sql == "_topic"}
    shape.topic_fields |= {f"{name}.topic" for name, column in columns.items() if column.members}


def _mask_field(transform: Transform) -> None:
    value = transform.take("replacement")
    rule: object = {"action": "constant", "value": value} if value else "null"
    fields = transform.of_records(transform.take_list("fields"))
    transform.shape.add("protect", dict.fromkeys(map(path, fields), rule))
    transform.shape.settings["protect_key"] = "${env:PROTECT_KEY}"
    transform.draft.lose(
        f"transforms.{transform.alias}",
        "`protect` needs a key of yours, with which dead letters are encrypted",
        "set the environment variable PROTECT_KEY to 32 random bytes or more before starting Frazil",
    )
    if not value:
        transform.lose(
            "the fields become null in place of 0, false or an empty text", "name a `constant` under `protect`"
        )


def _flatten(transform: Transform) -> None:
    separator, shape = transform.take("delimiter", "."), transform.shape
    shape.settings["flatten"] = {"separator": separator}
    for name in [name for name, column in shape.metadata.items() if column.members]:
        _add_metadata(shape, dict(flattened(name, shape.metadata.pop(name), separator)))


def _convert_timestamp(transform: Transform) -> None:
    name, kind, metadata = transform.take("field"), transform.take("target.type"), transform.shape.metadata
    precision = transform.take("unix.precision") or "milliseconds"
    if precision not in _UNITS:
        transform.lose(f"`{precision}` is not a unit", f"write one of {', '.join(_UNITS)}", "unix.precision")
    unit = _UNITS.get(precision, "ms")
    schemas = has_schemas(transform.draft)
    column = (
        converted(metadata[name], kind, transform.options.get("format", ""), unit, schemas)
        if name in metadata
        else None
    )
    if column is not None:
        transform.take("format")
        metadata[name] = column
    elif kind == "Timestamp" and name and name not in metadata:
        transform.shape.add("columns", dict.fromkeys(transform.of_records([name]), f"timestamptz({unit})"))
    else:
        transform.lose(
            f"a time does not become `{kind}` by a setting",
            "use `date_format`, `to_date` or `unix_millis` in a `select`",
        )


def _header_from(transform: Transform) -> None:
    if transform.take("operation") == "move":
        transform.step("drop_fields", transform.take_list("fields"))
    transform.take("fields")


def _value_to_key(transform: Transform) -> None:
    transform.shape.key_fields = transform.take_list("fields")


def _extract_field(transform: Transform) -> None:
    name = transform.take("field")
    transform.shape.metadata.clear()
    if name == "after":
        transform.shape.settings["envelope"] = "debezium"
    else:
        _select(transform, [f"`{name}`.*"], {_ALL})


def _hoist_field(transform: Transform) -> None:
    _select(transform, [f"struct(*) as `{transform.take('field')}`"], {_ALL})


def _select(transform: Transform, columns: list[str], fields: set[str]) -> None:
    """Makes a query of the columns, or adds them to the one that precedes."""
    if fields == {_ALL} and transform.shape.selected:
        transform.lose("another transform precedes that is a query too", "write both as one `select`")
        return
    transform.touch("select", fields)
    transform.shape.selected += columns


def _route(transform: Transform) -> None:
    """Remembers that topics have other names from here on."""
    transform.shape.router = transform.alias


def _ignored(_transform: Transform) -> None:
    """Has no effect on the rows; its settings are reported by their answers."""


# ---- Iceberg's and Debezium's


def _copy_value(transform: Transform) -> None:
    source, target = transform.take("source.field"), transform.take("target.field")
    _select(transform, [*([] if transform.shape.selected else ["*"]), f"`{source}` as `{target}`"], {source, target})


def _kafka_metadata(transform: Transform) -> None:
    prefix = transform.take("field_name", "_kafka_metadata")
    name, _, value = (text.strip() for text in transform.take("external_field").partition(","))
    is_nested = transform.take("nested").lower() == "true"
    _add_metadata(transform.shape, kafka_metadata(prefix, is_nested, (name, value), transform.draft))
    _note_router(transform, prefix)
    if name and not is_nested:
        _add_constant(transform, f"{prefix}_{name}", value)


def _json_to_map(transform: Transform) -> None:
    transform.shape.settings["value"] = {"format": "json"}
    transform.lose(
        "objects in the value become structs", "declare such a column as `map<string,string>` under `columns`"
    )


def _debezium(transform: Transform) -> None:
    transform.shape.settings |= {"envelope": "debezium", "changelog": True}
    transform.shape.target = transform.take("cdc.target.pattern", "{db}.{table}")
    transform.lose(f"`_cdc`: {_NO_STRUCT}", "read `_op`, `_source_ts` and the columns of `metadata` instead")


def _mongodb(transform: Transform) -> None:
    transform.shape.settings |= {"envelope": "debezium", "changelog": True}


def _dms(transform: Transform) -> None:
    transform.shape.settings |= {"envelope": "dms", "changelog": True}
    transform.lose(f"`_cdc`: {_NO_STRUCT}", "read `_op` and the columns of `metadata` instead")


def _unwrap(transform: Transform) -> None:
    transform.shape.settings["envelope"] = "debezium"
    deletes = transform.take("delete.tombstone.handling.mode") or transform.take("delete.handling.mode", "drop")
    transform.used.add("delete.handling.mode")
    if deletes.startswith("rewrite"):
        transform.shape.settings["changelog"] = True
        transform.lose(
            "`__deleted` becomes the column `_op`, which is d for a delete",
            "read `_op`",
            "delete.tombstone.handling.mode",
        )
    prefix = transform.take("add.fields.prefix", "__")
    for name in transform.take_list("add.fields"):
        piece, _, alias = name.partition(":")
        if piece in _UNWRAPPED:
            transform.shape.metadata[prefix + (alias or piece.replace(".", "_"))] = of_change(_UNWRAPPED[piece])
        else:
            transform.lose(
                f"`metadata` has no {piece}", "leave it out, or keep the envelope's field with a `select`", "add.fields"
            )


def _outbox(transform: Transform) -> None:
    transform.shape.settings["envelope"] = "outbox"


_TRANSFORMS: Mapping[str, Callable[[Transform], None]] = {
    "ReplaceField": _replace_field,
    "Cast": _cast,
    "InsertField": _insert_field,
    "MaskField": _mask_field,
    "Flatten": _flatten,
    "TimestampConverter": _convert_timestamp,
    "HeaderFrom": _header_from,
    "ValueToKey": _value_to_key,
    "ExtractField": _extract_field,
    "HoistField": _hoist_field,
    "CopyValue": _copy_value,
    "KafkaMetadataTransform": _kafka_metadata,
    "JsonToMapTransform": _json_to_map,
    "DebeziumTransform": _debezium,
    "MongoDebeziumTransform": _mongodb,
    "DmsTransform": _dms,
    "ExtractNewRecordState": _unwrap,
    "ExtractNewDocumentState": _unwrap,
    "EventRouter": _outbox,
    **dict.fromkeys(("RegexRouter", "TimestampRouter"), _route),
    **dict.fromkeys(("SetSchemaMetadata", "DropHeaders", "InsertHeader"), _ignored),
}


def matches(field: str, pattern: str) -> str:
    """Returns the condition for values that a regular expression matches whole, without one where that can be."""
    if re.fullmatch(r"[\w|-]+", pattern):
        words = [quoted(word) for word in pattern.split("|")]
        return f"{field} = {words[0]}" if len(words) == 1 else f"{field} in ({', '.join(words)})"
    if re.fullmatch(r"(?:[\w-]|\\\.|\.\*)+", pattern):
        texts = [part.replace("\\.", ".").replace("_", "\\_") for part in pattern.split(".*")]
        return f"{field} like {quoted('%'.join(texts))}"
    return f"{field} rlike {quoted(f'^(?:{pattern})$')}"
