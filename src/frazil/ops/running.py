"""What a running process answers about its own pipeline, without asking Kafka or the catalog: from the last state that its
loop published. Any thread may ask.
"""

from __future__ import annotations

from dataclasses import dataclass

from frazil.clock import Clock
from frazil.errors import UnavailableError
from frazil.ingest.service import Service
from frazil.ops.reports import PipelineReport
from frazil.ops.state_file import StateFile
from frazil.ops.status import report_running
from frazil.spec import PipelineSpec


@dataclass
class RunningPipeline:
    """The pipeline of this process."""

    spec: PipelineSpec
    #: What the loop published last.
    state_file: StateFile
    clock: Clock
    #: The loop; None until the JVM and the catalog are there.
    service: Service | None = None

    def report(self) -> PipelineReport:
        """Returns the state of the pipeline and its tables.

        Raises: UnavailableError until the loop has published for the first time.
        """
        document, service = self.state_file.document, self.service
        if service is None or not document:
            raise UnavailableError("the pipeline is starting", remedy="ask again in a few seconds")
        return report_running(self.spec.pipeline, service.tables, document, self.clock.now_ms())
