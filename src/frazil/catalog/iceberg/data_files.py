"""Data and delete files described as JSON, passed to Iceberg's Java API: thousands in a few calls.

A py4j call takes a tenth of a millisecond and more on either side, and a batch may have ten thousand files. Java itself
therefore iterates over them, with a function composed of method handles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

from frazil.catalog.iceberg.java import each

UpdateMethod = Literal[
    "AppendFiles.appendFile",
    "OverwriteFiles.addFile",
    "RowDelta.addRows",
    "RowDelta.removeRows",
    "RowDelta.addDeletes",
    "RowDelta.removeDeletes",
    "RewriteFiles.addFile",
    "RewriteFiles.deleteFile",
]
"""A method of an update that takes one file."""
_OF_DELETES: tuple[UpdateMethod, ...] = (
    "RowDelta.addDeletes",
    "RowDelta.removeDeletes",
    "RewriteFiles.addFile",
    "RewriteFiles.deleteFile",
)
_SPEC_ID = re.compile(r'"spec-id": ?(\d+)')
_QUOTED = ('"NaN"', 'Infinity"')
_AT_ONCE = 2000
_ICEBERG = "org.apache.iceberg"
_JACKSON = f"{_ICEBERG}.shaded.com.fasterxml.jackson"


class DataFiles:
    """Passes files to the JVM behind py4j's `gateway`."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._handles_by_method: dict[UpdateMethod, tuple[Any, Any]] = {}

    def apply(self, contents: Iterable[str], table: Any, update: Any, method: UpdateMethod) -> None:
        """Calls the update's method for each file. A file has the partition spec that it was written with, which need
        not be the table's current one.
        """
        specs = table.specs()
        for spec_id, alike in groupby(contents, key=_spec_id_of):
            spec = specs.get(spec_id)
            found = [_as_read(content, spec) for content in alike]
            apply_one = self._consumer(spec, update, method)
            for first in range(0, len(found), _AT_ONCE):
                self._reader.readTree(f"[{','.join(found[first : first + _AT_ONCE])}]").forEach(apply_one)

    def read(self, contents: Iterable[str], spec: Any) -> list[Any]:
        """Returns Java data files, all of this partition spec."""
        parser = self._jvm.org.apache.iceberg.ContentFileParser
        return [parser.fromJson(self._reader.readTree(_as_read(content, spec)), spec) for content in contents]

    def texts(self, words: Iterable[str]) -> Any:
        """Returns a Java list of these strings, none of which may contain NUL."""
        separated = self._jvm.java.util.regex.Pattern.compile("\x00").splitAsStream("\0".join(words))
        return separated.toList()

    @cached_property
    def _reader(self) -> Any:
        """Iceberg's JSON mapper, which here also reads NaN and Infinity: a partition value may be one."""
        feature = self._class(f"{_JACKSON}.core.json.JsonReadFeature").getField("ALLOW_NON_NUMERIC_NUMBERS").get(None)
        with_feature = getattr(
            self._jvm.org.apache.iceberg.util.JsonUtil.mapper().reader(), "with"
        )  # `with` is a keyword of Python.
        return with_feature(feature.mappedFeature())

    def _consumer(self, spec: Any, update: Any, method: UpdateMethod) -> Any:
        """Returns a Java Consumer: node -> update.method(ContentFileParser.fromJson(node, spec))."""
        handles = self._handles
        if method not in self._handles_by_method:
            self._handles_by_method[method] = self._method_handles(method)
        parse, add = self._handles_by_method[method]
        arguments = self._gateway.new_array(self._jvm.java.lang.Object, 1)
        arguments[0] = spec
        both = handles.filterReturnValue(handles.insertArguments(parse, 1, arguments), add.bindTo(update))
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(self._consumers, both)

    def _method_handles(self, method: UpdateMethod) -> tuple[Any, Any]:
        """Returns two method handles: one that reads a file, (node, spec) -> file, and the update's method, (update,
        file) -> update.
        """
        owner, name = method.split(".")
        interface = self._class(f"{_ICEBERG}.{owner}")
        file = self._class(f"{_ICEBERG}.{'DeleteFile' if method in _OF_DELETES else 'DataFile'}")
        node, spec = self._class(f"{_JACKSON}.databind.JsonNode"), self._class(f"{_ICEBERG}.PartitionSpec")
        parser, parsed = self._class(f"{_ICEBERG}.ContentFileParser"), self._class(f"{_ICEBERG}.ContentFile")
        lookup = self._handles.publicLookup()
        parse = lookup.findStatic(parser, "fromJson", self._kind(parsed, node, spec))
        add = lookup.findVirtual(interface, name, self._kind(interface, file))
        return parse.asType(self._kind(file, node, spec)), add

    @property
    def _handles(self) -> Any:
        return self._jvm.java.lang.invoke.MethodHandles

    @cached_property
    def _consumers(self) -> Any:
        return self._class("java.util.function.Consumer")

    def _kind(self, answer: Any, *parameters: Any) -> Any:
        words = self._jvm.java.util.ArrayList()
        for parameter in parameters:
            words.add(parameter)
        return self._jvm.java.lang.invoke.MethodType.methodType(answer, words)

    def _class(self, name: str) -> Any:
        """Returns the Java class as py4j finds it, also from Spark's class loader."""
        return self._jvm.py4j.reflection.ReflectionUtil.classForName(name)


def _as_read(content: str, spec: Any) -> str:
    """Returns the JSON of one file as Java's parser accepts it: Iceberg writes NaN and Infinity in quotes, and does not
    read them again.
    """
    return _unquoted(content, spec) if any(word in content for word in _QUOTED) else content


def _spec_id_of(content: str) -> int:
    found = _SPEC_ID.search(content)
    return int(found[1]) if found else 0


def _unquoted(content: str, spec: Any) -> str:
    """Returns the JSON with numbers in place of texts as values of floating-point partition fields."""
    described = json.loads(content)
    values = described["partition"]
    for place, field in enumerate(each(spec.partitionType().fields())):
        name = place if isinstance(values, list) else str(field.fieldId())
        value = values[place] if isinstance(values, list) else values.get(name)
        if isinstance(value, str) and str(field.type().typeId()) in ("FLOAT", "DOUBLE"):
            values[name] = float(value)
    return json.dumps(described)
