"""Makes py4j look up each name of a Java class once.

`jvm.org.apache.iceberg.Table` makes five requests to the JVM, each of which tries to load classes by several loaders,
and py4j caches no answer. With small batches that took a tenth of all CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView


def remember_names() -> None:
    """Makes py4j cache packages, classes and static methods, per view of a JVM, from now on; static fields are read
    each time.
    """
    for kind in (JVMView, JavaPackage, JavaClass):
        if not hasattr(kind.__getattr__, "asks"):
            kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(ask: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def look_up(owner: Any, name: str) -> Any:
        found = ask(owner, name)
        # To py4j any name that is not a class is a package: a class that is imported only later must be looked up
        # again.
        is_package = isinstance(found, JavaPackage) and name.islower()
        if is_package or isinstance(found, (JavaClass, JavaMember)):
            vars(owner)[name] = found  # Python calls `__getattr__` only for attributes that the object lacks.
        return found

    look_up.asks = ask  # type: ignore[attr-defined]
    return look_up
