"""Java's collections from Python, and what Iceberg names with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from frazil.catalog.java_errors import java_errors


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
