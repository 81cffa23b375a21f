"""Names of pipelines, tables and topics; which topics a table or a pipeline reads, and where it begins."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from frazil.errors import SpecError
from frazil.secrets import has_reference
from frazil.spec.syntax.document import Items, Node, Scalar, Section
from frazil.spec.syntax.forms import one_or_several, parsed_text, read_list, read_text, refuse_twice
from frazil.spec.syntax.keys import Form, JsonSchema, describe, whole_number
from frazil.spec.syntax.problems import LABEL, advice

if TYPE_CHECKING:
    from frazil.spec.syntax.reading import Reading

_START_REMEDY = "write earliest, latest, a timestamp such as 2026-01-31T00:00:00Z, or {partition: offset}"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_PLAUSIBLE_MS = 10**11
_LAST_PLAUSIBLE_MS = 10**14
_OWN = re.compile(r"__.*|frazil-.*-(ha|topics)")
_EXPRESSION = re.compile(r"[*+?^$|()\[\]]")
_MAX_PARTITION = 2**31 - 1
_MAX_OFFSET = 2**63 - 1

_SELECTOR: JsonSchema = {"type": "string", "pattern": "^([A-Za-z0-9._-]{1,249}|/.+/)$"}
_OFFSETS: JsonSchema = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"pattern": "^[0-9]+$"},
    "additionalProperties": {"type": "integer", "minimum": 0},
}
_OFFSETS_OF_TOPICS: JsonSchema = {"type": "object", "minProperties": 1, "additionalProperties": _OFFSETS}
START = Form(
    {
        "anyOf": [
            {"enum": ["earliest", "latest"]},
            {"type": "string", "pattern": "^[0-9]{4}-?[0-9]{2}-?[0-9]{2}", "examples": ["2026-01-31T00:00:00Z"]},
            {"type": "integer", "minimum": 0, "description": "Milliseconds since the epoch."},
            {**_OFFSETS, "description": "Partition to first offset, of a table with one topic."},
            {**_OFFSETS_OF_TOPICS, "description": "Topic to partition to first offset."},
        ]
    },
    read=lambda node, _: parse_start(node),
)


class TopicSelector(BaseModel):
    """One topic by its name, or every topic that a regular expression finds.

    A pattern is searched for, not anchored: `/^device-/` and `/device/` mean what they say, and `/device/` also finds
    `my-device-1`. It never selects Kafka's own topics, whose names begin with `__`, and the control topics of Frazil.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    #: The topic's name; None where there is a pattern.
    literal: str | None = None
    #: The regular expression, without slashes; None where there is a name.
    pattern: str | None = None

    def matches(self, topic: str) -> bool:
        """Whether this selects `topic`."""
        if self.pattern is None:
            return topic == self.literal
        return _OWN.fullmatch(topic) is None and re.search(self.pattern, topic) is not None

    @property
    def text(self) -> str:
        """As a pipeline file writes it."""
        return self.literal or f"/{self.pattern}/"


def topic_filter(selectors: Iterable[TopicSelector]) -> Callable[[str], bool]:
    """Returns whether one of the selectors selects a topic, as a function of its name."""
    candidates = list(selectors)
    names = frozenset(selector.literal for selector in candidates)
    patterns = [selector for selector in candidates if selector.pattern is not None]
    return lambda name: name in names or any(selector.matches(name) for selector in patterns)


def select_topics(selectors: Sequence[TopicSelector], topics: Collection[str]) -> list[str]:
    """Returns the topics that one of the selectors selects. Names are looked up: a pipeline may name hundreds of topics,
    again and again.
    """
    if any(selector.pattern is not None for selector in selectors):
        return list(filter(topic_filter(selectors), topics))
    names = dict.fromkeys(selector.literal for selector in selectors)
    return [name for name in names if name is not None and name in topics]


