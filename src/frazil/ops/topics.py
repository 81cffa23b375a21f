"""Topics named in the pipeline file that do not exist."""

from __future__ import annotations

import difflib
from functools import cached_property

from frazil.kafka.port import Source

_MOST_COMPARED = 20


class MissingTopics:
    """Remedies for topics that do not exist, or that the broker hides from this client. Kafka is asked for topic names
    once, and only the first missing topics are compared with them: among thousands of topics a comparison takes a third
    of a second.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left = _MOST_COMPARED

    def remedy(self, name: str) -> str:
        """Returns the remedy, with the topic that `name` most probably means.

        Raises: UnavailableError where Kafka does not answer.
        """
        self._left -= 1
        near = (
            next(iter(difflib.get_close_matches(name, self._names, n=1, cutoff=0.6)), None) if self._left >= 0 else None
        )
        advice = f"did you mean `{near}`? otherwise " if near else ""
        return f"{advice}create the topic, correct its name, or let this client describe it"

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self._source.topics(lambda topic: not topic.startswith("__")))
