from __future__ import annotations

import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.errors import SpecError
from frazil.spec.syntax.types import parse_type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("boolean", BooleanType()),
        ("int", IntegerType()),
        ("long", LongType()),
        ("float", FloatType()),
        ("double", DoubleType()),
        ("decimal(18,2)", DecimalType(18, 2)),
        ("decimal( 38 , 0 )", DecimalType(38, 0)),
        ("date", DateType()),
        ("time", TimeType()),
        ("timestamp", TimestampType()),
        ("timestamptz", TimestamptzType()),
        ("string", StringType()),
        ("uuid", UUIDType()),
        ("binary", BinaryType()),
        ("fixed[16]", FixedType(16)),
        ("fixed(16)", FixedType(16)),
        ("list<string>", ListType(1000, StringType(), False)),
        ("map<string, double>", MapType(1000, StringType(), 1001, DoubleType(), False)),
        ("map<int, string>", MapType(1000, IntegerType(), 1001, StringType(), False)),
        ("map<decimal(9,2),uuid>", MapType(1000, DecimalType(9, 2), 1001, UUIDType(), False)),
        (
            "struct<a: int, b:string>",
            StructType(NestedField(1000, "a", IntegerType(), False), NestedField(1001, "b", StringType(), False)),
        ),
        (
            "list<struct<id: long, tags: map<string,list<decimal(9,2)>>>>",
            ListType(
                1000,
                StructType(
                    NestedField(1001, "id", LongType(), False),
                    NestedField(
                        1002,
                        "tags",
                        MapType(1003, StringType(), 1004, ListType(1005, DecimalType(9, 2), False), False),
                        False,
                    ),
                ),
                False,
            ),
        ),
    ],
)
def test_icebergs_words_become_its_types(text: str, expected: IcebergType) -> None:
    assert parse_type(text) == expected


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("strng", "the type `strng` is unknown", "did you mean `string`?"),
        ("Long", "the type `Long` is unknown", "did you mean `long`?"),
        ("bigint", "the type `bigint` is unknown", "did you mean `long`?"),
        ("int64", "the type `int64` is unknown", "did you mean `long`?"),
        ("float64", "the type `float64` is unknown", "did you mean `double`?"),
        ("list<timestmp>", "the type `timestmp` is unknown", "did you mean `timestamp`?"),
        ("lst<int>", "the type `lst` is unknown", "did you mean `list<T>`?"),
        (
            "timestamp_ns",
            "the type `timestamp_ns` is not available in this version",
            "use another type, such as `timestamp`",
        ),
        ("variant", "the type `variant` is not available in this version", "use another type"),
        ("geometry", "the type `geometry` is not available in this version", "use another type"),
        (
            "map<list<int>,string>",
            "a map's keys cannot be `list<int>`: engines take only plain values as keys",
            "write a plain type, such as `map<string,V>`, or a list of structs",
        ),
        (
            "decimal(39,2)",
            "`decimal(39,2)` is not a decimal of Iceberg",
            "use a precision of 1 to 38 and a scale no larger than the precision",
        ),
        ("timestamp_ntz", "the type `timestamp_ntz` is unknown", "did you mean `timestamp`?"),
        ("timestamp_tz", "the type `timestamp_tz` is unknown", "did you mean `timestamptz`?"),
        ("uint32", "the type `uint32` is unknown", "did you mean `long`?"),
        ("uint64", "the type `uint64` is unknown", "did you mean `decimal(20,0)`?"),
        ("list<JSONB>", "the type `JSONB` is unknown", "did you mean `string`?"),
        ("timestamp with time zone", "`timestamp with time zone` is not a type", "did you mean `timestamptz`?"),
        ("timestamp without time zone", "`timestamp without time zone` is not a type", "did you mean `timestamp`?"),
        ("double precision", "`double precision` is not a type", "did you mean `double`?"),
        ("CHARACTER VARYING(20)", "the type `CHARACTER` is unknown", "did you mean `string`?"),
        ("decimal(10)", "`decimal(10)` is not a type", "write the digits after the point too: `decimal(10,0)`"),
        ("fixed[0]", "`fixed` has no length", "write the number of bytes, such as `fixed[16]`"),
        ("struct<a: int, a: long>", "the struct has two fields `a`", "keep one of them"),
        (
            "decimal(9",
            "the type `decimal(9` has a bracket without its partner",
            'close it; inside {} a type with a comma needs quotes, such as `{price: "decimal(9,2)"}`',
        ),
    ],
)
def test_a_type_that_cannot_be_is_refused_with_the_way_out(text: str, message: str, remedy: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_type(text)
    assert (caught.value.message, caught.value.remedy) == (message, remedy)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "<>",
        "long long",
        "list",
        "list<>",
        "list<int>>",
        "map<string>",
        "struct<>",
        "struct<a>",
        "struct<a:>",
        "struct<a: int,>",
        "struct<:int>",
        "decimal",
        "decimal(9)",
        "decimal(2,3)",
        "decimal(x,y)",
        "fixed",
        "fixed[x]",
        "fixed[1)",
        "list<" * 5000 + "int" + ">" * 5000,
    ],
)
def test_malformed_types_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_type(text)
