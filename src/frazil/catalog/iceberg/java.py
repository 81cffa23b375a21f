"""Java's collections from Python, and what Iceberg names with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError

from frazil.catalog.iceberg.java_errors import java_errors, unavailable


def each(iterable: Any) -> Iterator[Any]:
    """The members of a Java collection, by its own iterator: py4j's ends with an exception of Java, which is not the same
    everywhere once PySpark has put its own words in place of it.
    """
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def length(iterable: Any) -> int:
    """How many members a Java collection has."""
    size = getattr(iterable, "size", None)
    return int(size()) if size is not None else sum(1 for _ in iterable)


def strings(gateway: Any, words: Sequence[str]) -> Any:
    """A Java array."""
    array = gateway.new_array(gateway.jvm.java.lang.String, len(words))
    for number, word in enumerate(words):
        array[number] = word
    return array


class Collector:
    """java.util.function.Consumer: keeps the strings that it is given, such as paths of files."""

    class Java:
        """What py4j needs to know."""

        implements: tuple[str, ...] = ("java.util.function.Consumer",)

    def __init__(self) -> None:
        self.words: list[str] = []

    def accept(self, word: str) -> None:
        """Called by the JVM for each."""
        self.words.append(word)


def make_namespaces(gateway: Any, catalog: Any, namespace: Any) -> None:
    """Makes a namespace of a Java catalog, and those around it, where they are not there."""
    for depth in range(1, namespace.length() + 1):
        levels = [namespace.level(level) for level in range(depth)]
        part = gateway.jvm.org.apache.iceberg.catalog.Namespace.of(strings(gateway, levels))
        try:
            if not catalog.namespaceExists(part):
                catalog.createNamespace(part)
        except java_errors():
            # Another thread or process was quicker; a database catalog says so by a constraint of its own.
            if not catalog.namespaceExists(part):
                raise


def send(update: Any, java: Any) -> None:
    """Commits an update of `java` whose validator lets it into the table once. Raises what Iceberg raises: then all that was
    written for it stays, and what no snapshot names of that is an orphan like any other.
    """
    left = Collector()
    update.deleteWith(left)
    update.commit()
    remove(java, left.words)


def remove(java: Any, paths: Iterable[str]) -> None:
    """Removes files that no snapshot names, as far as possible: an orphan costs space, not truth."""
    for path in set(paths):
        with suppress(*java_errors()):
            java.io().deleteFile(path)


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
            return "it answers, and does not let this client list"
        raise failure from None
    except Py4JError:
        return "it answers"
    return "it answers, and nothing is in it yet" if is_empty else "it answers"
