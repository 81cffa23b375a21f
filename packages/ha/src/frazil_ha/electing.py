"""How a process takes part in the election that its pipeline file names, and what `frazil check` finds of it."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable

from frazil import __version__
from frazil.cli.wiring import declared_tables
from frazil.clock import Clock
from frazil.errors import FrazilError, SpecError, UnavailableError
from frazil.ingest.loop.leadership import Member
from frazil.kafka.properties import task_properties
from frazil.ops.check import Finding, failed
from frazil.spec import PipelineSpec
from frazil.spec.connections import HaSpec
from frazil_ha.elected import Elected
from frazil_ha.elector import Elector
from frazil_ha.link import Host, own_host


def open_leadership(spec: PipelineSpec, run_id: str, clock: Clock) -> Elected:
    """Returns this process among those of its pipeline.

    Raises: UnavailableError where the address for the other processes cannot be listened on.
    """
    ha = _ha_of(spec)
    name = f"{socket.gethostname()}-{os.getpid()}-{run_id[:8]}"
    elector = open_elector(spec, ha, name)
    toward = spec.kafka["bootstrap.servers"].partition(",")[0]
    host, port = ha.listen or (own_host(toward), 0)
    try:
        listening = Host(host, port, clock)
    except OSError as error:
        raise UnavailableError(
            f"the processes of the pipeline cannot meet at {host}:{port}: {error.strerror or error}",
            remedy="write another address under `ha.listen`",
            where=f"{host}:{port}",
        ) from None
    member = Member(name, __version__, clock.now_ms(), is_warm=False)
    return Elected(elector, listening, member, ha.mode, clock, declared_tables(spec))


def _ha_of(spec: PipelineSpec) -> HaSpec:
    assert spec.process.ha is not None  # It names this election.
    return spec.process.ha


def open_elector(spec: PipelineSpec, ha: HaSpec, name: str) -> Elector:
    """Returns the client of the service that elects a leader. name: this process's."""
    module = importlib.import_module(f"frazil_ha.{ha.elect}")
    elector: Elector
    if ha.elect == "kafka":
        elector = module.KafkaElector(spec.kafka, spec.pipeline, name)
    elif ha.elect == "postgres":
        elector = module.PostgresElector(ha.uri, spec.pipeline, name)
    else:
        elector = module.LeaseElector(os.environ, spec.pipeline, name)
    return elector


def check_election(spec: PipelineSpec) -> Finding:
    """Checks whether a leader can be elected by the service that the pipeline file names."""
    elector = open_elector(spec, _ha_of(spec), f"check-{os.getpid()}")
    return finding_of(elector, lambda: _lacks_right(spec))


def finding_of(elector: Elector, lacks_right: Callable[[], SpecError | None] = lambda: None) -> Finding:
    """Returns whether a leader can be elected. lacks_right: returns the error of a right that a claim would lack, as far as
    that can be found without one.
    """
    name, tried = "election", f"asked {elector.kind} for the claims to lead, and what this client may do with them"
    try:
        verdict, lacking = elector.check(), lacks_right()
        return Finding(name, True, tried, verdict) if lacking is None else failed(name, tried, lacking)
    except FrazilError as error:
        return failed(name, tried, error)
    finally:
        elector.close()


def _lacks_right(spec: PipelineSpec) -> SpecError | None:
    """Returns the error of a client that may not even describe the transactional id of claims; None otherwise, also where
    that is not known.
    """
    if _ha_of(spec).elect != "kafka":
        return None
    # Imports a client of Kafka's, which other checks do not need.
    from frazil_ha.kafka import claims_id, control_topic, denied  # noqa: PLC0415
    from frazil_ha.transactional_ids import may_describe  # noqa: PLC0415

    may = may_describe(task_properties(spec.kafka), claims_id(spec.pipeline))
    return denied(control_topic(spec.pipeline)) if may is False else None
