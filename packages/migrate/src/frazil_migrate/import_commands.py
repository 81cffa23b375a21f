"""`frazil import …`: configurations of other tools as pipeline files, with a report of what was not carried over."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from frazil.cli.output import Output
from frazil.errors import SpecError
from frazil_migrate.imports import automq as of_automq
from frazil_migrate.imports.auto_cdc import import_flows
from frazil_migrate.imports.debezium_server import import_server
from frazil_migrate.imports.draft import Imported
from frazil_migrate.imports.flink_cdc import import_pipeline
from frazil_migrate.imports.flink_sql import import_script
from frazil_migrate.imports.kafka_connect import import_connector
from frazil_migrate.imports.sources import fetch, read_text
from frazil_migrate.imports.tableflow import import_topics

SOMETHING_LEFT = 4
"""The exit code where something was not carried over."""
Source = Annotated[Path, typer.Argument(metavar="FILE", help="The configuration; - for standard input.")]
OptionalSource = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="The configuration; - for standard input.", show_default=False)
]
Bootstrap = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="The brokers to write into the pipeline file.", show_default=False),
]
Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="The connector in a Connect REST API: http://…/connectors/NAME.", show_default=False
    ),
]
Topic = Annotated[str | None, typer.Option(help="The topic that plain properties belong to.", show_default=False)]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The brokers to write into the pipeline file. Without FILE their topics' configuration is read.",
        show_default=False,
    ),
]


def kafka_connect(output: Output, file: OptionalSource = None, url: Url = None, bootstrap: Bootstrap = None) -> int:
    """Turn a connector of Apache's or Tabular's Iceberg sink into a pipeline file.

    Reads JSON, as a mapping or as `{name, config}`, properties, YAML such as Strimzi's, or a live Connect REST API.
    Converters, transforms and predicates are carried over too. Prints the pipeline file to standard output, and the
    settings that are not carried over to standard error.

    Exit code: 0; 2 when the configuration cannot be read; 4 when something was not carried over.
    """
    if (file is None) == (url is None):
        raise SpecError("the configuration is to come from FILE or from --url", remedy="give one of FILE and --url")
    return _print(output, import_connector(fetch(url) if url else read_text(file or Path("-")), bootstrap))


def automq(output: Output, file: OptionalSource = None, topic: Topic = None, bootstrap: Cluster = None) -> int:
    """Turn the configuration of AutoMQ's table topics into a pipeline file.

    Reads the output of `kafka-configs.sh --describe`, the commands that set the keys, JSON with the brokers' keys and
    an object for each topic, the properties of one topic, or a live cluster. Prints the pipeline file to standard
    output, and the settings that are not carried over to standard error.

    Exit code: 0; 2 when the configuration cannot be read; 4 when something was not carried over.
    """
    if file is not None:
        return _print(output, of_automq.import_topics(read_text(file), bootstrap, topic))
    if bootstrap is None:
        raise SpecError("the configuration is to come from FILE or --bootstrap", remedy="give FILE, or --bootstrap")
    return _print(output, of_automq.import_cluster(bootstrap))


def flink_cdc(output: Output, file: Source, bootstrap: Bootstrap = None) -> int:
    """Turn the YAML of a Flink CDC pipeline (sink, routes and transforms) into a pipeline file.

    Prints the pipeline file to standard output, and the settings that are not carried over to standard error.

    Exit code: 0; 2 when the configuration cannot be read; 4 when something was not carried over.
    """
    return _print(output, import_pipeline(read_text(file), bootstrap))


def flink_sql(output: Output, file: Source, bootstrap: Bootstrap = None) -> int:
    """Turn a Flink SQL script (CREATE CATALOG, CREATE TABLE and INSERT INTO … SELECT) into a pipeline file.

    Prints the pipeline file to standard output, and the settings that are not carried over to standard error.

    Exit code: 0; 2 when the script cannot be read; 4 when something was not carried over.
    """
    return _print(output, import_script(read_text(file), bootstrap))


def debezium_server(output: Output, file: Source, bootstrap: Bootstrap = None) -> int:
    """Turn the application.properties of Debezium Server's Iceberg sink into a pipeline file.

    The settings may also be YAML, JSON, environment variables (a file of them, or Compose's and Kubernetes' YAML), a
    ConfigMap, or the operator's `DebeziumServer`. Prints the pipeline file to standard output, and the settings that
    are not carried over to standard error.

    Exit code: 0; 2 when the configuration cannot be read; 4 when something was not carried over.
    """
    return _print(output, import_server(read_text(file), bootstrap))


def tableflow(output: Output, file: Source, bootstrap: Bootstrap = None) -> int:
    """Turn Confluent Tableflow's settings of topics, in the JSON of its API or command, into a pipeline file.

    Prints the pipeline file to standard output, and the settings that are not carried over to standard error.

    Exit code: 0; 2 when the configuration cannot be read; 4 when something was not carried over.
    """
    return _print(output, import_topics(read_text(file), bootstrap))


def auto_cdc(output: Output, file: Source, bootstrap: Bootstrap = None) -> int:
    """Turn the AUTO CDC flows of a declarative pipeline of Databricks or Spark, in SQL or Python, into a pipeline file.

    Prints the pipeline file to standard output, and the settings that are not carried over to standard error.

    Exit code: 0; 2 when the pipeline cannot be read; 4 when something was not carried over.
    """
    return _print(output, import_flows(read_text(file), bootstrap))


def import_document(imported: Imported) -> dict[str, Any]:
    """Returns the JSON of an import."""
    return {
        "pipeline_file": imported.text,
        "carried_over": list(imported.carried),
        "not_carried_over": [asdict(loss) for loss in imported.losses],
        "not_needed": [{"key": key, "reason": reason} for key, reason in imported.unneeded.items()],
        "notes": list(imported.notes),
    }


def _print(output: Output, imported: Imported) -> int:
    for loss in imported.losses:
        output.note(f"not carried over: {loss.key}: {loss.reason}; {loss.remedy}")
    output.result(import_document(imported), imported.text.rstrip("\n"))
    return SOMETHING_LEFT if imported.losses else 0
