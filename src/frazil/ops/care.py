"""The tables of a pipeline as table care has them: each with its dead-letter table, settings and target size."""

from __future__ import annotations

from collections.abc import Iterable

from frazil.ingest.table import Table
from frazil.maintain.caretaker import ROUND_BYTES, Seen
from frazil.maintain.plan import Care
from frazil.maintain.run import Charge


def charges(tables: Iterable[Table], is_limited: bool = False) -> list[Charge]:
    """Every table, and every dead-letter table, which may not be there. is_limited: a round rewrites only so much."""
    known = list(tables)
    owners: dict[str, list[Table]] = {}
    for table in known:
        owners.setdefault(table.letters_name, []).append(table)
    own = [charge_of(table, is_limited) for table in known]
    boxes = [
        Charge(name, _care(of[0], is_limited), owners=tuple(table.name for table in of)) for name, of in owners.items()
    ]
    return own + boxes


def charge_of(table: Table, is_limited: bool = False) -> Charge:
    """One table."""
    return Charge(table.name, _care(table, is_limited), letters=table.letters_name)


def seen_by(tables: Iterable[Table]) -> list[Seen]:
    """What a running pipeline last saw of its tables; those that nothing was committed to yet are left out."""
    known = list(tables)
    by_name = {charge.name: charge for charge in charges(known, is_limited=True)}
    found = []
    for table in known:
        if table.size is None:
            continue
        version, size = table.progress.commit_id, table.size
        found.append(Seen(by_name[table.name], version, size.file_count, size.snapshot_count))
        if table.letter_count:
            found.append(Seen(by_name[table.letters_name], str(table.letter_count), 0, 0))
    return found


def _care(table: Table, is_limited: bool) -> Care:
    spec = table.spec.maintenance
    target = spec.target_file_size_bytes or table.spec.commit.target_file_size_bytes
    return Care(spec, target, ROUND_BYTES * spec.cores if is_limited else None)