class Start(BaseModel):
    """Where a table without progress begins to read."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["earliest", "latest", "timestamp", "offsets"] = "earliest"
    #: Of the kind `timestamp`: milliseconds since the epoch.
    timestamp_ms: int | None = None
    #: Of the kind `offsets`: topic to partition to the offset that is read first. The topic is None where the file does not
    #: name it, because the table has only one.
    offsets: Mapping[str | None, Mapping[int, int]] = {}


_OWN_NAMES = frozenset(("replaying", "retrying"))
"""What follows the name of a pipeline, with an id behind it, in properties of its dead-letter tables."""


def pipeline_name(text: str) -> str:
    """The name of a pipeline."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text, re.ASCII):
        remedy = "begin with a letter or digit and use letters, digits, dots, underscores and hyphens, at most 100"
        raise SpecError(f"`{text}` is not a name for a pipeline", remedy=remedy)
    own = next((part for part in text.split(".")[1:] if part in _OWN_NAMES), None)
    if own is not None:
        # Its table properties would be those of replays of the pipeline whose name is before it.
        message = f"`{text}` is not a name for a pipeline: `{own}` behind a dot is one of Frazil's own names"
        raise SpecError(message, remedy=f"write `{text.replace(f'.{own}', f'-{own}')}`")
    return text


def namespace_name(text: str, what: str = "namespace") -> str:
    """The name of a namespace: parts joined by dots."""
    if has_reference(text):
        raise SpecError(f"the name of a {what} cannot refer to `{text}`", remedy="write the name itself")
    if not all(re.fullmatch(r"[^\s`'\"/\\]+", part) for part in text.split(".")):
        remedy = "join non-empty parts by dots, without spaces, quotes and slashes"
        raise SpecError(f"`{text}` is not the name of a {what}", remedy=remedy)
    return text


def table_name(text: str) -> str:
    """The name of a table: at least a namespace and a table, joined by dots."""
    if "." not in namespace_name(text, "table"):
        raise SpecError(f"the table `{text}` has no namespace", remedy=f"write `<namespace>.{text}`")
    return text


def parse_topic(text: str) -> TopicSelector:
    """The one topic of that name."""
    if text.startswith("/"):
        raise SpecError("`topic` takes one name", remedy=f"write `topics: {text}` for a regular expression")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text, re.ASCII) or text in (".", ".."):
        remedy = "use letters, digits, dots, underscores and hyphens, at most 249; several topics are a list"
        raise SpecError(f"`{text}` is not a topic's name", remedy=remedy)
    return TopicSelector(literal=text)


def parse_selector(text: str) -> TopicSelector:
    """A topic's name, or a regular expression between slashes."""
    if not text.startswith("/") and _EXPRESSION.search(text):
        remedy = "write a regular expression between slashes, such as `/^device-.*/`"
        raise SpecError(f"`{text}` is not a topic's name", remedy=remedy)
    if not text.startswith("/"):
        return parse_topic(text)
    if len(text) < 3 or not text.endswith("/"):
        raise SpecError(f"`{text}` is not a regular expression between slashes", remedy="write it as `/^device-.*/`")
    try:
        re.compile(text[1:-1])
    except (re.error, RecursionError, OverflowError) as error:
        raise SpecError(f"the regular expression `{text}` is wrong: {error}", remedy="correct the expression") from None
    return TopicSelector(pattern=text[1:-1])


def _read_topic(node: Node, _: Reading) -> TopicSelector:
    if isinstance(node, Items):
        raise SpecError("`topic` takes one name", remedy="write `topics` for several")
    return parse_topic(read_text(node))


def _read_selectors(node: Node, _: Reading) -> tuple[TopicSelector, ...]:
    """The value of `topics`: one selector, or a list of different ones."""
    if isinstance(node, Section):
        read_list(node, read_text)
    empty = SpecError(f"`{LABEL}` is an empty list", remedy="write at least one topic, such as `[a]`")
    selectors = one_or_several(node, lambda item: parse_selector(read_text(item)), empty)
    refuse_twice(selectors, lambda selector: selector.text)
    return selectors


_NAME: JsonSchema = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"}
TOPIC_NAME = parsed_text(_NAME, lambda text: parse_topic(text).literal)
TOPIC = Form(_NAME, read=_read_topic)
SELECTORS = Form(
    {"anyOf": [_SELECTOR, {"type": "array", "items": _SELECTOR, "minItems": 1, "uniqueItems": True}]},
    read=_read_selectors,
)


