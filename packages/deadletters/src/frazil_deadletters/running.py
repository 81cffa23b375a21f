"""Dead letters of a running pipeline: what its HTTP service answers, and does on request. Any thread may ask."""

from __future__ import annotations

from typing import Any

from frazil.dead_letters.files import Selection
from frazil.ops.running import RunningPipeline
from frazil_deadletters.documents import (
    classes_document,
    classes_of,
    count_dead_letters,
    dead_letter_document,
    newest_dead_letters,
)
from frazil_deadletters.replay import Replayer


def dead_letters(pipeline: RunningPipeline, name: str) -> dict[str, Any]:
    """Returns the JSON of a table's dead letters by error class.

    Raises: UnavailableError where the catalog does not answer.
    """
    catalog, stored = pipeline.services.catalog, _replayer(pipeline).settled(pipeline.copy_of(name))
    if stored is None:
        return classes_document(None, ())
    return classes_document(stored.name, classes_of(catalog, stored))


def dead_letter_records(pipeline: RunningPipeline, name: str, selection: Selection, limit: int) -> list[dict[str, Any]]:
    """Returns the JSON of a table's newest selected dead letters, `limit` at most.

    Raises: UnavailableError where the catalog does not answer.
    """
    stored = _replayer(pipeline).settled(pipeline.copy_of(name))
    if stored is None:
        return []
    newest = newest_dead_letters(pipeline.services.catalog, stored, selection, limit)
    return [dead_letter_document(dead_letter) for dead_letter in newest]


def replay(pipeline: RunningPipeline, name: str, selection: Selection, dry_run: bool) -> dict[str, Any]:
    """Replays a table's selected dead letters; returns the JSON of `frazil dead-letters replay` of the table, or with
    `dry_run` the number of selected dead letters.

    Raises: UnavailableError where a service does not answer.
    """
    table, replayer = pipeline.copy_of(name), _replayer(pipeline)
    if not dry_run:
        done = replayer.replay(table, selection)
        pipeline.reload(name)
        return {"replayed": done.replayed, "remaining": done.remaining}
    stored = replayer.settled(table)
    count = 0 if stored is None else count_dead_letters(pipeline.services.catalog, stored, selection)
    return {"dead_letters": count}


def _replayer(pipeline: RunningPipeline) -> Replayer:
    services = pipeline.services
    return Replayer(services.catalog, services.schemas, services.topics, services.queries)
