"""Lineage for an OpenLineage service: which topics each table is made of, column by column.

A table is a job, `<pipeline>.<table>`, and what one process does for it is a run of this job, as OpenLineage has it for
streams: START with the first batch, RUNNING when a commit has changed something that is shown, or once a minute, FAIL where
the table stops, COMPLETE where the process ends. One event for each commit would be several a second. What could not be sent
stays due: an event has the whole lineage, so a later one replaces it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

from openlineage.client.event_v2 import InputDataset as Input
from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState, set_producer
from openlineage.client.generated.base import DatasetFacet
from openlineage.client.generated.column_lineage_dataset import (
    ColumnLineageDatasetFacet,
    Fields,
    InputField,
    Transformation,
)
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields
from openlineage.client.generated.symlinks_dataset import Identifier, SymlinksDatasetFacet
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider
from pyspark import __version__ as spark_version
from requests.exceptions import ConnectionError as NoConnection
from requests.exceptions import Timeout

import frazil
from frazil.clock import Clock, new_id
from frazil.ingest.batches.ended_batch import EndedBatch, words_of
from frazil.ingest.tables.state import RunState as DoingState
from frazil.ingest.tables.table import Table
from frazil.ops.lineage import TableLineage, lineage_of
from frazil.ops.running import RunningPipeline
from frazil.spec import PipelineSpec

_EVERY_S = 60.0
_TIMEOUT_S = 5.0
_ENDED = {RunState.FAIL, RunState.COMPLETE}


@dataclass
class _TableRun:
    """What this process does for one table."""

    table: Table
    #: The id of the run.
    run_id: str = field(default_factory=new_id)
    topics: frozenset[str] = frozenset()
    #: Numbers of committed batches that no event has had yet.
    rows: int = 0
    files: int = 0
    file_bytes: int = 0
    #: The error of the batch that stopped the table; empty where another step did, and while it runs.
    error: str = ""
    #: The last event that was sent; None before the first.
    state: RunState | None = None
    #: What its datasets looked like.
    shown: object = None
    #: Whether there were commits since.
    is_changed: bool = False
    #: When it was sent.
    sent_at_s: float = 0.0


class LineageOutlet:
    """Sends events of runs."""

    def __init__(self, url: str | None, pipeline: RunningPipeline, clock: Clock) -> None:
        """Makes the client. url: the service's; None for that of OPENLINEAGE_URL."""
        self.sent = self.dropped = 0
        self._spec, self._clock, self._redact = pipeline.spec, clock, pipeline.redact
        key = os.environ.get("OPENLINEAGE_API_KEY", "").strip()
        self._transport = HttpTransport(
            HttpConfig(
                f"{url}/" if url else os.environ["OPENLINEAGE_URL"],
                endpoint=os.environ.get("OPENLINEAGE_ENDPOINT") or "api/v1/lineage",
                timeout=_TIMEOUT_S,
                auth=ApiKeyTokenProvider({"apiKey": key}) if key else TokenProvider({}),
                retry={"total": 0},
            )
        )
        self._namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "frazil"
        self._runs: dict[str, _TableRun] = {}
        set_producer(f"urn:frazil:{frazil.__version__}")

    def send(self, batches: Sequence[EndedBatch], is_last: bool) -> None:
        """See the protocol."""
        for batch in batches:
            self._note(batch)
        failure: Exception | None = None
        for run in self._runs.values():
            try:
                while (state := self._due(run, is_last)) is not None:
                    self._transport.emit(self._event(run, state))
                    self.sent += 1
                    run.state, run.sent_at_s, run.is_changed = state, self._clock.monotonic_s(), False
                    run.shown, run.rows, run.files, run.file_bytes = self._shown(run), 0, 0, 0
            except (NoConnection, Timeout):
                raise  # The other tables would wait as long.
            except Exception as error:  # noqa: BLE001  (an event that is refused holds up no other table's)
                failure = error
        if failure is not None:
            raise failure

    def interrupt(self) -> None:
        """See the protocol: a request has a time-out of its own."""

    def _note(self, batch: EndedBatch) -> None:
        run = self._runs.get(batch.table.name)
        if run is None or (run.state in _ENDED and batch.outcome == "Committed"):
            run = self._runs[batch.table.name] = _TableRun(batch.table)
        run.topics |= set(batch.topics)
        if batch.outcome == "Stop" and batch.error is not None:
            run.error = str(self._redact(words_of(batch.error)))
        elif batch.outcome == "Committed" and batch.numbers is not None:
            run.is_changed, run.error = True, ""
            run.rows += batch.numbers.rows
            run.files += batch.numbers.files
            run.file_bytes += batch.numbers.file_bytes

    def _due(self, run: _TableRun, is_last: bool) -> RunState | None:
        """Returns the event that is to be sent now; None where none is."""
        if run.state is None:
            return RunState.START
        if run.state in _ENDED:
            return None
        if run.table.status.run_state is DoingState.STOPPED:
            return RunState.FAIL
        if is_last:
            return RunState.COMPLETE
        is_long_ago = self._clock.monotonic_s() - run.sent_at_s >= _EVERY_S
        return RunState.RUNNING if run.is_changed and (is_long_ago or run.shown != self._shown(run)) else None

    def _shown(self, run: _TableRun) -> object:
        """Returns what an event shows of the table besides numbers."""
        state = run.table.state
        return None if state is None else (run.topics, state.uuid, state.schema, run.table.schema.query)

    def _event(self, run: _TableRun, state: RunState) -> RunEvent:
        engine = ProcessingEngineRunFacet(spark_version, "spark", frazil.__version__)
        message = ErrorMessageRunFacet(run.error or "the table has stopped", "PYTHON")
        failed = {"errorMessage": message} if state is RunState.FAIL else {}
        kind = JobTypeJobFacet(processingType="STREAMING", integration="FRAZIL", jobType="TABLE")
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        namespace = kafka_namespace(self._spec)
        return RunEvent(
            eventType=state,
            eventTime=now.isoformat(),
            run=Run(run.run_id, {"processing_engine": engine, **failed}),
            job=Job(self._namespace, f"{self._spec.pipeline}.{run.table.name}", {"jobType": kind}),
            inputs=[Input(namespace, topic) for topic in sorted(run.topics)],
            outputs=list(self._outputs(run)),
        )

    def _outputs(self, run: _TableRun) -> Iterator[OutputDataset]:
        table = run.table
        state = table.state
        if state is None:
            return
        namespace, name = split_location(state.location)
        facets: dict[str, DatasetFacet] = {
            "schema": SchemaDatasetFacet(
                [SchemaDatasetFacetFields(field.name, str(field.field_type)) for field in state.schema.fields]
            ),
            "symlinks": SymlinksDatasetFacet([Identifier(catalog_namespace(self._spec), table.name, "TABLE")]),
            "columnLineage": self._column_lineage(run, lineage_of(table, table.schema.query)),
        }
        if state.head_id is not None:
            facets["version"] = DatasetVersionDatasetFacet(str(state.head_id))
        numbers = OutputStatisticsOutputDatasetFacet(rowCount=run.rows, size=run.file_bytes, fileCount=run.files)
        yield OutputDataset(namespace, name, facets=facets, outputFacets={"outputStatistics": numbers})

    def _column_lineage(self, run: _TableRun, lineage: TableLineage) -> ColumnLineageDatasetFacet:
        namespace, topics = kafka_namespace(self._spec), sorted(run.topics)
        kind = "TRANSFORMATION" if run.table.spec.has_query else "IDENTITY"

        def inputs(paths: Sequence[str], of_values: str, how: str) -> list[InputField]:
            transformations = {
                path: Transformation(of_values, how, masking=_is_masked(path, lineage)) for path in paths
            }
            return [InputField(namespace, topic, path, [transformations[path]]) for topic in topics for path in paths]

        columns = {column.name: Fields(inputs(column.fields, "DIRECT", kind)) for column in lineage.columns}
        return ColumnLineageDatasetFacet(columns, inputs(lineage.conditions, "INDIRECT", "FILTER"))


