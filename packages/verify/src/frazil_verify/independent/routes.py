"""Which records of its topics a table of a route takes: by the values that name the tables, read as text by plain rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from frazil_verify.independent.topic import Record
from frazil_verify.model.faults import Fault
from frazil_verify.model.json_values import How
from frazil_verify.model.rows import Node
from frazil_verify.model.settings import Names
from frazil_verify.model.types import Plain

Values = tuple[str | None, ...]
Starts = Mapping[str, Mapping[int, int]]
_TEXT, _HOW = Plain("string"), How(coerce=True)


@dataclass(frozen=True)
class Route:
    """How one table of a route finds its records."""

    #: What names the tables: `field`, `header` or `topic`, each with the path of the field, or the name of the header.
    sources: tuple[tuple[str, tuple[str, ...]], ...]
    #: The values of the table's records; empty for the table of the rest.
    values: Values = ()
    #: For the table of the rest: from which offsets on the other tables take their records, by their values.
    others: Mapping[Values, Starts] = field(default_factory=dict)

    def takes(self, record: Record, fields_of: Callable[[Record], Node]) -> bool:
        """Whether the table takes a record. fields_of: reads a record, or raises Fault."""
        values = self._values(record, fields_of)
        if self.values:
            return values == self.values
        starts = self.others.get(values)
        return starts is None or record.offset < starts.get(record.topic, {}).get(record.partition, 0)

    def _values(self, record: Record, fields_of: Callable[[Record], Node]) -> Values:
        values: list[str | None] = []
        root: Node | None = None
        if any(kind == "field" for kind, _ in self.sources):
            try:
                root = fields_of(record)
            except Fault:
                root = None
        for kind, path in self.sources:
            if kind == "topic":
                values.append(record.topic)
            elif kind == "header":
                contents = [content for name, content in record.headers if name == path[0]]
                values.append(_text(contents[-1]) if contents else None)
            else:
                values.append(_text_at(root, path))
        return tuple(values)


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _text_at(node: Node | None, path: tuple[str, ...]) -> str | None:
    """Returns the text of a field; None where there is none."""
    try:
        for name in path:
            members = dict((node.members() if node is not None else None) or ())
            field_name = Names(dict.fromkeys(members, _TEXT)).find(name)
            node = members[field_name] if field_name is not None else None
        text: str | None = None if node is None or node.is_null else node.plain(_TEXT, _HOW)
    except Fault:
        return None
    return text