def parse_start(node: Node) -> Start:
    """The value of `start`."""
    if isinstance(node, Section):
        return _offsets(node)
    if isinstance(node, Items):
        raise SpecError("`start` is a list", remedy=_START_REMEDY)
    if node.kind == "integer":
        return Start(kind="timestamp", timestamp_ms=_epoch_ms(node))
    if node.text == "earliest":
        return Start(kind="earliest")
    if node.text == "latest":
        return Start(kind="latest")
    return Start(kind="timestamp", timestamp_ms=_iso_ms(node))


def check_offset_topics(start: Start, selectors: Iterable[TopicSelector]) -> None:
    """Raises if `start` gives offsets of a topic that the table does not read, or does not say of which topic."""
    chosen = list(selectors)
    if None in start.offsets and (len(chosen) != 1 or chosen[0].literal is None):
        message = "`start` gives offsets without a topic, but the table may read several"
        raise SpecError(message, remedy="write {topic: {partition: offset}}")
    for topic in start.offsets:
        if topic is not None and not any(selector.matches(topic) for selector in chosen):
            remedy = advice(topic, [selector.text for selector in chosen])
            raise SpecError(f"`start` gives offsets of `{topic}`, which the table does not read", remedy=remedy)


def _epoch_ms(scalar: Scalar) -> int:
    number = whole_number(scalar)
    if number is None or not _FIRST_PLAUSIBLE_MS <= number < _LAST_PLAUSIBLE_MS:
        message = f"`start: {scalar.text}` is not a time in milliseconds since the epoch"
        raise SpecError(message, remedy="write milliseconds, 13 digits, or a timestamp such as 2026-01-31T00:00:00Z")
    return number


def _iso_ms(scalar: Scalar) -> int:
    if re.fullmatch(r"[0-9]{12,14}", scalar.text, re.ASCII):
        raise SpecError(f"`start` is the text `{scalar.text}`", remedy=f"write `start: {scalar.text}`, without quotes")
    try:
        moment = datetime.fromisoformat(scalar.text.upper())  # RFC 3339 allows a small t and z.
    except ValueError:
        what = f"`{scalar.text}`" if scalar.text else describe(scalar)
        raise SpecError(f"`start` cannot be {what}", remedy=_START_REMEDY) from None
    if moment.tzinfo is None:
        remedy = f"write `{moment.isoformat()}Z` for UTC, or an offset such as +02:00"
        raise SpecError(f"`start: {scalar.text}` has no time zone", remedy=remedy)
    timestamp_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    if timestamp_ms < 0:
        raise SpecError(f"`start: {scalar.text}` is before 1970", remedy="write `earliest` to read everything")
    return timestamp_ms


def _offsets(section: Section) -> Start:
    by_topic = {key: value for key, value in section.items() if isinstance(value, Section)}
    if by_topic and len(by_topic) == len(section):
        return Start(kind="offsets", offsets={topic: _offsets_of(value) for topic, value in by_topic.items()})
    if by_topic or not section:
        what = "mixes topics and partitions" if by_topic else "is empty"
        raise SpecError(f"`start` {what}", remedy="write {partition: offset}, or {topic: {partition: offset}}")
    return Start(kind="offsets", offsets={None: _offsets_of(section)})


def _offsets_of(section: Section) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for key, value in section.items():
        partition = int(key) if re.fullmatch(r"[0-9]{1,10}", key, re.ASCII) else _MAX_PARTITION + 1
        offset = whole_number(value)
        if partition > _MAX_PARTITION or offset is None or offset > _MAX_OFFSET or partition in offsets:
            message = f"`start` has `{key}`, which is not a partition with its first offset"
            remedy = "write whole numbers once each, without quotes, such as {0: 1200, 1: 1180}"
            raise SpecError(message, remedy=remedy)
        offsets[partition] = offset
    if not offsets:
        raise SpecError("`start` names a topic without partitions", remedy="write {topic: {partition: offset}}")
    return offsets
