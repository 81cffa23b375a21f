"""Columns that settings name and the file itself keeps away: reported before anything is read."""

from __future__ import annotations

import pytest

from tests.unit.spec.pipeline_file import HEAD, Load, Refuse, with_table


@pytest.mark.parametrize(
    ("settings", "message", "remedy"),
    [
        ("partition_by: [day(_timestamp)]", "`partition_by` has `day(_timestamp)`, and there is no", "[timestamp]"),
        ("sort_by: [_offset desc]", "`sort_by` has `_offset`, and there is no column `_offset`", "[offset]"),
        (
            "mode: upsert, key_columns: [id], order_by: _offset",
            "`order_by` has `_offset`, and there is no column `_offset`: `metadata` does not ask for it",
            "[offset]",
        ),
        ("mode: upsert, key_columns: [_topic, id]", "`key_columns` has `_topic`, and there is no", "[topic]"),
        ("metadata: {timestamp: at}, partition_by: hour(_timestamp)", "`partition_by` has `hour(_time", "[timestamp]"),
    ],
)
def test_a_column_of_record_metadata_must_be_asked_for(
    refuse: Refuse, settings: str, message: str, remedy: str
) -> None:
    error = refuse(with_table(settings))
    assert error.message.startswith(message)
    assert (error.remedy, error.where) == (f"write `metadata: {remedy}`", "pipeline.yaml:4")


@pytest.mark.parametrize(
    "settings",
    [
        "metadata: [timestamp], partition_by: [day(_timestamp)]",
        "metadata: {timestamp: at}, partition_by: [day(at)]",
        "columns: {_timestamp: timestamptz}, partition_by: [day(_timestamp)]",
        "mode: upsert, partition_by: ['truncate(_key, 2)']",
        "mode: upsert, key_columns: [id], deletes: soft, sort_by: [_deleted_at]",
        "mode: upsert, envelope: debezium, metadata: [source_order], order_by: _source_order",
    ],
)
def test_one_that_is_there_may_be_named(load: Load, settings: str) -> None:
    assert load(with_table(settings)).tables


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("key_columns: [id], exclude: [id]", "`exclude` leaves out `id`, which `key_columns` asks for"),
        ("key_columns: [o.id], exclude: [o]", "`exclude` leaves out `o.id`, which `key_columns` asks for"),
        ("key_columns: [id], order_by: at, exclude: [at]", "`exclude` leaves out `at`, which `order_by` asks for"),
        ("key_columns: [id], include: [name]", "`include` does not take `id`, which `key_columns` asks for"),
        ("key_columns: [id, r], order_by: at, include: [id, r]", "`include` does not take `at`, which `order_by`"),
        (
            "key_columns: [id], columns: {v: long}, unknown_fields: drop",
            "`key_columns` has `id`, which `columns` does not",
        ),
        ("key_columns: [v], order_by: at, columns: {v: long}, unknown_fields: rescue", "`order_by` has `at`, which"),
    ],
)
def test_a_key_or_an_order_that_is_left_out_would_make_every_record_a_bad_one(
    refuse: Refuse, settings: str, message: str
) -> None:
    error = refuse(with_table(f"mode: upsert, {settings}"))
    assert (error.message[: len(message)], error.where) == (message, "pipeline.yaml:4")


@pytest.mark.parametrize(
    "settings",
    [
        "key_columns: [o.id], exclude: [o.x]",
        "key_columns: [o.id], include: [o.id, v]",
        "key_columns: [id], include: [id, v], metadata: [offset], order_by: _offset",
        "key_columns: [id], include: [v], columns: {id: {type: long, field: after.id}}",
        "key_columns: [id], include: [v], columns: {id: long}",
        "key_columns: [id, r], include: [id], columns: {r: {type: string, constant: eu}}",
        "key_columns: [user_id], flatten: true, include: [user]",
        "key_columns: [o.id, v], columns: {v: long, o: 'struct<id: long>'}, unknown_fields: drop",
        "key_columns: [v], columns: {v: long}, unknown_fields: drop, metadata: {offset: at}, order_by: at",
    ],
)
def test_a_key_that_is_taken_is_well(load: Load, settings: str) -> None:
    assert load(with_table(f"mode: upsert, {settings}")).tables


def test_a_column_that_one_table_keeps_away_from_the_defaults_is_reported_with_the_table(refuse: Refuse) -> None:
    defaults = (
        "defaults:\n  mode: upsert\n  envelope: debezium\n  metadata: [source_order]\n  order_by: _source_order\n"
    )
    error = refuse(f"{HEAD}{defaults}tables: {{a.b: {{topic: c}}, a.d: {{topic: c, metadata: [offset]}}}}\n")
    assert error.message == (
        "`order_by` has `_source_order`, and there is no column `_source_order`: `metadata` does not ask for it: "
        "table `a.d` has it from `defaults`"
    )
    assert error.where == "pipeline.yaml:7"


def test_defaults_are_looked_at_too(refuse: Refuse) -> None:
    text = f"{HEAD}namespace: n\ntopics: [a]\ndefaults: {{mode: upsert, key_columns: [id], exclude: [id]}}\n"
    assert refuse(text).message == "`exclude` leaves out `id`, which `key_columns` asks for"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (with_table("columns: {r: {type: string, constant: '${file:R}'}}"), "the constant of `columns.r` refers to a"),
        (f"{HEAD}namespace: '${{file:NS}}'\ntopics: [a]\n", "the name of a namespace cannot refer to `${file:NS}`"),
        (f"{HEAD}tables:\n  '${{env:NS}}.t': {{topic: a}}\n", "the name of a table cannot refer to `${env:NS}.t`"),
    ],
)
def test_what_would_not_be_what_is_written_is_refused(refuse: Refuse, text: str, message: str) -> None:
    assert refuse(text).message.startswith(message)


@pytest.mark.parametrize(
    "settings",
    [
        "columns: {at: timestamptz, id: long}, partition_by: [day(AT)], sort_by: [ID], unknown_fields: drop",
        "columns: {o: 'struct<id: long>'}, partition_by: ['bucket(O.Id, 4)'], unknown_fields: drop",
        "mode: upsert, key_columns: [ID], order_by: AT, columns: {at: long, id: long}, unknown_fields: drop",
        "mode: upsert, key_columns: [ID], include: [id]",
        "metadata: [timestamp], partition_by: [day(_TIMESTAMP)]",
    ],
)
def test_names_are_found_in_any_case(load: Load, settings: str) -> None:
    assert load(with_table(settings)).tables


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("columns: {id: long}, partition_by: [day(ID)]", "`day(ID)`: the column `ID` has the type long"),
        ("partition_by: [region, Region]", "`Region` occurs twice in `partition_by`"),
        ("partition_by: [day(_Timestamp)]", "`partition_by` has `day(_Timestamp)`, and there is no column"),
    ],
)
def test_unknown_columns_of_settings_are_mistakes(refuse: Refuse, settings: str, message: str) -> None:
    assert refuse(with_table(settings)).message.startswith(message)
