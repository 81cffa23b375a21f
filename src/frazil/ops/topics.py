"""Topics as the pipeline file names them, compared with those that there are."""

from __future__ import annotations

import difflib

from frazil.kafka.port import Source


def nearest_topic(name: str, source: Source) -> str | None:
    """The topic that `name` most probably was meant to be."""
    names = source.topics(lambda topic: not topic.startswith("__"))
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.6)), None)


def missing_topic_remedy(name: str, source: Source) -> str:
    """What to do about a topic that does not exist, or that the broker hides from this client."""
    near = nearest_topic(name, source)
    advice = f"did you mean `{near}`? otherwise " if near else ""
    return f"{advice}create the topic, correct its name, or let this client describe it"