def _is_masked(path: str, lineage: TableLineage) -> bool:
    """Whether the table does not have the values of a field, of a part of it, or of what it is in."""
    masked = (f"{masked_path}." for note in lineage.notes for masked_path in note.masked)
    return any(masked_path.startswith(f"{path}.") or f"{path}.".startswith(masked_path) for masked_path in masked)


def kafka_namespace(spec: PipelineSpec) -> str:
    """Returns the namespace of topics (OpenLineage's Naming.md, "Kafka")."""
    return f"kafka://{spec.kafka['bootstrap.servers'].partition(',')[0].strip()}"


def split_location(location: str) -> tuple[str, str]:
    """Returns namespace and name of a table by its folder (OpenLineage's Naming.md, "S3", "Local file system")."""
    parts = urlsplit(location)
    if parts.netloc:
        return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
    return "file", parts.path


def catalog_namespace(spec: PipelineSpec) -> str:
    """Returns the namespace of tables by name: the catalog's host, or its warehouse; never with credentials."""
    parts = urlsplit(spec.catalog.uri.partition(",")[0] if spec.catalog.type in ("rest", "nessie", "hive") else "")
    if parts.hostname:
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return f"{'hive' if spec.catalog.type == 'hive' else parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}"
    if not spec.catalog.warehouse:
        return spec.catalog.type
    namespace, name = split_location(spec.catalog.warehouse)
    return f"{namespace}:{name}" if namespace == "file" else f"{namespace}/{name}".rstrip("/")
