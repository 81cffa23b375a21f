"""The two stages of a task whose query Spark computes in part: the first decodes records, the second has Spark's values.

Spark cuts what passes between the stages into batches of its own, so that only the columns that the expressions use pass
through it. What was read at once is handed on in a file, whose path is beside its last record. Both stages of a task are
processes of one machine.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from frazil.decode.limits import read_bounded
from frazil.failpoints import hit
from frazil.files import handed_on_folder, taken_folder
from frazil.ingest.tasks.task import TableRun, read_records, requests_of_rows, run_guarded, take_batch, with_topic
from frazil.ingest.tasks.task_job import Job, quoting_no_record
from frazil.ingest.tasks.task_limits import each_in_time, limited_memory
from frazil.kafka.source import current_ranges
from frazil.process.evaluate import evaluate
from frazil.process.program import INPUT
from frazil.rows.query import query_input
from frazil.schema.arrow import Records, pick, spread_places
from frazil.shares.divide import TableRecords, TopicShares
from frazil.stages.changes import UPSERT, Changes
from frazil.stages.stage import Assembled
from frazil.types import BadRecord
from frazil.write.target import TableTarget

STEP = "step"
"""The column with the paths of files, text: each beside the last record of those that it has, null beside others."""
_PREFIX, _FIRST = "frazil-records-", "0"


@dataclass(frozen=True)
class _Step:
    """What the second stage does with some records."""

    #: The method of the second stage's run, with all arguments; where there are `records`, without these.
    take: Callable[..., None]
    #: The records that were decoded at once, of which Spark makes values.
    records: pa.RecordBatch | None = None


def first_stage(job: Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decodes the records and yields STEP and the columns of `in_spark.input_schema`, a row for each record that is decoded
    and one for each further step. The job has one table.

    Raises: OSError where there is no room for temporary files.
    """
    target = job.all_targets[0]
    topics = {topic: TopicShares(job.targets_of(topic), topic, job.starts) for topic in job.targets}
    run = _FirstRun(target, target.name in job.trials, job.topics_of(target.name))
    with limited_memory(), quoting_no_record(job), handed_on_folder(_PREFIX) as folder:
        for batch in each_in_time(batches):
            take_batch(job, batch, {target.name: run}, topics)
            while run.steps:
                yield run.hand_on(folder)
        for offset_range in current_ranges():
            run.end(job.own_range(target.name, offset_range))
        while run.steps:
            yield run.hand_on(folder)


def second_stage_of(job: Job) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Returns the function for `mapInArrow` that does what that of `task_of` does, with what the first stage has decoded. It
    takes STEP and the columns of `SparkPart.values`.
    """
    return partial(_second_stage, job)


def _second_stage(job: Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with ExitStack() as folders:
        yield from run_guarded(job, _steps(job, batches, folders))


def _steps(job: Job, batches: Iterable[pa.RecordBatch], folders: ExitStack) -> Iterator[Callable[[TableRun], None]]:
    """Yields the steps, each once Spark's values of all of its records are there. folders: gets the folder of the files."""
    names = [value.name for value in job.spark_part.values] if job.spark_part is not None else []
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        begin = 0
        for row in np.flatnonzero(np.asarray(batch[STEP].is_valid())).tolist():
            waiting.append(batch.slice(begin, row + 1 - begin))
            path = Path(batch[STEP][row].as_py())
            if path.name == _FIRST:
                folders.enter_context(taken_folder(path.parent))
            with path.open("rb") as file:
                step: _Step = pickle.load(file)
            path.unlink()
            if step.records is None:
                yield step.take
            else:
                records = step.records
                for name in names:
                    records = records.append_column(name, pa.concat_arrays([some[name] for some in waiting]))
                yield partial(step.take, records=records)
            waiting, begin = [], row + 1
        waiting.append(batch.slice(begin))


