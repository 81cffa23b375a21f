"""Data files that tasks described as JSON, handed to Iceberg's Java API: thousands in a few calls.

A call by py4j takes a tenth of a millisecond and more on either side, and a batch may have ten thousand files. So Java
itself goes through them: what is to be done with each is put together of method handles.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

from frazil.types import DataFile

Adding = Literal["AppendFiles.appendFile", "OverwriteFiles.addFile", "RowDelta.addRows"]
_SPEC_ID = re.compile(r'"spec-id": ?(\d+)')
_AT_ONCE = 2000
_ICEBERG = "org.apache.iceberg"
_JACKSON = f"{_ICEBERG}.shaded.com.fasterxml.jackson"


class DataFiles:
    """The way into the JVM behind py4j's `gateway`."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm

    def add(self, files: Sequence[DataFile], table: Any, update: Any, adding: Adding) -> None:
        """Calls the update's method `adding` for each file. A file has the partition spec that it was written with, which
        need not be the table's newest.
        """
        specs = table.specs()
        for spec_id, alike in groupby(files, key=_spec_id):
            found = list(alike)
            add_one = self._consumer(specs.get(spec_id), update, adding)
            for first in range(0, len(found), _AT_ONCE):
                text = ",".join(file.content for file in found[first : first + _AT_ONCE])
                self._reader.readTree(f"[{text}]").forEach(add_one)

    @cached_property
    def _reader(self) -> Any:
        """Iceberg's own mapper, which here also reads NaN and Infinity: a partition value may be one."""
        feature = self._class(f"{_JACKSON}.core.json.JsonReadFeature").getField("ALLOW_NON_NUMERIC_NUMBERS").get(None)
        with_feature = getattr(
            self._jvm.org.apache.iceberg.util.JsonUtil.mapper().reader(), "with"
        )  # A word of Python's.
        return with_feature(feature.mappedFeature())

    def _consumer(self, spec: Any, update: Any, adding: Adding) -> Any:
        """A Java Consumer: node -> update.adding(ContentFileParser.fromJson(node, spec))."""
        handles = self._jvm.java.lang.invoke.MethodHandles
        arguments = self._gateway.new_array(self._jvm.java.lang.Object, 1)
        arguments[0] = spec
        parse = handles.insertArguments(self._parse, 1, arguments)
        owner, name = adding.split(".")
        interface, file = self._class(f"{_ICEBERG}.{owner}"), self._class(f"{_ICEBERG}.DataFile")
        kind = self._kind(interface, file)
        add = handles.publicLookup().findVirtual(interface, name, kind).bindTo(update)
        node = parse.type().parameterType(0)
        both = handles.filterReturnValue(parse.asType(self._kind(file, node)), add)
        consumer = self._class("java.util.function.Consumer")
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(consumer, both)

    @cached_property
    def _parse(self) -> Any:
        node, spec = self._class(f"{_JACKSON}.databind.JsonNode"), self._class(f"{_ICEBERG}.PartitionSpec")
        kind = self._kind(self._class(f"{_ICEBERG}.ContentFile"), node, spec)
        lookup = self._jvm.java.lang.invoke.MethodHandles.publicLookup()
        return lookup.findStatic(self._class(f"{_ICEBERG}.ContentFileParser"), "fromJson", kind)

    def _kind(self, answer: Any, *parameters: Any) -> Any:
        words = self._jvm.java.util.ArrayList()
        for parameter in parameters:
            words.add(parameter)
        return self._jvm.java.lang.invoke.MethodType.methodType(answer, words)

    def _class(self, name: str) -> Any:
        """As py4j itself finds classes, those of Spark's own loader included."""
        return self._jvm.py4j.reflection.ReflectionUtil.classForName(name)


def _spec_id(file: DataFile) -> int:
    found = _SPEC_ID.search(file.content)
    return int(found[1]) if found else 0
