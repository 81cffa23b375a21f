"""The examples of the transform cookbook."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from docs.scan import ROOT

_PAGES = sorted((ROOT / "docs" / "migrate" / "transforms").glob("[!R]*.md"))
_BLOCK = re.compile(r"^```(yaml|json)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """Some lines of a pipeline file, the records of its topics and the rows of its tables."""

    #: The page and the title above the example.
    place: str
    lines: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]
    rows: Sequence[Mapping[str, Any]]

    @property
    def topic(self) -> str:
        """The topic of records that name none."""
        declared: list[Mapping[str, Any]] = [*self.lines.get("tables", {}).values(), *self.lines.get("routes", ())]
        return str(declared[0].get("topic"))

    @property
    def tables(self) -> dict[str, list[Any]]:
        """The rows by table."""
        found: dict[str, list[Any]] = defaultdict(list)
        first = next(iter(self.lines.get("tables", {})), "")
        for row in self.rows:
            name = next(iter(row))
            if "." in name:
                found[name].append(row[name])
            else:
                found[first].append(row)
        return found


def _examples() -> Iterator[Example]:
    for page in _PAGES:
        for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
            lines: Mapping[str, Any] = {}
            blocks: list[list[Any]] = []
            for language, text in [*_BLOCK.findall(section), ("yaml", "tables: {}")]:
                if language == "json":
                    blocks.append([json.loads(line) for line in text.splitlines()])
                elif text.startswith(("tables:", "routes:")):
                    if lines:
                        yield Example(f"{page.stem}: {section.splitlines()[0]}", lines, *[*blocks, []][:2])
                    lines, blocks = yaml.safe_load(text), []


EXAMPLES = list(_examples())


def produce(servers: str, examples: Sequence[Example]) -> None:
    """Makes the topics of the examples with their records."""
    records = [(record.get("topic", example.topic), record) for example in examples for record in example.records]
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, 1) for topic in {topic for topic, _ in records}]).values():
        made.result(timeout=20)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for topic, record in records:
        is_whole = "value" in record and not record.keys() - {"topic", "key", "headers", "timestamp", "value"}
        whole: Mapping[str, Any] = record if is_whole else {"value": record}
        producer.produce(
            topic,
            None if whole["value"] is None else json.dumps(whole["value"]),
            None if "key" not in whole else json.dumps(whole["key"]),
            headers=[*whole.get("headers", {}).items()],
            timestamp=int(whole.get("timestamp", 0)),
        )
    assert producer.flush(30) == 0