class _FirstRun(TableRun):
    """Reads the records of a table as its `source` has them, and keeps what the second stage does with them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        #: The steps that were not handed on yet, each with its rows of the columns that Spark's expressions use.
        self.steps: list[tuple[_Step, list[pa.Array]]] = []
        self._handed_on = 0

    def hand_on(self, folder: Path) -> pa.RecordBatch:
        """Writes the first step to a file in the folder, and returns its rows."""
        step, inputs = self.steps.pop(0)
        path = folder / str(self._handed_on)  # `_FIRST` is the first.
        self._handed_on += 1
        try:
            with path.open("xb") as file:
                hit("stage.write")
                pickle.dump(step, file, protocol=5)  # From 5 on it copies no arrays.
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from None
        count = 1 if step.records is None else step.records.num_rows
        paths = pa.concat_arrays([pa.nulls(count - 1, pa.string()), pa.array([str(path)])])
        return pa.RecordBatch.from_arrays([paths, *inputs], names=[STEP, *map(INPUT.format, range(len(inputs)))])

    def take_left_out(self, topic: str, records: pa.RecordBatch, reasons: list[BadRecord]) -> None:
        """Keeps the records for the second stage."""
        self._keep(partial(TableRun.take_left_out, topic=topic, records=records, reasons=reasons))

    def take_parts(self, topic: str, some: Assembled) -> None:
        """Keeps the records for the second stage."""
        self._keep(partial(TableRun.take_parts, topic=topic, some=some))

    def take_share(self, topic: str, share: TableRecords, latest: Mapping[str, Mapping[int, int]]) -> None:
        """Decodes the records, and keeps them and what is reported of the others for the second stage."""
        if share.report is not None:
            others = replace(share, records=share.records.take(pa.array([], pa.int64())))
            self._keep(partial(TableRun.take_share, topic=topic, share=others, latest=latest))
        self.take(topic, share.records)

    def take(self, topic: str, records: pa.RecordBatch, of_source: Changes | None = None) -> None:  # noqa: ARG002
        """Decodes the records, and keeps them for the second stage; those that end tasks it takes unread."""
        is_crashing = self.target.known.are_crashing(topic, records)
        if is_crashing.any():
            self._keep(partial(TableRun.take, topic=topic, records=records.filter(pa.array(is_crashing))))
            records = records.filter(pa.array(~is_crashing))
        read = partial(self._read_inputs, topic)
        for whole in self._whole(topic, records):
            for piece, _, (changes, inputs) in read_bounded(whole, read, self.target.reading.evolution.columns_left):
                self.steps.append((_Step(partial(TableRun.take, topic=topic, of_source=changes), piece), inputs))

    def _keep(self, take: Callable[..., None]) -> None:
        assert self.target.spark_part is not None
        self.steps.append((_Step(take), [pa.nulls(1, field.type) for field in self.target.spark_part.inputs.output]))

    def _read_inputs(self, topic: str, columns: Records) -> tuple[Changes, list[pa.Array]]:
        columns = self.changes.last_deletes.mark_following_deletes(topic, with_topic(self.target, topic, columns))
        changes = _read_source(self.target, topic, columns)
        self.changes.last_deletes.take(topic, changes.last_deletes, columns)
        if self.is_trial and changes.decoded.requested_fields:
            self._note_hints(requests_of_rows(self.source, topic, columns, changes.decoded))
        return changes, _inputs(self.target, topic, columns, changes)


def inputs_of(target: TableTarget, topic: str, records: Records) -> list[pa.Array]:
    """Returns the columns that Spark's expressions use, with a value for each record; null for one that makes no row."""
    records = with_topic(target, topic, records)
    return _inputs(target, topic, records, _read_source(target, topic, records))


def _read_source(target: TableTarget, topic: str, records: Records) -> Changes:
    assert target.source is not None
    return read_records(target.source, topic, records)


def _inputs(target: TableTarget, topic: str, records: Records, changes: Changes) -> list[pa.Array]:
    """Returns the inputs of records whose changes are known, as `inputs_of`."""
    source, part = target.source, target.spark_part
    assert source is not None
    assert part is not None
    # Bad records alone may request columns: the others become rows now.
    of_rows = replace(changes, decoded=requests_of_rows(source, topic, records, changes.decoded))
    is_read = not of_rows.must_read_again
    rows = np.flatnonzero((changes.ops == UPSERT) & ~changes.decoded.refused[changes.records] & is_read)
    inputs = evaluate(part.inputs, pick(query_input(source, records, changes), rows), rows.size, "null").columns
    places = spread_places(changes.records[rows], len(records["value"]))
    return [column.take(places) for column in inputs]
