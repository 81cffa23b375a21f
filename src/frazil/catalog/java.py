"""Java's collections from Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def each(iterable: Any) -> Iterator[Any]:
    """The members of a Java collection, by its own iterator: py4j's ends with an exception of Java, which is not the same
    everywhere once PySpark has put its own words in place of it.
    """
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()
