"""Partition values, their JSON, paths and sort orders, against Iceberg's own Java library: every type and transform."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from frazil.errors import SpecError
from frazil.schema.arrow import arrow_type
from frazil.schema.evolve import new_schema
from frazil.spec.partitioning import PartitionTerm, check_type
from frazil.spec.syntax.types import parse_type
from frazil.write.transforms import partition_texts, path_of, transformed
from tests.fixtures.jvms import light_jvm

pytestmark = pytest.mark.jvm

_TYPES = (
    "boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "string", "uuid", "fixed[1]",
    "fixed[7]", "binary", "decimal(1,0)", "decimal(9,2)", "decimal(18,18)", "decimal(38,10)",
)  # fmt: skip
_WORDS = (
    "identity", "year", "month", "day", "hour", "bucket[1]", "bucket[16]", "bucket[10000]", "bucket[2147483647]",
    "truncate[1]", "truncate[3]", "truncate[10]", "truncate[1000]", "truncate[2147483647]", "void",
)  # fmt: skip
_RANDOM_VALUES = 40
_MICROS_OF_YEAR = 31_556_952_000_000


class Rng:
    """The same numbers each time, of any size."""

    def __init__(self, seed: str) -> None:
        self._generator = np.random.default_rng(list(seed.encode()))

    def whole(self, least: int, most: int) -> int:
        """One of `least` to `most`."""
        return least + int.from_bytes(self._generator.bytes(24), "big") % (most - least + 1)

    def raw(self, count: int) -> bytes:
        """So many bytes."""
        return self._generator.bytes(count)


def _edges(kind: str) -> list[Any]:
    """Values at which implementations differ."""
    word, _, size = kind.rstrip(")]").replace("[", "(").partition("(")
    days = [0, 1, -1, 30, 31, 59, 364, 365, -365, -366, 11016, 2932896, 2932897, -719162, -719529, 10_000_000]
    micros = [0, 1, -1, 999_999, 3_599_999_999, 3_600_000_000, -3_600_000_000, -3_600_000_001, 86_399_999_999]
    micros += [day * 86_400_000_000 for day in days] + [day * 86_400_000_000 - 1 for day in days]
    texts = ["", "a", "iceberg", "ice", "\x00", "é", "éa日本", "a😀b", "😀😀😀", "😀", "日" * 40, "/ +%&=?#", "a/../b"]
    texts += ["null", "ﬁ\u0301"]
    raw = [b"", b"\x00", b"\xff", b"\xff\xfe\xfd\xfc", bytes(range(40)), b"iceberg"]
    if word == "decimal":
        most = 10 ** int(size.split(",")[0]) - 1
        numbers = (0, 1, -1, 9, -9, 99, -99, 150, -151, 12345, -12345, most, -most, most // 3, -(most // 7))
        return [number for number in numbers if abs(number) <= most]
    if word == "fixed":
        return [bytes(int(size)), b"\xff" * int(size), bytes(range(int(size)))]
    known: dict[str, list[Any]] = {
        "boolean": [True, False],
        "int": [0, 1, -1, 7, -7, 10, -10, 11, 2**31 - 1, -(2**31), 34, 999, -1000],
        "long": [0, 1, -1, 7, -7, 10, -11, 2**63 - 1, -(2**63), 2**31, -(2**31) - 1, 34],
        "float": [0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf"), float("nan")],
        "double": [0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf"), float("nan"), 123.456],
        "date": days,
        "time": [0, 1, 60_000_000, 61_000_000, 1_000, 500_000, 86_399_999_999, 43_200_000_000, 3_600_000_001],
        "timestamp": micros,
        "timestamptz": micros,
        "string": texts,
        "uuid": [bytes(16), b"\xff" * 16, UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes],
        "binary": raw,
    }  # fmt: skip
    return known[word]


def _rngs(kind: str, rng: Rng) -> list[Any]:
    """Values by chance."""
    word, _, size = kind.rstrip(")]").replace("[", "(").partition("(")
    many = range(_RANDOM_VALUES)
    if word == "decimal":
        most = 10 ** int(size.split(",")[0]) - 1
        return [rng.whole(-most, most) // 10 ** rng.whole(0, len(str(most)) - 1) for _ in many]
    if word == "fixed":
        return [rng.raw(int(size)) for _ in many]
    if word == "string":
        dead_letters = "aZ09 /%é日😀\u0301"
        return [
            "".join(dead_letters[rng.whole(0, len(dead_letters) - 1)] for _ in range(rng.whole(0, 12))) for _ in many
        ]
    span = 290_000 * _MICROS_OF_YEAR if rng.whole(0, 4) == 0 else 3000 * _MICROS_OF_YEAR
    known: dict[str, list[Any]] = {
        "boolean": [],
        "int": [rng.whole(-(2**31), 2**31 - 1) >> rng.whole(0, 31) for _ in many],
        "long": [rng.whole(-(2**63), 2**63 - 1) >> rng.whole(0, 63) for _ in many],
        "float": [],
        "double": [],
        "date": [rng.whole(-1_500_000, 3_000_000) for _ in many],
        "time": [rng.whole(0, 86_399_999_999) for _ in many],
        "timestamp": [rng.whole(-span, span) for _ in many],
        "timestamptz": [rng.whole(-span, span) for _ in many],
        "uuid": [rng.raw(16) for _ in many],
        "binary": [rng.raw(rng.whole(0, 20)) for _ in many],
    }
    return known[word]


def _array(kind: str, raw: list[Any]) -> pa.Array:
    """The values in Arrow; times and decimals from their numbers, for Python's own have not all of them."""
    wanted = arrow_type(parse_type(kind))
    if pa.types.is_decimal(wanted):
        known = b"".join((value or 0).to_bytes(16, "little", signed=True) for value in raw)
        valid = pa.py_buffer(np.packbits([value is not None for value in raw], bitorder="little").tobytes())
        return pa.Array.from_buffers(wanted, len(raw), [valid, pa.py_buffer(known)])
    if pa.types.is_date32(wanted):
        return pa.array(raw, pa.int32()).view(wanted)
    if pa.types.is_timestamp(wanted) or pa.types.is_time(wanted):
        return pa.array(raw, pa.int64()).view(wanted)
    return pa.array(raw, wanted)


