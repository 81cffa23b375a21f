"""What a pipeline and Kafka's topics ask of each other: missing topics, and tables that topics ask for.

Missing are topics, and regular expressions of the pipeline file, for which Kafka has none. Topics ask by keys of their
own (`kafka.topics_from`), which change while the pipeline runs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Iterator

import structlog

from frazil.errors import SpecError
from frazil.ingest.failures import describe_error
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Source, TopicDescription
from frazil.spec import PipelineSpec, TableSpec, TopicSelector
from frazil.spec.syntax.document import line_of
from frazil.spec.syntax.problems import place
from frazil.spec.topic_keys import ENABLE, PREFIX, is_enabled, read_topic_table, table_of

log = structlog.get_logger("frazil")


def missing_topics(tables: Iterable[Table]) -> list[tuple[Table, str]]:
    """Returns topics that tables name and Kafka does not have, with their tables."""
    return [
        (table, selector.literal)
        for table in tables
        for selector in table.spec.source.topics
        if selector.literal is not None and selector.literal not in table.offsets.topics
    ]


def refuse_empty_patterns(spec: PipelineSpec, source: Source) -> None:
    """Raises a SpecError with file, line and nearest topic for a regular expression that matches no topic."""
    for error in empty_patterns(spec, source):
        raise error


def tolerate_empty_patterns(spec: PipelineSpec, source: Source) -> list[SpecError]:
    """Returns a SpecError for each regular expression that matches no topic yet; the run continues with the other
    topics.

    Raises: SpecError when no topic is named and no expression matches one.
    """
    errors = empty_patterns(spec, source)
    if errors and len(errors) == len(_selectors(spec)):
        raise errors[0]
    return errors


def empty_patterns(spec: PipelineSpec, source: Source) -> list[SpecError]:
    """Returns a SpecError with file, line and nearest topic for each regular expression that matches no topic."""
    patterns = [selector for selector in _selectors(spec) if selector.pattern is not None]
    if not patterns:
        return []
    names = source.topics(lambda name: any(selector.matches(name) for selector in patterns))
    return [
        _empty_pattern(spec, selector.pattern or "", source)
        for selector in patterns
        if not any(map(selector.matches, names))
    ]


def _selectors(spec: PipelineSpec) -> list[TopicSelector]:
    """Returns all selectors of topics in the pipeline file."""
    return [*spec.new_topics, *(selector for table in spec.tables for selector in table.source.topics)]


def _empty_pattern(spec: PipelineSpec, pattern: str, source: Source) -> SpecError:
    topics = sorted(source.topics(lambda name: not name.startswith("__")))
    plain = re.sub(r"[^A-Za-z0-9._-]", "", pattern.replace(".*", ""))
    near = difflib.get_close_matches(plain, topics, n=1, cutoff=0.3)
    hint = (
        f"the nearest topic is `{near[0]}`"
        if near
        else "there are no topics"
        if not topics
        else f"topics are {', '.join(topics[:5])}"
    )
    return SpecError(
        f"the regular expression /{pattern}/ matches no topic",
        remedy=f"correct the expression; {hint}",
        where=place(spec.file.path, line_of(spec.file.path, f"/{pattern}/")),
    )


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
                f"its topic {topic_name} no longer requests this table: {ENABLE} is not true, or the topic is gone",
                f"set {ENABLE}=true on the topic to continue; the table stays as it is",
                f"topic {topic_name}",
            )
        self._topics = asking

    def _asking(
        self, topics: Iterable[TopicDescription], taken: Container[str]
    ) -> Iterator[tuple[str, TopicDescription]]:
        owners: dict[str, str] = {}
        for topic in sorted(filter(lambda candidate: is_enabled(candidate.keys), topics), key=self._precedence):
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
        for difference in differences:
            log.warning(
                "topic_key_ignored",
                topic=topic.name,
                key=PREFIX + difference.key,
                reason=difference.reason,
                remedy=difference.remedy,
            )
