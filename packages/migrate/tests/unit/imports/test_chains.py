"""Chains of Kafka Connect's transforms, whose order and names are not those of Frazil's steps."""

from __future__ import annotations

from typing import Any

import pytest

from frazil_migrate.imports.draft import Imported
from packages.migrate.tests.unit.imports.test_details import only_table, sink
from packages.migrate.tests.unit.imports.test_forms import dynamic
from packages.migrate.tests.unit.imports.test_imports import imported, reasons

_KAFKA = "org.apache.kafka.connect.transforms."
Step = tuple[str, dict[str, str]]
RENAME: Step = ("ReplaceField$Value", {"renames": "a:b"})
ROUTER: Step = ("RegexRouter", {"regex": "(.*)", "replacement": "x_$1"})


def chain(*steps: Step, **settings: str) -> dict[str, str]:
    """The settings of transforms t0, t1, …"""
    written = {"transforms": ",".join(f"t{number}" for number in range(len(steps))), **settings}
    for number, (kind, options) in enumerate(steps):
        written[f"transforms.t{number}.type"] = kind if "." in kind else _KAFKA + kind
        written |= {f"transforms.t{number}.{name}": value for name, value in options.items()}
    return written


def table(*steps: Step) -> dict[str, Any]:
    return only_table("kafka-connect", sink(**chain(*steps)))


def found(*steps: Step, **settings: str) -> Imported:
    return imported("kafka-connect", sink(**chain(*steps, **settings)))


def test_a_field_that_is_renamed_twice_has_its_last_name() -> None:
    assert table(RENAME, ("ReplaceField$Value", {"renames": "b:c"}))["rename"] == {"a": "c"}
    assert found(RENAME, ("ReplaceField$Value", {"renames": "b:c"})).losses == ()
    assert table(("ReplaceField$Value", {"renames": "a:b,b:a"}))["rename"] == {"a": "b", "b": "a"}


def test_a_step_between_two_names_of_a_field_is_reported() -> None:
    """Frazil would cast a field that has its last name already."""
    steps = (RENAME, ("Cast$Value", {"spec": "b:int64"}), ("ReplaceField$Value", {"renames": "b:c"}))
    assert "order of steps" in reasons(found(*steps))["transforms.t2"]


def test_a_name_that_is_free_only_after_a_drop_is_reported() -> None:
    """Frazil renames first: two fields would have the name."""
    assert "transforms.t1" in reasons(found(("ReplaceField$Value", {"exclude": "b"}), RENAME))


@pytest.mark.parametrize(
    ("step", "key"),
    [
        (("TimestampConverter$Value", {"field": "b", "target.type": "Timestamp"}), "columns"),
        (("MaskField$Value", {"fields": "b", "replacement": "*"}), "protect"),
    ],
)
def test_settings_of_fields_name_them_as_records_do(step: Step, key: str) -> None:
    assert list(table(RENAME, step)[key]) == ["a"]


@pytest.mark.parametrize(
    "before",
    [
        ("ExtractField$Value", {"field": "payload"}),
        ("InsertField$Value", {"static.field": "card", "static.value": "x"}),
    ],
)
def test_a_mask_of_a_field_that_a_transform_makes_is_reported(before: Step) -> None:
    """`protect` finds the fields of records alone: the value would stay as it is."""
    losses = found(before, ("MaskField$Value", {"fields": "card", "replacement": "*"})).losses
    assert "MaskField: a transform that precedes makes card" in [loss.reason for loss in losses]


def test_a_dot_in_a_name_does_not_lead_into_a_struct() -> None:
    fields = table(
        ("ReplaceField$Value", {"exclude": "p.q", "renames": "r.s:t"}), ("Cast$Value", {"spec": "u.v:int64"})
    )
    assert fields["drop_fields"] == ['["p.q"]']
    assert fields["rename"] == {'["r.s"]': "t"}
    assert fields["cast"] == {'["u.v"]': "long"}
    masked = table(("MaskField$Value", {"fields": "p.q", "replacement": "*"}))
    assert list(masked["protect"]) == ['["p.q"]']


@pytest.mark.parametrize("value", ["_topic", "op", "source.ts_ms", "source.country"])
def test_a_constant_that_is_called_like_metadata_stays_a_constant(value: str) -> None:
    fields = table(("InsertField$Value", {"static.field": "kind", "static.value": value}))
    assert fields["select"] == f"select *, '{value}' as kind from records"
    assert "add_fields" not in fields


@pytest.mark.parametrize(
    "step",
    [
        ("InsertField$Value", {"topic.field": "source"}),
        ("org.apache.iceberg.connect.transforms.KafkaMetadataTransform", {}),
    ],
)
def test_the_name_of_a_topic_that_is_renamed_before_is_reported(step: Step) -> None:
    assert "`transforms.t0` renames the topic" in reasons(found(ROUTER, step))["transforms.t1"]
    assert found(step, ROUTER).losses == ()


def test_routes_by_a_topic_that_is_renamed_before_are_reported() -> None:
    steps = chain(ROUTER, ("InsertField$Value", {"topic.field": "source"}))
    text = dynamic(**steps, **{"iceberg.tables.route-field": "source"})
    assert "renames the topics" in reasons(imported("kafka-connect", text))["iceberg.tables.route-field"]
    regex = "iceberg.table.shop.orders.route-regex"
    text = sink(**steps, **{"iceberg.tables.route-field": "source", regex: "x_orders"})
    assert "renames the topics" in reasons(imported("kafka-connect", text))[regex]


def test_classes_of_others_with_a_known_name_are_not_taken_for_it() -> None:
    lost = found(("com.example.ReplaceField$Value", {"exclude": "x"}))
    assert reasons(lost)["transforms.t0"].startswith("com.example.ReplaceField$Value: it is a class that")
    assert "drop_fields" not in table(("com.example.ReplaceField$Value", {"exclude": "x"}))
    converter = {"value.converter": "io.apicurio.registry.utils.converter.AvroConverter"}
    unknown = imported("kafka-connect", sink(**converter))
    assert "value.converter" in reasons(unknown)
    assert not [note for note in unknown.notes if "worker's" in note]


def test_a_predicate_that_is_not_declared_and_a_transform_without_a_type_are_reported() -> None:
    """Kafka Connect refuses both; a step for every record would be another meaning."""
    lost = found(("ReplaceField$Value", {"exclude": "x", "predicate": "none"}))
    assert reasons(lost)["transforms.t0"] == "ReplaceField: no predicate is `none`"
    assert "drop_fields" not in table(("ReplaceField$Value", {"exclude": "x", "predicate": "none"}))
    untyped = imported("kafka-connect", sink(transforms="t0", **{"transforms.t0.exclude": "x"}))
    assert reasons(untyped)["transforms.t0"] == "it has no type"


def test_an_unknown_unit_of_a_time_is_reported() -> None:
    step = ("TimestampConverter$Value", {"field": "a", "target.type": "Timestamp", "unix.precision": "millis"})
    assert reasons(found(step))["transforms.t0.unix.precision"] == "TimestampConverter: `millis` is not a unit"
