"""Topics as the pipeline file names them, compared with those that there are."""

from __future__ import annotations

import difflib
from functools import cached_property

from frazil.kafka.port import Source

_MOST_COMPARED = 20


class MissingTopics:
    """What to do about topics that do not exist, or that the broker hides from this client. Kafka is asked once for the
    names that there are, and the first ones alone are compared with them: with thousands of topics each takes a third of a
    second.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left = _MOST_COMPARED

    def remedy(self, name: str) -> str:
        """With the topic that `name` most probably was meant to be; UnavailableError when Kafka does not answer."""
        self._left -= 1
        near = (
            next(iter(difflib.get_close_matches(name, self._names, n=1, cutoff=0.6)), None) if self._left >= 0 else None
        )
        advice = f"did you mean `{near}`? otherwise " if near else ""
        return f"{advice}create the topic, correct its name, or let this client describe it"

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self._source.topics(lambda topic: not topic.startswith("__")))
