"""The cases of the corpus: which topics are read under which settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from tests.corpus.changes import canal, debezium, dms, documents, maxwell, operations
from tests.corpus.orders import orders
from tests.corpus.others import JUDGED_FORMS, events, judged, many_columns, odd_values, plain
from tests.corpus.settings import APPEND, CHANGES, EVENTS, ODD, PLAIN, SOURCED, WIDE, Setting
from tests.corpus.topics import Stream

_JSON_ALONE = ("numbers", "doubles")
_WITH_TYPES = (
    "plain", "declared", "drop", "rescue_unknown", "rescue", "narrow", "add_only", "freeze", "freeze_rescue",
    "flatten_snake", "exclude", "fields", "coerce", "zones", "json_keys", "partitioned", "protect", "protect_rescue",
    "steps", "select", "select_all", "expect", "lookup", "upsert", "upsert_typed", "upsert_soft", "upsert_select",
    "route", "two_tables",
)  # fmt: skip
_FRAMINGS = ("plain", "narrow", "rescue", "upsert")
_FORMS_OF_CHANGES = (
    "append_typed", "append_steps", "log", "log_query", "upsert", "upsert_keyed", "upsert_flat", "upsert_narrow",
    "upsert_freeze", "soft", "upsert_where", "upsert_select", "upsert_expect", "upsert_protect",
    "upsert_source_order", "route_table", "two_tables",
)  # fmt: skip
_FEW_CHANGES = (
    "append", "append_typed", "log", "log_query", "upsert", "upsert_keyed", "upsert_drop", "soft", "upsert_ordered",
    "upsert_select", "upsert_expect", "upsert_protect", "skip",
)  # fmt: skip
_OF_DOCUMENTS = (
    "append", "append_steps", "log", "upsert", "upsert_flat", "upsert_format_2", "soft", "upsert_where", "upsert_lookup",
    "log_protect", "skip", "two_tables",
)  # fmt: skip
_OF_ONE_PARTITION = (*_FORMS_OF_CHANGES, "atomic", "atomic_log", "upsert_dead_tombstones")
_SEEDS = 12


@dataclass(frozen=True)
class Topic:
    """A stream with the settings under which it is read."""

    stream: Callable[[], Stream]
    settings: tuple[Setting, ...]


def _chosen(settings: Sequence[Setting], names: Sequence[str]) -> tuple[Setting, ...]:
    return tuple(one for one in settings if one.name in names)


def _topics() -> dict[str, Topic]:
    every_change = (*CHANGES, *SOURCED)
    typed = tuple(one for one in APPEND if one.name not in _JSON_ALONE)
    topics = {
        "json": Topic(partial(orders, "json"), APPEND),
        "connect": Topic(partial(orders, "connect"), _chosen(APPEND, _WITH_TYPES)),
        "json_schema": Topic(partial(orders, "json_schema"), _chosen(APPEND, _WITH_TYPES)),
        "avro": Topic(partial(orders, "avro"), typed),
        "protobuf": Topic(partial(orders, "protobuf"), _chosen(APPEND, _WITH_TYPES)),
        "avro_apicurio": Topic(partial(orders, "apicurio"), _chosen(APPEND, _FRAMINGS)),
        "avro_latest": Topic(partial(orders, "latest"), _chosen(APPEND, _FRAMINGS)),
        "debezium_json": Topic(partial(debezium, "json"), every_change),
        "debezium_truncates": Topic(
            partial(debezium, "json", truncates=True, partitions=1), _chosen(every_change, _OF_ONE_PARTITION)
        ),
        "maxwell": Topic(maxwell, _chosen(CHANGES, _FEW_CHANGES)),
        "canal": Topic(canal, _chosen(CHANGES, _FEW_CHANGES)),
        "dms": Topic(dms, _chosen(CHANGES, _FEW_CHANGES)),
        "cloudevents": Topic(partial(events, "cloudevents"), EVENTS),
        "outbox": Topic(partial(events, "outbox"), EVENTS),
        "text": Topic(partial(plain, "text"), PLAIN),
        "raw": Topic(partial(plain, "raw"), PLAIN),
        "odd_values": Topic(odd_values, ODD),
        "many_columns": Topic(many_columns, WIDE),
    }
    for form in ("connect", "json_schema", "avro"):
        topics[f"debezium_{form}"] = Topic(partial(debezium, form), _chosen(every_change, _FORMS_OF_CHANGES))
    for form in ("flat_json", "flat_connect", "flat_avro"):
        topics[f"debezium_{form}"] = Topic(partial(debezium, form), _chosen(CHANGES, _FEW_CHANGES))
    for form in ("json", "avro"):
        topics[f"operation_{form}"] = Topic(partial(operations, form), _chosen(CHANGES, _FEW_CHANGES))
        topics[f"mongodb_{form}"] = Topic(partial(documents, form), _chosen(CHANGES, _OF_DOCUMENTS))
    for form in JUDGED_FORMS:
        for seed in range(_SEEDS):
            topics[f"chance_{form}/{seed}"] = Topic(partial(judged, form, 100 + seed), (Setting("chance"),))
    return topics


TOPICS = _topics()
"""By name. What is before a slash names the file with the answers."""
CASES = tuple(f"{name}/{setting.name}" for name, topic in TOPICS.items() for setting in topic.settings)
"""The names of all cases."""
SLICE = (
    "json/freeze_rescue", "json/fields", "json/protect_rescue", "json/steps", "json/expect", "json/route",
    "connect/rescue", "avro/upsert_typed", "json_schema/rescue", "protobuf/rescue",
    "debezium_json/upsert_keyed", "debezium_json/upsert_select", "debezium_truncates/upsert",
    "debezium_flat_json/upsert", "maxwell/upsert", "canal/log",
    "dms/upsert", "operation_avro/upsert", "mongodb_json/upsert", "cloudevents/typed", "outbox/append",
    "text/metadata", "odd_values/declared", "odd_values/rescue", "chance_json/0/chance", "chance_avro/3/chance",
    "chance_debezium/5/chance",
)  # fmt: skip
"""The cases of `make test`."""


def setting_of(case: str) -> tuple[Stream, Setting]:
    """Returns the stream and the setting of a case."""
    name, _, setting = case.rpartition("/")
    return _stream(name), next(one for one in TOPICS[name].settings if one.name == setting)


@cache
def _stream(name: str) -> Stream:
    return TOPICS[name].stream()
