"""Tables that topics ask for by keys of their own (`kafka.topics_from`), as the keys change while a pipeline runs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

import structlog

from frazil.errors import SpecError
from frazil.ingest.failures import describe_error
from frazil.kafka.port import TopicDescription
from frazil.spec import PipelineSpec, TableSpec, TopicSelector
from frazil.spec.topic_keys import ENABLE, PREFIX, is_enabled, read_topic_table, table_of

log = structlog.get_logger("frazil")


class TopicTables:
    """What the keys of topics make of tables, as last read."""

    def __init__(self, spec: PipelineSpec) -> None:
        self._spec = spec
        self._topics: dict[str, TopicDescription] = {}
        self._clashes: set[str] = set()
        #: The settings of each table, by name, also of one that is refused.
        self.settings: dict[str, TableSpec] = {}
        #: By table, why its keys make no table now: reason, remedy and place.
        self.refusals: dict[str, tuple[str, str, str]] = {}

    def update(self, topics: Iterable[TopicDescription], taken: Container[str]) -> None:
        """Follows the keys of the topics that exist. taken: names of other tables of the pipeline."""
        asking = dict(self._asking(topics, taken))
        for name, topic in asking.items():
            before = self._topics.get(name)
            if before is None or (before.name, before.keys) != (topic.name, topic.keys):
                self._read(name, topic)
        for name in self._topics.keys() - asking.keys():
            topic_name = self._topics[name].name
            self.refusals[name] = (
                f"its topic {topic_name} no longer asks for this table: {ENABLE} is not true, or the topic is gone",
                f"set {ENABLE}=true on the topic to continue; the table stays as it is",
                f"topic {topic_name}",
            )
        self._topics = asking

    def _asking(
        self, topics: Iterable[TopicDescription], taken: Container[str]
    ) -> Iterator[tuple[str, TopicDescription]]:
        owners: dict[str, str] = {}
        for topic in sorted(filter(lambda one: is_enabled(one.keys), topics), key=self._precedence):
            name = table_of(self._spec, topic.name, topic.keys)
            if name in owners:
                reason = f"the table {name} is that of the topic {owners[name]}"
                remedy = f"give one of them another {PREFIX}namespace, or set {ENABLE}=false"
                self._ignore(topic, reason, remedy)
            elif name not in taken or name in self.settings:
                owners[name] = topic.name
                yield name, topic
            else:
                reason = f"the pipeline file itself makes the table {name}"
                self._ignore(topic, reason, f"remove it from the file, or set {ENABLE}=false")

    def _precedence(self, topic: TopicDescription) -> tuple[bool, bool, str]:
        """Of two topics with one table it stays with the one that has it, or whose own name it has."""
        owner = self._topics.get(table_of(self._spec, topic.name, topic.keys))
        return owner is None or owner.name != topic.name, "." in topic.name, topic.name

    def _ignore(self, topic: TopicDescription, reason: str, remedy: str) -> None:
        if topic.name not in self._clashes:
            self._clashes.add(topic.name)
            log.warning("topic_key_ignored", topic=topic.name, key=ENABLE, reason=reason, remedy=remedy)

    def _read(self, name: str, topic: TopicDescription) -> None:
        try:
            self.settings[name], differences = read_topic_table(self._spec, topic.name, topic.keys)
        except SpecError as error:
            self.refusals[name] = describe_error(error)
            self.settings.setdefault(name, TableSpec(name=name, topics=(TopicSelector(literal=topic.name),)))
            return
        self.refusals.pop(name, None)
        for one in differences:
            log.warning(
                "topic_key_ignored", topic=topic.name, key=PREFIX + one.key, reason=one.reason, remedy=one.remedy
            )
