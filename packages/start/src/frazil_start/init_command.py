"""`frazil init`: proposes a first pipeline file for the topics of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from frazil.api.check import findings_of
from frazil.api.wiring import open_topics
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.files import temporary_folder
from frazil.kafka.port import Partition, ReadRecord, Source
from frazil.kafka.reader import read_sample
from frazil.ops.check import Finding
from frazil.ops.reports import to_json
from frazil.registry.port import UnusableSchema
from frazil.secrets import has_reference, secrets_of
from frazil.spec import PipelineSpec, load_spec
from frazil.spec.syntax.environments import Overrides
from frazil.types import OffsetRange
from frazil_registry.confluent import ConfluentRegistry
from frazil_start.proposals import WAITS, Proposal, clashing_tables, file_of, is_internal, propose

_RECORDS = 20
"""How many records of each partition are looked at, the newest ones."""
_NAME = "lake"
"""The pipeline, and the namespace of its tables."""
_DEFAULT_BROKER = "localhost:9092"
_OPTIONS = {"registry": "--registry", "catalog": "--warehouse"}
"""The options that fill sections of the file; `--kafka` where there is none."""
_OPTION_OF_WORDS = {
    "`kafka.bootstrap.servers`": "`--bootstrap-servers`",
    "`bootstrap.servers: ": "`--bootstrap-servers ",
    "`registry.url`": "`--registry`",
    "`catalog.warehouse`": "`--warehouse`",
    "`bootstrap.servers`": "`--bootstrap-servers`",
    "under `kafka`": "given with `--kafka`",
}
"""What messages and remedies say of the pipeline file, which does not exist yet, and the option in its place."""

Servers = Annotated[
    str | None, typer.Option("--bootstrap-servers", metavar="HOST:PORT", help="The brokers.", show_default=False)
]
Registry = Annotated[str | None, typer.Option(metavar="URL", help="The schema registry.", show_default=False)]
Warehouse = Annotated[
    str | None,
    typer.Option(metavar="LOCATION", help="The location of the tables; by default ./frazil-data.", show_default=False),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka",
        metavar="NAME=VALUE",
        help="A property of Kafka's client; a secret as ${env:NAME}.",
        show_default=False,
    ),
]


def command(
    output: Output,
    bootstrap_servers: Servers = None,
    registry: Registry = None,
    warehouse: Warehouse = None,
    kafka: Properties = None,
    file: SpecFile = DEFAULT_FILE,
) -> int:
    """Propose a first pipeline file: look at the newest records of every topic, write a table for each topic with its
    format, envelope and key, and check the file as `frazil check` does. A comment lists the skipped topics. An existing
    file is never overwritten; with `-f -` the text is only printed.

    On a terminal, without options, the command asks.

    Exit code: 0 when the file is written and nothing is missing; 1 when the file exists, Kafka or the registry does not
    answer, no topic has records, or a check failed; 2 when an argument is wrong.
    """
    if bootstrap_servers is None and not (registry or warehouse or kafka) and sys.stdin.isatty():
        output.end_progress()  # It would be drawn over the questions.
        bootstrap_servers = typer.prompt("Kafka's brokers", default=_DEFAULT_BROKER, err=True)
        registry = typer.prompt("Schema registry (empty: none)", default="", show_default=False, err=True)
        warehouse = typer.prompt("Warehouse (empty: ./frazil-data)", default="", show_default=False, err=True)
        output.begin_progress()
    if not bootstrap_servers:
        raise SpecError("the brokers are not named", remedy="give --bootstrap-servers HOST:PORT")
    if file != Path("-") and file.exists():
        raise UnavailableError(
            "the file exists, and is not overwritten", remedy="name another with -f", where=str(file)
        )
    if file != Path("-") and not file.absolute().parent.is_dir():  # Before the topics are read for it.
        raise UnavailableError(
            "the file's folder does not exist", remedy="create it, or name another with -f", where=str(file)
        )
    head = _head(bootstrap_servers, registry, warehouse, kafka or ())
    try:
        proposals = clashing_tables(_NAME, _proposals(output, head))
    except UnavailableError as error:
        raise UnavailableError(error.message, remedy=_by_options(error.remedy), where=error.where) from None
    if all(proposal.settings is None for proposal in proposals):
        waiting = ", ".join(proposal.topic for proposal in proposals if proposal.seen == WAITS)
        raise UnavailableError(
            "no topic has records that a table can be made of"
            + (f"; those of {waiting} wait behind an open transaction" if waiting else ""),
            remedy="produce some records first, or name the registry with --registry",
            where=bootstrap_servers,
        )
    text = file_of(head, _NAME, proposals)
    return _finish(output, text, file, proposals)


def _head(servers: str, registry: str | None, warehouse: str | None, properties: Sequence[str]) -> dict[str, Any]:
    pairs = [pair.partition("=") for pair in properties]
    if any(not name or not equals for name, equals, _ in pairs):
        remedy = "write it so, such as --kafka security.protocol=SSL"
        raise SpecError("a property of Kafka's client is written NAME=VALUE", remedy=remedy, where="--kafka")
    for name, _, value in pairs:
        if secrets_of(name, value) and not has_reference(value):
            raise SpecError(
                f"`{name}` is a secret, and would be written into the file",
                remedy="write --kafka 'NAME=${env:VARIABLE}'",
                where="--kafka",
            )
    head: dict[str, Any] = {"pipeline": _NAME, "kafka": {"bootstrap.servers": servers}}
    head["kafka"] |= {name: value for name, _, value in pairs}
    if registry:
        head["registry"] = {"url": registry}
    if warehouse:
        head["catalog"] = {"warehouse": warehouse}
    return head


def _proposals(output: Output, head: dict[str, Any]) -> list[Proposal]:
    draft = yaml.safe_dump({**head, "namespace": _NAME, "topics": ["any"]}, sort_keys=False)
    try:
        spec = _load(output, draft)
        source = open_topics(spec)
    except SpecError as error:  # Nobody has seen the draft.
        mistakes = [
            SpecError(
                _by_options(mistake.message), remedy=_by_options(mistake.remedy), where=_option_of(draft, mistake.where)
            )
            for mistake in (error, *error.others)
        ]
        first, others = mistakes[0], mistakes[1:]
        raise SpecError(first.message, remedy=first.remedy, where=first.where, others=others) from None
    topics = source.topics(lambda _: True)
    readable = [name for name in sorted(topics) if not is_internal(name)]
    places = [(name, number) for name in readable for number in range(topics[name].partition_count)]
    log_ends, ends = source.log_ends(places), source.ends(places)
    held = {place[0] for place, end in ends.items() if end < log_ends.get(place, end)}
    records = _samples(source, spec, ends)
    if spec.registry is None:
        return [propose(name, records.get(name, ()), None, name in held) for name in sorted(topics)]
    registry = ConfluentRegistry(spec.registry)
    try:
        return [propose(name, records.get(name, ()), registry.by_id, name in held) for name in sorted(topics)]
    except UnusableSchema as error:
        raise UnavailableError(f"a schema of the registry cannot be read: {error}") from None
    finally:
        registry.close()


def _by_options(text: str) -> str:
    for words, option in _OPTION_OF_WORDS.items():
        text = text.replace(words, option)
    return text


def _option_of(draft: str, where: str) -> str:
    """Returns the option that a line of the draft was made of. where: FILE:LINE."""
    line = where.rpartition(":")[2]
    lines = draft.splitlines()[: int(line) if line.isdecimal() else 1]
    if "bootstrap.servers" in lines[-1]:
        return "--bootstrap-servers"
    section = next(text.partition(":")[0] for text in reversed(lines) if not text.startswith(" "))
    return _OPTIONS.get(section, "--kafka")


def _samples(source: Source, spec: PipelineSpec, ends: dict[Partition, int]) -> dict[str, list[ReadRecord]]:
    """Returns the newest records of each topic. ends: of its partitions."""
    first = source.beginnings(ends)
    ranges = [
        OffsetRange(*place, max(first.get(place, 0), end - _RECORDS), end) for place, end in ends.items() if end > 0
    ]
    samples: dict[str, list[ReadRecord]] = {}
    for record in read_sample(spec.kafka, ranges, SystemClock()):
        samples.setdefault(record.topic, []).append(record)
    return samples


def _load(output: Output, text: str) -> PipelineSpec:
    """Returns what a pipeline file with this text declares."""
    with temporary_folder("frazil-draft-") as folder:
        path = folder / "frazil.yaml"
        path.write_text(text, encoding="utf-8")
        spec = load_spec(path, overrides=Overrides())
    output.hide(spec.file.secrets)
    return spec


def _finish(output: Output, text: str, file: Path, proposals: Sequence[Proposal]) -> int:
    is_printed = file == Path("-")
    if not is_printed:
        try:
            with file.open("x", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            message, remedy = f"the file cannot be written: {error.strerror}", "name another with -f"
            raise UnavailableError(message, remedy=remedy, where=str(file)) from None
    spec = _load(output, text) if is_printed else load_spec(file, overrides=Overrides())
    failed = [finding for finding in findings_of(spec) if not finding.is_ok]
    document = init_document(None if is_printed else file, text, proposals, failed)
    tables = sum(proposal.settings is not None for proposal in proposals)
    output.result(
        document, text if is_printed else f"{file}: {tables} of {len(proposals)} topics; next: frazil plan -f {file}"
    )
    for finding in failed:
        output.note(f"problem: {finding.name}: {finding.found}; {finding.remedy}")
    return 1 if failed else 0


def init_document(
    file: Path | None, text: str, proposals: Sequence[Proposal], failed: Sequence[Finding]
) -> dict[str, Any]:
    """Returns the JSON of the command. failed: the checks that failed."""
    return {
        "file": None if file is None else str(file),
        "pipeline_file": text,
        "topics": [asdict(proposal) for proposal in proposals],
        "problems": [to_json(problem) for problem in failed],
    }
