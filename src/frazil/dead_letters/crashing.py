"""Dead letters of records that crashed the task which read them: a child process reads them first, so that a crash does
not end the replay.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from frazil.dead_letters.files import Place, places_of, records_of
from frazil.decode.columns import Mismatch
from frazil.ingest.isolate import MOST_FOUND, load_found, search
from frazil.ingest.task import Job
from frazil.write.target import TableTarget

CRASHES = "crashes_decoder"


def still_crashing(target: TableTarget, dead_letters: pa.Table) -> dict[Place, Mismatch]:
    """Returns the dead letters that crash the process which reads them, by place, with the current reason. Dead letters
    of other classes were read before, and are not tried.

    Raises: OSError where a trial fails for reasons of the machine.
    """
    suspects = dead_letters.filter(pc.fill_null(pc.equal(dead_letters["error_class"], CRASHES), False))
    found: dict[Place, Mismatch] = {}
    for topic in pc.unique(suspects["topic"]).to_pylist():
        found |= _of_topic(target, topic, suspects.filter(pc.equal(suspects["topic"], topic)))
    return found


def _of_topic(target: TableTarget, topic: str, suspects: pa.Table) -> dict[Place, Mismatch]:
    job, found = Job({topic: target}), dict[Place, Mismatch]()
    while suspects.num_rows:
        batches = [pa.RecordBatch.from_pydict(_shipped(batch)) for batch in suspects.to_batches()]
        answer = load_found(text for out in search(job, batches) for text in out.column("report").to_pylist())
        if answer.together:  # Nobody knows which of them can be read together.
            return found | dict.fromkeys(places_of(suspects), _mismatch(answer.together[0].reason))
        found |= {(one.topic, one.partition, one.offset): _mismatch(one.reason) for one in answer.records}
        if len(answer.records) < MOST_FOUND:
            break
        suspects = suspects.filter(pa.array([place not in found for place in places_of(suspects)], pa.bool_()))
    return found


def _mismatch(reason: str) -> Mismatch:
    return Mismatch(0, "", CRASHES, reason)


def _shipped(dead_letters: pa.RecordBatch) -> dict[str, pa.Array]:
    """Returns the records as a task receives them, each with a timestamp."""
    records = records_of(dead_letters)
    records["timestamp"] = pc.fill_null(records["timestamp"], pa.scalar(0, records["timestamp"].type))
    return records