class Java:
    """Iceberg's library, for a table of one column `c`. What py4j asks Java for by name is asked for once: each time it is a
    question more, and each answer that is an object one more still.
    """

    def __init__(self, jvm: Any) -> None:
        iceberg = jvm.org.apache.iceberg
        feature = iceberg.shaded.com.fasterxml.jackson.core.json.JsonReadFeature
        reader = iceberg.util.JsonUtil.mapper().reader()
        self._read = getattr(reader, "with")(feature.ALLOW_NON_NUMERIC_NUMBERS.mappedFeature()).readTree
        self._schemas, self._specs, self._files = (
            iceberg.SchemaParser, iceberg.PartitionSpecParser, iceberg.ContentFileParser,
        )  # fmt: skip
        self._new_key, self._new_files = iceberg.PartitionKey, iceberg.DataFiles

    def table(self, kind: str, word: str) -> tuple[Any, Any]:
        """The schema and a partition spec by this transform."""
        schema = self._schemas.fromJson(new_schema([("c", parse_type(kind))]).model_dump_json())
        field = {"source-id": 1, "field-id": 1000, "transform": word, "name": "c_x"}
        return schema, self._specs.fromJson(schema, json.dumps({"spec-id": 0, "fields": [field]}))

    def file(self, spec: Any, values: list[Any]) -> Any:
        """A data file with these partition values, as Java reads it."""
        words = {"spec-id": 0, "content": "data", "file-path": "/x", "file-format": "parquet", "partition": values}
        text = json.dumps({**words, "file-size-in-bytes": 1, "record-count": 1})
        return self._files.fromJson(self._read(text), spec)

    def words(self, file: Any, spec: Any) -> str:
        """The partition of a file as JSON."""
        return json.dumps(json.loads(self._files.toJson(file, spec))["partition"])

    def transformed(self, schema: Any, spec: Any, rows: Iterable[Any]) -> Iterator[tuple[str, str]]:
        """The partition that Java makes of each row: that of a file in it as JSON, and as its path."""
        key = self._new_key(spec, schema)
        builder = self._new_files.builder(spec).withPath("/x").withFileSizeInBytes(1).withRecordCount(1)
        builder = builder.withFormat("parquet")
        for row in rows:
            key.partition(row)
            builder.withPartition(key)
            yield self.words(builder.build(), spec), spec.partitionToPath(key)


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    with light_jvm() as running:
        yield Java(running.gateway.jvm)


@pytest.mark.parametrize("kind", _TYPES)
def test_partition_values_are_those_of_java(java: Java, kind: str) -> None:
    rng = Rng(kind)
    raw = [*_edges(kind), None, *_rngs(kind, rng)]
    iceberg_type = parse_type(kind)
    column = _array(kind, raw)
    schema, identity = java.table(kind, "identity")
    # Java's own values come from the identity's JSON: what is wrong with that shows first.
    rows = [java.file(identity, [value]).partition() for value, _ in partition_texts("identity", iceberg_type, column)]
    for word in [word for word in _WORDS if _is_accepted(word, kind) and word != "void"]:
        _, spec = java.table(kind, word)
        values = transformed(word, column)
        made = java.transformed(schema, spec, rows)
        for (expected, path), (value, name), source in zip(
            made, partition_texts(word, iceberg_type, values), raw, strict=True
        ):
            assert java.words(java.file(spec, [value]), spec) == expected, (word, source, value)
            if kind not in ("float", "double") and len(path) < 150:
                assert path_of(["c_x"], [name]) == path, (word, source)


@pytest.mark.parametrize("kind", _TYPES)
def test_java_allows_the_same_transforms(java: Java, kind: str) -> None:
    for word in _WORDS:
        try:
            java.table(kind, word)
            is_allowed = True
        except Py4JJavaError:
            is_allowed = False
        is_unreadable = word == "identity" and kind.startswith("fixed")
        assert (is_allowed and not is_unreadable) == _is_accepted(word, kind), word


def _is_accepted(word: str, kind: str) -> bool:
    """Whether a pipeline file may say it of a column of this type."""
    try:
        check_type(PartitionTerm("c", word), parse_type(kind))
    except SpecError:
        return False
    return True
