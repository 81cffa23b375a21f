"""`wait` of a lookup: the rules between it and other settings, its line of `frazil plan`, and the table without it.

A record that waits is held as a dead letter, and is replayed. So it comes out of its order, which not every table allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from frazil.spec.grouped_tables import groups_of
from frazil.spec.models import TableSpec
from frazil.spec.state import retracts
from frazil.spec.syntax.problems import Mistake
from frazil.spec.syntax.units import duration_text


def without_waits(table: TableSpec, names: Collection[str]) -> TableSpec:
    """Returns the table as it would be without `wait` of the lookups of these names: `on_miss` decides at once."""
    lookups = (
        lookup.model_copy(update={"wait_s": None}) if lookup.name in names else lookup for lookup in table.query.lookup
    )
    return table.model_copy(update={"query": table.query.model_copy(update={"lookup": tuple(lookups)})})


def describe_waits(table: TableSpec) -> Iterator[str]:
    """Yields how long records wait for reference tables, a line for each lookup."""
    for lookup in table.query.waits:
        assert lookup.wait_s is not None
        ends = {"null": "have null", "drop": "are dropped", "dead_letter": "are dead letters"}[lookup.on_miss]
        yield f"records without a row in {lookup.name} wait {duration_text(lookup.wait_s)} for it, then {ends}"


def check_waits(table: TableSpec) -> Iterator[Mistake]:
    """Yields settings with which a record cannot be held, or cannot be added after later ones."""
    for lookup in table.query.waits:
        for message, remedy in _obstacles(table):
            yield Mistake(("lookup", lookup.name, "wait"), f"`lookup.{lookup.name}.wait` {message}", remedy)
            break


def _obstacles(table: TableSpec) -> Iterator[tuple[str, str]]:
    bad, changes, grouping = table.bad_records, table.changes, groups_of(table)
    if bad.on_bad_record != "dead_letter":
        yield (
            f"holds records in the dead-letter table, and the table has `on_bad_record: {bad.on_bad_record}`",
            "write `on_bad_record: dead_letter`, or remove `wait`",
        )
    if bad.dead_letters.topic is not None:
        yield (
            "holds records in the dead-letter table, all of which `dead_letters.topic` sends to a topic",
            "remove `wait`, or `dead_letters.topic`",
        )
    if changes.dedupe is not None:
        yield (
            "adds records later, and `dedupe` compares records when they are read",
            "remove one of the two, or look up in a table of its own that reads the topic without `dedupe`",
        )
    if grouping is not None and grouping.window is not None:
        yield (
            "would add records to windows that are complete",
            "remove `wait`, or group by the window in a query over the table of single records",
        )
    if retracts(table):
        yield (
            "would subtract rows before they are added: an update or a delete may come before the wait is over",
            "remove `wait`, or merge rows that are not looked up",
        )
    if changes.atomic is not None:
        yield (
            "would divide transactions of the source, which `atomic` shows whole",
            "remove `wait`, or `atomic`",
        )
