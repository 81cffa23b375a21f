"""Reaches stores: from the driver's JVM as commits do, and from Python as tasks do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError

from frazil.catalog.iceberg.java import configuration_of, java_errors, mistake_of, unavailable
from frazil.catalog.iceberg.store_access import HADOOP_IO, IO_OF, identity_of, try_writing
from frazil.errors import FrazilError, UnavailableError
from frazil.refusals import refusal_remedy
from frazil.store.addresses import address_of
from frazil.store.file_io import store_of
from frazil.store.properties import task_properties
from frazil.refusals import OF_TASKS

_DENIED = "access denied"
_MAY_NOT_LIST = "it answers, but this client may not list it"
_RESOLVING = "org.apache.iceberg.io.ResolvingFileIO"


def probe_store(gateway: Any, hadoop: Mapping[str, str], properties: Mapping[str, str], location: str) -> str:
    """Lists the first objects under `location`, by Iceberg's file access, which commits use too, and by the client of
    tasks, and tries to write there; returns a description of the result. properties: of the catalog or, better, of a
    table: a catalog may vend others than the pipeline file has.

    Raises: UnavailableError where that fails; SpecError for settings that tasks cannot obey.
    """
    jvm = gateway.jvm
    configuration = configuration_of(gateway, hadoop)
    try:
        io = jvm.org.apache.iceberg.CatalogUtil.loadFileIO(
            properties.get("io-impl", _RESOLVING), dict(properties), configuration
        )
        try:
            result = _list(io, location)
            task_settings = {**properties, **identity_of(gateway, io, location, properties)}
            try:
                try_writing(gateway, io, location)
            except java_errors() as error:
                raise unavailable("the store cannot be written to", error, location) from None
        finally:
            _close(io)
    except java_errors() as error:
        raise _unreachable(error, location) from None
    except Py4JError:
        return "it answers"
    if result != _MAY_NOT_LIST:
        _probe_for_tasks(task_properties(task_settings), location)
    return result


def properties_of_file(
    gateway: Any, hadoop: Mapping[str, str], properties: Mapping[str, str], location: str
) -> dict[str, str]:
    """Returns what tasks need to reach a file that is not a table's, by the properties of a catalog.

    Raises: UnavailableError where the driver's client finds no identity; SpecError for settings that tasks cannot obey.
    """
    kept, kind = task_properties(properties), address_of(location).kind
    if kind in ("local", "oss"):
        return kept
    try:
        load = gateway.jvm.org.apache.iceberg.CatalogUtil.loadFileIO
        io = load(IO_OF.get(kind, HADOOP_IO), dict(properties), configuration_of(gateway, hadoop))
        try:
            return {**kept, **identity_of(gateway, io, location, properties)}
        finally:
            _close(io)
    except java_errors() as error:
        raise _unreachable(error, location) from None


def _close(io: Any) -> None:
    """Closes file access of Iceberg's. HadoopFileIO has nothing to close: its method is its interface's, which py4j does
    not find.
    """
    with suppress(Py4JError):
        io.close()


def _list(io: Any, location: str) -> str:
    """Returns what listing the location shows. A folder of HDFS that does not exist yet is empty. Frazil reads and writes
    objects by name; many stores do not allow their clients to list.
    """
    try:
        is_there = io.listPrefix(location.rstrip("/") + "/").iterator().hasNext()
    except java_errors() as error:
        if _DENIED in _unreachable(error, location).message.lower():
            return _MAY_NOT_LIST
        if address_of(location).kind != "hdfs" or "FileNotFoundException" not in str(error):
            raise
        is_there = False
    return "it answers" if is_there else "it answers, and is empty"


def _unreachable(error: Exception, location: str) -> FrazilError:
    what = "the store cannot be reached"
    return mistake_of(what, error, location) or unavailable(what, error, location)


def _probe_for_tasks(properties: Mapping[str, str], location: str) -> None:
    try:
        store_of(tuple(sorted(properties.items()))).probe(location)
    except OSError as error:
        message = f"Iceberg's Java client reaches the store, and tasks do not: {error}"
        raise UnavailableError(message, remedy=refusal_remedy(str(error), OF_TASKS), where=location) from None
