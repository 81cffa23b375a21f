"""The master of a standalone Spark cluster, asked how it is without starting an application there.

Spark's own client would wait for a minute, and then fail with an error about something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from frazil.errors import UnavailableError

ANSWER_S = 5
_SCHEME = "spark://"
_ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^\s:,/\[\]]+):(?P<port>\d{1,5})")
# What the conversation with a master depends on.
_OWN = ("spark.authenticate", "spark.network.", "spark.rpc.", "spark.ssl.")
_MESSAGES = "org.apache.spark.deploy.DeployMessages$"
# A connection that ends before the master has answered: a wrong secret, or no Spark behind the port.
_CUT_OFF = ("Outbox is stopped", "SaslMessage", "Connection from", "SaslException", "closed", "Connection reset")


@dataclass(frozen=True)
class Worker:
    """A worker of a standalone cluster, which may have died a short while ago: Spark does not report that."""

    cores: int
    memory_mb: int


@dataclass(frozen=True)
class Master:
    """The master that leads a standalone cluster."""

    #: As the pipeline file has it.
    url: str
    #: The workers that it knows.
    workers: tuple[Worker, ...]
    #: The ids of the applications that it knows.
    applications: frozenset[str]

    def lacking(self, conf: Mapping[str, str], parse_mb: Any) -> UnavailableError | None:
        """Returns what the workers lack to run an executor; None where one of them is large enough. parse_mb: returns the
        megabytes of a text such as `2g`.
        """
        if not self.workers:
            return UnavailableError("the Spark master has no workers", remedy="start workers", where=self.url)
        cores = int(conf.get("spark.executor.cores", "1"))
        memory_mb = int(parse_mb(conf.get("spark.executor.memory", "1g")))
        if any(worker.cores >= cores and worker.memory_mb >= memory_mb for worker in self.workers):
            return None
        largest = max(self.workers, key=lambda worker: (worker.memory_mb, worker.cores))
        return UnavailableError(
            f"no worker of the Spark master is large enough for an executor: cores={cores} memory={memory_mb} MB, and the"
            f" largest has cores={largest.cores} memory={largest.memory_mb} MB",
            remedy="lower spark.executor.cores or spark.executor.memory under `spark.conf`, or start larger workers",
            where=self.url,
        )


def is_standalone(url: str) -> bool:
    """Returns whether the master is that of a standalone cluster."""
    return url.startswith(_SCHEME)


def ask_master(jvm: Any, conf: Mapping[str, str], url: str) -> Master:
    """Returns how the master is that leads the cluster. jvm: py4j's view of a JVM with Spark's classes. conf: Spark's
    properties. url: of the masters, `spark://HOST:PORT`, or several as `spark://HOST:PORT,HOST:PORT`.

    Raises: UnavailableError where none answers, or none leads.
    """
    addresses = [_ADDRESS.fullmatch(text) for text in url.removeprefix(_SCHEME).split(",")]
    rpc_conf = jvm.org.apache.spark.SparkConf(False)
    for name in [name for name in conf if name.startswith(_OWN)]:
        rpc_conf.set(name, conf[name])
    for name in ("spark.rpc.lookupTimeout", "spark.rpc.askTimeout"):
        rpc_conf.set(name, f"{ANSWER_S}s")
    security = jvm.org.apache.spark.SecurityManager
    defaults = (getattr(security, f"$lessinit$greater$default${number}")() for number in (2, 3))
    problems: list[UnavailableError] = []
    environment = jvm.org.apache.spark.rpc.RpcEnv.create(
        "frazil", "localhost", 0, rpc_conf, security(rpc_conf, *defaults), True
    )
    try:
        for match in addresses:
            if match is None:
                remedy = 'write `spark: {master: "spark://HOST:PORT"}`'
                raise UnavailableError("this is not an address of a Spark master", remedy=remedy, where=url)
            try:
                state = _state(jvm, environment, match["host"], int(match["port"]))
            except Py4JJavaError as error:
                problems.append(_problem(f"{_SCHEME}{match[0]}", _causes(error)))
                continue
            if (status := state.status().toString()) == "ALIVE":
                workers = tuple(Worker(worker.cores(), worker.memory()) for worker in state.workers())
                return Master(url, workers, frozenset(application.id() for application in state.activeApps()))
            problems.append(
                UnavailableError(
                    f"the Spark master does not lead the cluster: status={status}",
                    remedy="wait for its election, or name all masters, as spark://HOST:PORT,HOST:PORT",
                    where=f"{_SCHEME}{match[0]}",
                )
            )
    finally:
        environment.shutdown()
    raise problems[0]


def _state(jvm: Any, environment: Any, host: str, port: int) -> Any:
    """Returns Spark's description of the master at the address."""
    master = environment.setupEndpointRef(jvm.org.apache.spark.rpc.RpcAddress(host.strip("[]"), port), "Master")
    classes = jvm.java.lang.Class
    request = classes.forName(f"{_MESSAGES}RequestMasterState$").getField("MODULE$").get(None)
    kind = jvm.scala.reflect.ClassTag.apply(classes.forName(f"{_MESSAGES}MasterStateResponse"))
    return master.askSync(request, kind)


def _causes(error: Py4JJavaError) -> list[str]:
    """Returns the messages of a Java exception and its causes, the innermost last."""
    texts, cause = [], error.java_exception
    while cause is not None:
        texts.append(f"{cause.getClass().getSimpleName()}: {cause.getMessage()}".splitlines()[0])
        cause = cause.getCause()
    return texts


def _problem(url: str, causes: Sequence[str]) -> UnavailableError:
    """Returns what is wrong with the master at the URL."""
    text = causes[-1]
    if any(sign in text for sign in _CUT_OFF):
        return UnavailableError(
            "the Spark master ends the connection: it expects other authentication or encryption, or it is another service",
            remedy="give both the same spark.authenticate.secret and spark.authenticate, or correct `spark.master`",
            where=url,
        )
    if "Timeout" in text:
        text = f"no answer within {ANSWER_S} seconds"
    elif "UnknownHost" in text:
        text = "the name of the host is not known"
    elif "refused" in text:
        text = "connection refused"
    return UnavailableError(
        f"no Spark master answers: {text}", remedy="start the master, or correct `spark.master`", where=url
    )
