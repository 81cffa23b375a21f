"""Names of Java classes that py4j asks the JVM for once.

`jvm.org.apache.iceberg.Table` is five questions to the JVM, which for each tries to load classes of such names by several
loaders, and py4j keeps none of the answers. In a stream of small batches that was a tenth of all CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView


def remember_names() -> None:
    """From now on what is known of packages, classes and static methods is kept, in this process, with the view of the JVM
    that told it; static fields are read each time.
    """
    for kind in (JVMView, JavaPackage, JavaClass):
        if not hasattr(kind.__getattr__, "asks"):
            kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(ask: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def look_up(owner: Any, name: str) -> Any:
        found = ask(owner, name)
        # Any name that is not a class is a package to py4j: a class that is only imported later must be asked for again.
        is_package = isinstance(found, JavaPackage) and name.islower()
        if is_package or isinstance(found, (JavaClass, JavaMember)):
            vars(owner)[name] = found  # Python does not come here for what an object has itself.
        return found

    look_up.asks = ask  # type: ignore[attr-defined]
    return look_up
