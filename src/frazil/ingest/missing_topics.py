"""Topics that the pipeline file names, and regular expressions in it, for which Kafka has no topic yet."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from frazil.errors import SpecError
from frazil.ingest.table import Table
from frazil.kafka.port import Source
from frazil.spec import PipelineSpec, TopicSelector
from frazil.spec.document import line_of
from frazil.spec.problems import place


def missing_topics(tables: Iterable[Table]) -> list[tuple[Table, str]]:
    """Returns topics that tables name and Kafka does not have, with their tables."""
    return [
        (table, selector.literal)
        for table in tables
        for selector in table.spec.topics
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
    by_topic = (selector for route in spec.routes if route.is_by_topic for selector in route.topics)
    return [*spec.topics, *by_topic, *(selector for table in spec.tables for selector in table.topics)]


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
        where=place(spec.path, line_of(spec.path, f"/{pattern}/")),
    )
