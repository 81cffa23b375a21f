"""Where the parts of a process are named and put together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frazil.catalog.iceberg import IcebergCatalog
from frazil.cli.output import Output
from frazil.errors import UnavailableError
from frazil.runtime.connect import catalog_properties, uses_s3
from frazil.runtime.jvm import Jvm
from frazil.spec import PipelineSpec, load_spec


def read_spec(output: Output, file: Path) -> PipelineSpec:
    """The pipeline file; from now on nothing that is written shows its secrets."""
    spec = load_spec(file)
    output.hide(spec.secrets)
    return spec


@contextmanager
def running_jvm(spec: PipelineSpec) -> Iterator[Jvm]:
    """The JVM of this process, with the store's client when it needs one."""
    jvm = Jvm(spec.spark.conf, spec.spark.master, needs_s3=uses_s3(spec))
    try:
        yield jvm
    finally:
        jvm.close()


def open_catalog(jvm: Jvm, spec: PipelineSpec) -> IcebergCatalog:
    """The pipeline file's catalog; makes the folder of a local one."""
    uri = spec.catalog.uri
    if uri.startswith("jdbc:sqlite:"):
        folder = Path(uri.removeprefix("jdbc:sqlite:").split("?")[0]).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(f"the catalog's folder cannot be made: {error.strerror}", where=str(folder)) from None
    return IcebergCatalog(jvm.gateway, spec.pipeline, catalog_properties(spec), jvm.hadoop)
