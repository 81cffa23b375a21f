"""Confluent Tableflow's settings of topics as a pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from frazil.errors import SpecError
from frazil_migrate.imports.draft import Draft, Imported, Tool, carried, unneeded, unsupported
from frazil_migrate.imports.sources import flat, items, mapping, parse

_RESOURCE = "confluent_tableflow_topic"
_OF_TERRAFORM = {"terraform_version", "planned_values", "lineage"}
_HCL = re.compile(r'^\s*(resource|module|provider|variable)\s+"[^"]*"[^{]*\{', re.MULTILINE)
_FORMS = (
    "give the JSON of Tableflow's API, of `confluent tableflow topic describe -o json`, or of `terraform show -json`"
)
_ON_BAD_RECORD = {"suspend": "stop", "skip": "skip", "log": "dead_letter"}
_STORE = "Tableflow's tables are in Confluent's catalog, and others may only read them"

TABLEFLOW = Tool(
    "tableflow",
    "Confluent Tableflow",
    (
        *carried("the topic and the name of its table", "display_name", "topic_name", "topic"),
        *carried("the namespace of the table's name", "kafka_cluster", "kafka_cluster.id"),
        *carried("`maintenance.snapshots.age`", "retention_ms"),
        *carried("`on_bad_record`", "error_handling.mode", "error_handling", "record_failure_strategy"),
        *carried("`dead_letters.topic`", *(f"error_handling.{place}" for place in ("log_target", "target", "log.target"))),
        *carried("`dead_letters.topic`", "log_target"),
        *carried("`metadata`; `DEFAULT` names are not portable", "metadata_column_naming_scheme"),
        *carried("`mode`", "write_mode", "changelog.mode"),
        *unsupported(
            "only Iceberg tables are written", "leave it out", "table_formats", harmless=("iceberg",)
        ),
        *unsupported("rows do not expire by age", "delete rows by a job of your own", "data_retention_ms"),
        *unsupported("the table is suspended there", "remove it from `tables`", "suspended", harmless=("false",)),
        *unsupported(
            _STORE, "write your own `catalog` with its `warehouse`", "storage", "storage.kind", "storage_type", "byob_aws.*",
            "azure_data_lake_storage_gen_2.*", harmless=("managed",),
        ),
        *unneeded(
            "it names Tableflow's own storage", "bucket_*", "provider_integration_id", "container_name", "storage_*",
            "storage.*", "managed_storage*",
        ),
        *unneeded("it logs in to Confluent's API", "credentials.*"),
        *unneeded("table maintenance compacts", "enable_compaction"),
        *unneeded("write `partition_by` where you want partitions", "enable_partitioning"),
        *unneeded("it names Confluent's cloud", "environment", "environment.*", "kafka_cluster.*", "table_path"),
        *unneeded("it describes the answer of the API", "api_version", "kind", "metadata.*", "status.*", "cleanup.policy"),
        *unneeded("it describes the state", "phase", "error_message", "catalog_sync_status*", "failing_table_format*"),
    ),
)  # fmt: skip


def import_topics(text: str, brokers: str | None) -> Imported:
    """Returns the pipeline file for the settings of a topic, or a list, as the API or `confluent … -o json` return them.

    Raises: SpecError where no topic is named, or one twice.
    """
    if _HCL.search(text):
        raise SpecError("the configuration is in Terraform's own language", remedy=_FORMS)
    start = text.lstrip()
    if start.startswith("- "):
        text = f"data:\n{text}"
    elif start.startswith("["):
        text = f'{{"data": {text}}}'
    settings = parse(text)  # A list is what `confluent … list` prints.
    resources = list(_resources(settings))
    if not resources and settings.keys() & _OF_TERRAFORM:
        raise SpecError(f"the configuration has no resource `{_RESOURCE}`", remedy="give the state that has one")
    topics = [_plain(mapping(topic)) for topic in resources or items(settings.get("data", settings))]
    names = [topic.get("display_name") or topic.get("topic_name") or topic.get("topic") or "" for topic in topics]
    if not all(names):
        raise SpecError("the configuration names no topic", remedy=_FORMS)
    for place, name in enumerate(names):
        if name in names[:place]:
            message = f"the configuration has the topic {name} twice"
            raise SpecError(message, remedy="give each topic once: a pipeline reads one cluster")
    keys = {f"{name}/{key}": value for name, topic in zip(names, topics, strict=True) for key, value in topic.items()}
    draft = Draft(TABLEFLOW, keys)
    draft.notes.append(
        "the values are Avro with a schema in the registry here: write another format where they are not"
    )
    for name in names:
        for key in ("display_name", "topic_name", "topic"):
            draft.take(f"{name}/{key}")
        cluster = draft.take(f"{name}/kafka_cluster.id") or draft.take(f"{name}/kafka_cluster") or "default"
        table = f"{cluster}.{name.replace('.', '_')}"
        settings = _settings(draft, name)
        if table in draft.document.get("tables", {}):
            draft.lose(name, f"another topic has the table `{table}`", "write a table of another name for it")
        else:
            draft.put(settings, "tables", table)
        if "." in name:
            reason = f"Tableflow's table has dots in its name, which divide namespaces here: the table is `{table}`"
            draft.lose(name, reason, "name it otherwise under `tables` if you like")
    return draft.finish(brokers)


def _resources(shown: object) -> Iterator[dict[str, Any]]:
    """Yields the topics in what Terraform shows of a state or of a plan, or in the file of a state."""
    if isinstance(shown, dict) and shown.get("type") == _RESOURCE:
        instances = [
            instance.get("attributes") for instance in items(shown.get("instances")) if isinstance(instance, dict)
        ]
        yield from (attributes for attributes in (shown.get("values"), *instances) if isinstance(attributes, dict))
    elif isinstance(shown, dict):
        yield from (resource for part in shown.values() for resource in _resources(part))
    elif isinstance(shown, list):
        yield from (resource for part in shown for resource in _resources(part))


def _plain(topic: dict[str, Any]) -> dict[str, str]:
    """Returns the settings without the sections around them, with underscores in their names."""
    settings = {}
    blocks = {key: _block(value) for key, value in topic.items()}
    for key, value in flat(blocks).items():
        plain = key.removeprefix("spec.").removeprefix("config.").replace("-", "_").strip()
        settings[plain] = value
    return settings


def _block(value: object) -> object:
    """Returns the block of a list of one, as Terraform prints it; None of an empty one."""
    return (
        next(iter(value), None)
        if isinstance(value, list) and not any(isinstance(element, str) for element in value)
        else value
    )


def _settings(draft: Draft, topic: str) -> dict[str, Any]:
    def take(*keys: str) -> str:
        return next(filter(None, [draft.take(f"{topic}/{key}") for key in keys]), "").lower()

    settings: dict[str, Any] = {"topic": topic, "value": {"format": "avro"}}
    mode = take("error_handling.mode", "error_handling", "record_failure_strategy")
    settings["on_bad_record"] = _ON_BAD_RECORD.get(mode)
    if mode and mode not in _ON_BAD_RECORD:
        draft.lose(f"{topic}/error_handling.mode", f"`{mode}` is unknown", "write `on_bad_record`")
    places = ("error_handling.log_target", "error_handling.target", "error_handling.log.target", "log_target")
    targets = [draft.take(f"{topic}/{key}") for key in places]
    if mode == "log":
        settings["dead_letters"] = {"topic": next(filter(None, targets), "error_log")}
    if retention := draft.take_duration(f"{topic}/retention_ms"):
        settings["maintenance"] = {"snapshots": {"age": retention}}
    scheme, changes = take("metadata_column_naming_scheme"), take("write_mode", "changelog.mode")
    if scheme:
        prefix = "cflt_metadata_" if scheme == "portable" else "$$"
        settings["metadata"] = {name: f"{prefix}{name}" for name in ("topic", "partition", "offset")}
        draft.lose(f"{topic}/leader_epoch", "there is no leader epoch", "leave the column out")
    if changes.startswith("upsert"):
        settings |= {"mode": "upsert", "key": {"format": "avro"}}
    if changes not in ("", "append", "upsert"):
        draft.lose(
            f"{topic}/write_mode", f"`{changes}` is not a mode of Frazil", "write `mode: append` or `mode: upsert`"
        )
    return settings
