"""What loading a table asks Java for."""

from __future__ import annotations

from frazil.catalog.iceberg.tables import Operations


class JavaTable:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def operations(self) -> object:
        self.asked += 1
        return object()


def test_operations_are_asked_for_once_of_each_java_table() -> None:
    operations, first, second = Operations(), JavaTable(), JavaTable()
    assert operations.of("n.a", first) is operations.of("n.a", first)
    assert operations.of("n.a", second) is not operations.of("n.b", first)
    assert operations.of("n.a", second) is operations.of("n.a", second)
    assert (first.asked, second.asked) == (2, 1)
