"""Does once, for `frazil setup`, what a first start would otherwise wait for.

It compiles the decoder's loops, which are kept, and runs a small pipeline on a broker of its own, and a command that
looks at it, so that the three JVMs record the classes they load (see `gateway`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from frazil.runtime.broker import EmbeddedBroker, broker_archive
from frazil.runtime.gateway import RECORD_VARIABLE, class_archive
from frazil.runtime.jars import own_jars
from frazil.runtime.java import find_java, why_unrecorded
from frazil.runtime.jvm import JVM_OPTIONS
from frazil.runtime.light_jvm import archive_of_small_jvm
from frazil.temporary import temporary_folder

_FILE = """
pipeline: warm
kafka: {{bootstrap.servers: "{servers}"}}
catalog: {{type: jdbc, uri: "jdbc:sqlite:{folder}/catalog.db", warehouse: "{folder}/warehouse"}}
tables: {{warm.events: {{topic: events, metadata: [offset], columns: {{n: long, at: timestamptz}}}}}}
"""


def compile_all() -> str:
    """Compiles also the loops that few pipelines need, in a process of its own, which may import what this module may
    not. Returns why it failed; empty where it did not.
    """
    command = [sys.executable, "-c", "from frazil.ingest.tasks.warm_up import warm_up; warm_up(compiles_all=True)"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stderr if ended.returncode else ""


def record_start() -> str:
    """Runs the small pipeline, and the check of its file, unless the class archives of their JVMs and of the broker's
    exist. Returns why an archive is missing; empty where none is.
    """
    archives = {
        ("run", "--until-caught-up"): class_archive(own_jars(needs_s3=False), JVM_OPTIONS),
        ("check",): archive_of_small_jvm(),
    }
    of_broker = broker_archive()
    if all(archive.exists() for archive in (*archives.values(), of_broker)):
        return ""
    records = not of_broker.exists()
    with (
        temporary_folder("frazil-warm-") as folder,
        EmbeddedBroker(folder / "broker", records_classes=records) as broker,
    ):
        _produce(broker.bootstrap_servers)
        file = folder / "frazil.yaml"
        file.write_text(_FILE.format(servers=broker.bootstrap_servers, folder=folder))
        failures = [_record(words, file, archive) for words, archive in archives.items()]
    if not of_broker.exists():
        failures.append(f"the broker has written no {of_broker}")
    return next(filter(None, failures), "")


def _record(words: tuple[str, ...], file: Path, archive: Path) -> str:
    """Runs the command, whose JVM records its classes unless it has an archive. Returns why there is none."""
    command = [sys.executable, "-m", "frazil.cli.main", *words, "-f", str(file)]
    environment = os.environ if archive.exists() else {**os.environ, RECORD_VARIABLE: "1"}
    ended = subprocess.run(command, env=environment, cwd=file.parent, capture_output=True, text=True, check=False)
    if archive.exists():
        return ""
    return ended.stderr if ended.returncode else why_unrecorded(find_java()) or f"the JVM has written no {archive}"


def _produce(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("events", 2, 1)])["events"].result()
    producer = Producer({"bootstrap.servers": servers})
    for n in range(1000):
        producer.produce("events", f'{{"n":{n},"x":{{"y":[{n}.5]}},"s":"a\\\\n{n}","at":"2026-01-01T00:00:00Z"}}')
    producer.flush()
