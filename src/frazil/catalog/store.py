"""Reaches a table store through Iceberg's own file access, so that what is tried is what a commit will use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError

from frazil.catalog.java_errors import java_errors, unavailable

_RESOLVING = "org.apache.iceberg.io.ResolvingFileIO"
_DENIED = "access denied"


def probe_store(gateway: Any, hadoop: Mapping[str, str], properties: Mapping[str, str], location: str) -> str:
    """Lists the first object under `location`; what was found, in words. UnavailableError where that fails.

    properties: of the catalog or, better, of a table: a catalog may hand out others than the pipeline file has.
    """
    jvm = gateway.jvm
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    for name, value in hadoop.items():
        configuration.set(name, value)
    try:
        io = jvm.org.apache.iceberg.CatalogUtil.loadFileIO(
            properties.get("io-impl", _RESOLVING), dict(properties), configuration
        )
        try:
            is_empty = not io.listPrefix(location.rstrip("/") + "/").iterator().hasNext()
        finally:
            io.close()
    except java_errors() as error:
        failure = unavailable("the store cannot be reached", error, location)
        if _DENIED in failure.message.lower():
            # Frazil reads and writes by name; that this client may not list is how many stores are kept.
            return "it answers, but this client may not list it"
        raise failure from None
    except Py4JError:
        return "it answers"
    return "it answers, and is empty" if is_empty else "it answers"
