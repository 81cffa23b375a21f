"""Java collections, commits and file access from Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError

from frazil.catalog.iceberg.java_errors import java_errors, unavailable


def each(iterable: Any) -> Iterator[Any]:
    """Yields the members of a Java collection by its own iterator: py4j's ends with a Java exception, whose class
    PySpark changes.
    """
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def length(iterable: Any) -> int:
    """Returns the number of members of a Java collection."""
    size = getattr(iterable, "size", None)
    return int(size()) if size is not None else sum(1 for _ in iterable)


def strings(gateway: Any, words: Sequence[str]) -> Any:
    """Returns a Java array of strings."""
    array = gateway.new_array(gateway.jvm.java.lang.String, len(words))
    for number, word in enumerate(words):
        array[number] = word
    return array


class Collector:
    """java.util.function.Consumer: collects the strings that it receives, such as paths of files."""

    class Java:
        """What py4j needs to know."""

        implements: tuple[str, ...] = ("java.util.function.Consumer",)

    def __init__(self) -> None:
        self.paths: list[str] = []

    def accept(self, path: str) -> None:
        """Called by the JVM for each string."""
        self.paths.append(path)


def make_namespaces(gateway: Any, catalog: Any, namespace: Any) -> None:
    """Creates a namespace of a Java catalog and its parents, where they do not exist."""
    for depth in range(1, namespace.length() + 1):
        levels = [namespace.level(level) for level in range(depth)]
        part = gateway.jvm.org.apache.iceberg.catalog.Namespace.of(strings(gateway, levels))
        try:
            if not catalog.namespaceExists(part):
                catalog.createNamespace(part)
        except java_errors():
            # Another thread or process was faster; a database catalog reports it by a constraint of its own.
            if not catalog.namespaceExists(part):
                raise


def send(update: Any, java: Any) -> None:
    """Commits an update of `java` whose validator admits it into the table once.

    Iceberg retries a refused commit, and deletes what it wrote for a commit that is refused for good. But a proxy on
    the way may have sent an attempt twice: then the first copy succeeded, it is the reason why all later ones are
    refused, and Iceberg would delete the manifests of the table's own snapshot. So Iceberg deletes nothing here by
    itself.

    Raises: what Iceberg raises; everything written for the commit then stays, and files that no snapshot names are
    orphans.
    """
    left = Collector()
    update.deleteWith(left)
    update.commit()
    remove(java, left.paths)


def remove(java: Any, paths: Iterable[str]) -> None:
    """Deletes files that no snapshot names, as far as possible: an orphan costs space only."""
    for path in set(paths):
        with suppress(*java_errors()):
            java.io().deleteFile(path)


_RESOLVING = "org.apache.iceberg.io.ResolvingFileIO"
_DENIED = "access denied"


def probe_store(gateway: Any, hadoop: Mapping[str, str], properties: Mapping[str, str], location: str) -> str:
    """Lists the first object under `location`; returns a description of the result. The request goes through Iceberg's
    file access, which commits use too. properties: of the catalog or, better, of a table: a catalog may vend others
    than the pipeline file has.

    Raises: UnavailableError where that fails.
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
            # Frazil reads and writes objects by name; many stores do not allow their clients to list.
            return "it answers, but this client may not list it"
        raise failure from None
    except Py4JError:
        return "it answers"
    return "it answers, and is empty" if is_empty else "it answers"
