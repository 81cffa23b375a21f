"""The packages beside the core that are released with it: what each adds, to say what to install where one is missing.

They use the same entry points as any other package, and the core imports none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

from frazil.errors import SpecError


def _module_of(name: str) -> str:
    return f"frazil_{name}"


@dataclass(frozen=True)
class Extra:
    """One package: the distribution `frazil-NAME` with the import package `frazil_NAME`."""

    #: As in `frazil[NAME]`.
    name: str
    #: The names that it adds, by group of entry points.
    added: Mapping[str, tuple[str, ...]]
    #: The distributions that its code imports in tasks, besides those that the core's does.
    task_requirements: tuple[str, ...] = ()
    #: Those that it imports in tasks where they are installed here, and a pipeline uses it.
    task_options: tuple[str, ...] = ()
    #: Variables of the environment that ask for it, each with the variable that switches it off with the word `true`.
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def distribution(self) -> str:
        """The name of the distribution."""
        return f"frazil-{self.name}"

    @property
    def module(self) -> str:
        """The name of the import package."""
        return _module_of(self.name)


_IMPORTS = ("auto-cdc", "automq", "debezium-server", "flink-cdc", "flink-sql", "kafka-connect", "tableflow")
EXTRAS = (
    Extra(
        "blobs",
        {
            "frazil.commands": ("blobs.demo", "blobs.verify"),
            "frazil.maintenance_actions": ("blobs_compact", "blobs_index", "blobs_sweep"),
            "frazil.modules": ("blobs",),
            "frazil.stages": ("blobs",),
        },
        task_options=("onnxruntime", "pillow", "tinytag"),
    ),
    Extra("cdc", {"frazil.envelopes": ("canal", "cloudevents", "dms", "maxwell", "outbox")}),
    Extra("cluster", {"frazil.clusters": ("spark",)}),
    Extra("console", {"frazil.pages": ("console",)}),
    Extra(
        "deadletters",
        {"frazil.commands": ("dead-letters.drop", "dead-letters.list", "dead-letters.replay", "dead-letters.show")},
    ),
    Extra("demo", {"frazil.commands": ("demo",)}),
    Extra("expect", {"frazil.table_stages": ("expect",)}),
    Extra("ha", {"frazil.elections": ("kafka", "kubernetes", "postgres")}),
    Extra("hdfs", {"frazil.stores": ("hdfs",)}, task_requirements=("hdfs-native",)),
    Extra(
        "http",
        {
            "frazil.commands": ("pause", "reset", "resume", "stand-down"),
            "frazil.observers": ("http",),
        },
    ),
    Extra("jsonschema", {"frazil.messages": ("json_schema",)}),
    Extra("lookup", {"frazil.table_keys": ("lookup",)}),
    Extra(
        "migrate",
        {
            "frazil.commands": (
                "adopt", "release", *(f"import.{tool}" for tool in _IMPORTS), "topic.set", "topic.show", "topic.unset",
            )
        },
    ),
    Extra("protect", {"frazil.table_stages": ("protect",)}),
    Extra("protobuf", {"frazil.messages": ("protobuf",)}, task_requirements=("protobuf",)),
    Extra("publish", {"frazil.commands": ("publish", "watermark"), "frazil.observers": ("publish",)}),
    Extra("registry", {"frazil.registries": ("confluent",)}),
    Extra("replay", {"frazil.commands": ("replay",)}),
    Extra("start", {"frazil.commands": ("init", "size")}),
    Extra("state", {"frazil.table_kinds": ("dedupe", "history", "merge")}),
    Extra(
        "telemetry",
        {"frazil.observers": ("telemetry",)},
        variables={
            "OTEL_EXPORTER_OTLP_ENDPOINT": "OTEL_SDK_DISABLED",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "OTEL_SDK_DISABLED",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "OTEL_SDK_DISABLED",
            "OPENLINEAGE_URL": "OPENLINEAGE_DISABLED",
        },
    ),
    Extra("testing", {"frazil.commands": ("test", "try")}),
    Extra("transactions", {"frazil.table_keys": ("atomic",)}),
    Extra(
        "verify",
        {
            "frazil.commands": ("repair", "verify"),
            "frazil.methods": ("verify",),
            "frazil.observers": ("verify",),
        },
    ),
)  # fmt: skip
"""Every extra with a package of its own."""


def is_installed(name: str) -> bool:
    """Returns whether the extra of this name can be imported here."""
    return find_spec(_module_of(name)) is not None


def installed_extras() -> list[Extra]:
    """Returns the extras that can be imported here."""
    return [extra for extra in EXTRAS if is_installed(extra.name)]


def not_installed(name: str, what: str) -> SpecError:
    """Returns the error where an extra is needed that is not installed. what: what needs it, in words."""
    remedy = f"install `frazil[{name}]` with pip from where Frazil was installed"
    return SpecError(f"{what} is in the package frazil-{name}, which is not installed", remedy=remedy)


def unread_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, SpecError]]:
    """Yields each variable of the environment that asks for an extra which is not installed, with the error."""
    for extra in EXTRAS:
        for variable, switch in extra.variables.items():
            is_off = environment.get(switch, "").strip().lower() == "true"
            if environment.get(variable) and not is_off and not is_installed(extra.name):
                yield variable, not_installed(extra.name, f"what reads `{variable}`")


def names_of_extras(group: str) -> tuple[str, ...]:
    """Returns the names that the extras add to a group of entry points, installed or not."""
    return tuple(name for extra in EXTRAS for name in extra.added.get(group, ()))


def missing_extra(group: str, name: str, what: str) -> SpecError | None:
    """Returns the error where a name of a group, which no installed package has, is an extra's; None for other names.
    what: the object in words.
    """
    extra = next((extra for extra in EXTRAS if name in extra.added.get(group, ())), None)
    return None if extra is None else not_installed(extra.name, what)
