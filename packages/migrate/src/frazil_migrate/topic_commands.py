"""`frazil topic`: the AutoMQ table-topic keys of topics, in the control topic of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from frazil.api.wiring import open_topics, read_spec, topics_for_reading
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.errors import SpecError
from frazil.kafka.control_topic import ControlTopic
from frazil.ops.audit import record_command
from frazil.spec import PipelineSpec
from frazil.spec.syntax.document import line_of
from frazil.spec.syntax.problems import nearest, place
from frazil.spec.topic_keys import PREFIX, read_topic_table
from frazil_migrate.imports.automq import AUTOMQ

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, such as orders.", show_default=False)]
Settings = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY=VALUE", help=f"Keys of AutoMQ with their values: {PREFIX}enable=true.", show_default=False
    ),
]
Keys = Annotated[list[str], typer.Argument(metavar="KEY", help="Keys to remove.", show_default=False)]
OneTopic = Annotated[
    str | None, typer.Argument(metavar="TOPIC", help="Only this topic, such as orders.", show_default=False)
]


def set_keys(output: Output, topic: TopicName, settings: Settings, file: SpecFile = DEFAULT_FILE) -> None:
    """Set AutoMQ table-topic keys on a topic, in addition to its other keys. They are stored in the control topic of
    the pipeline, which is created if it does not exist. A running pipeline follows them within seconds.

    Exit code: 0 when they are stored; 1 when Kafka does not answer or refuses; 2 for a wrong key or value.
    """
    spec = _following(output, file)
    control = _control_topic(spec)
    given = dict(map(_parse, settings))
    keys = control.read(is_there=False).get(topic, {}) | given
    _check(spec, topic, keys)
    record_command(spec, "topic set", topic=topic, keys=given)
    control.write(topic, keys)
    _show(output, {topic: keys})


def unset(output: Output, topic: TopicName, keys: Keys, file: SpecFile = DEFAULT_FILE) -> None:
    """Remove keys that were set by `frazil topic set`; the keys in the topic's own configuration stay.

    Exit code: 0 when they are removed; 1 when Kafka does not answer or refuses; 2 for a key that is not set.
    """
    spec = _following(output, file)
    control = _control_topic(spec)
    keys_set = control.read(is_there=False).get(topic, {})
    for key in keys:
        if key not in keys_set:
            near = nearest(key, keys_set)
            raise SpecError(
                f"`{key}` is not set for topic {topic} in the control topic",
                remedy=f"did you mean `{near}`?" if near else f"see `frazil topic show {topic}`",
            )
    left = {key: value for key, value in keys_set.items() if key not in keys}
    _check(spec, topic, left)
    record_command(spec, "topic unset", topic=topic, keys=keys)
    control.write(topic, left)
    _show(output, {topic: left})


def show(output: Output, topic: OneTopic = None, file: SpecFile = DEFAULT_FILE) -> None:
    """Show the AutoMQ table-topic keys of topics: the keys of their configuration and of the control topic, which take
    precedence.

    Exit code: 0; 1 when Kafka does not answer; 2 when the pipeline file is wrong.
    """
    spec = _following(output, file)
    keys_by_topic = topics_for_reading(spec).topic_keys(spec.control_topic)
    _show(output, {name: keys for name, keys in sorted(keys_by_topic.items()) if keys and topic in (None, name)})


def _following(output: Output, file: SpecFile) -> PipelineSpec:
    spec = read_spec(output, file)
    if not spec.selected.follows_topic_keys:
        raise SpecError(
            "the pipeline does not follow the configuration of topics",
            remedy="write `topics_from: topic_configuration` under `kafka`",
            where=place(spec.file.path, line_of(spec.file.path, "kafka")),
        )
    return spec


def _control_topic(spec: PipelineSpec) -> ControlTopic:
    return ControlTopic(spec.kafka, spec.control_topic, open_topics(spec).ends)


def _parse(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not value:
        raise SpecError(f"`{text}` is not KEY=VALUE", remedy=f"write it as {PREFIX}enable=true")
    if AUTOMQ.find(key) is None:
        near = nearest(key, [automq_key.name for automq_key in AUTOMQ.keys])
        remedy = f"did you mean `{near}`?" if near else f"write a key of AutoMQ's table topics, such as {PREFIX}enable"
        raise SpecError(f"the key `{key}` is unknown", remedy=remedy)
    return key, value


def _check(spec: PipelineSpec, topic: str, keys: Mapping[str, str]) -> None:
    """Raises SpecError for keys that would make no table."""
    read_topic_table(spec, topic, keys)


def _show(output: Output, keys: Mapping[str, Mapping[str, str]]) -> None:
    lines = [
        f"{topic}  {key}={value}" for topic, topic_keys in keys.items() for key, value in sorted(topic_keys.items())
    ]
    output.result({"topics": keys}, "\n".join(lines) or "no keys")
