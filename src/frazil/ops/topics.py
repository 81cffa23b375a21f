"""Topics as the pipeline file names them, compared with those that there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from frazil.ingest.discovery import empty_pattern
from frazil.ingest.table import Table
from frazil.kafka.port import Source
from frazil.spec import PipelineSpec


def refuse_empty_patterns(spec: PipelineSpec, tables: Iterable[Table], source: Source) -> None:
    """Raises a SpecError with file, line and nearest topic for a regular expression that matches nothing."""
    names = set(source.topics(lambda name: not name.startswith("__")))
    declared = [(selector, None) for selector in spec.topics]
    mine = [(selector, table) for table in tables for selector in table.spec.topics]
    for selector, table in (*declared, *mine):
        if selector.pattern is not None and not any(map(selector.matches, names)):
            raise empty_pattern(spec, selector.pattern, table, source)


def nearest_topic(name: str, source: Source) -> str | None:
    """The topic that `name` most probably was meant to be."""
    names = source.topics(lambda topic: not topic.startswith("__"))
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.6)), None)


def missing_topic_remedy(name: str, source: Source) -> str:
    """What to do about a topic that does not exist, or that the broker hides from this client."""
    near = nearest_topic(name, source)
    advice = f"did you mean `{near}`? otherwise " if near else ""
    return f"{advice}create the topic, correct its name, or let this client describe it"
