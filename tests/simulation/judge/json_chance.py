"""Tables and records of JSON by chance: all types and settings, mostly good values, and every kind of odd one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from frazil_verify.model.settings import Column, Settings
from frazil_verify.model.types import ListOf, MapOf, Plain, StructOf, Type
from tests.simulation.judge.chance import Chance

METADATA = {"partition": "_partition", "offset": "_offset", "timestamp": "_timestamp"}
TYPES = (
    "boolean", "int", "long", "float", "double", "decimal(9,2)", "decimal(38,10)", "decimal(20,0)", "date", "time",
    "time(s)", "time(us)", "time(ns)", "timestamp", "timestamp(s)", "timestamp(ns)", "timestamptz", "timestamptz(s)",
    "timestamptz(ms)", "timestamptz(us)", "string", "uuid", "binary", "fixed[2]", "list<long>", "list<string>",
    "list<decimal(9,2)>", "list<list<int>>", "map<string,long>", "map<string,string>", "map<int,string>",
    "map<string,list<date>>", "struct<a: long, b: struct<c: string>>", "list<struct<a: long, d: date>>",
    "struct<at: timestamptz, t: time, u: uuid, lineNo: int>", "map<string,struct<x: double, y: list<boolean>>>",
)  # fmt: skip
_WITH_TEXT = (
    "string",
    "list<string>",
    "map<string,string>",
    "map<int,string>",
    "struct<a: long, b: struct<c: string>>",
)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Sydney")
_NAMES = (
    "a", "b", "c", "user", "userId", "lineCount", "HTTPStatus", "größe", "名前", "with space", "with-dash", "x1", "y.z",
    "items", "tags", "😀", "very_long_name_of_a_field_that_goes_on_for_a_while", "order", "select", "n0", "N1", "_id",
)  # fmt: skip
_ODD_NUMBERS = (
    "0", "-0", "-1", "1.0", "1e3", "12e-1", "2147483647", "2147483648", "9007199254740993", "9007199254740993e0",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616", "1e400", "-1e400",
    "1e-400", "5e-324", "0.1", "3.4028235e38", "3.4028236e38", "0.30000000000000004", "12.505", "12345678.9",
    "1.00000000000000000000000000000000000000", "99999999999999999999999999999", "1769862600123.5",
    "1.769862600123e12", "1769862600123456", "253402300800000", "-62135596800000", "0.00000000001", "1E+2", "86399999",
    "86400000", "1" + "0" * 400, "1e99999999999999999999", "0e99999", "16777217", "1.00000005960464477539062500001",
)  # fmt: skip
_ODD_STRINGS = (
    '""', '"text"', '"12"', '"true"', '"12.50"', '"+12.5"', '"12,50"', '" 12.5"', '"NaN"', '"Infinity"', '"2026-01-31"',
    '"2026-02-29"', '"2026-1-31"', '"10000-01-01"', '"9999-12-31"', '"12:30"', '"24:00:00"', '"12:30:00Z"',
    '"12:30:00.1234567"', '"2026-01-31T12:30:00"', '"2026-01-31 12:30:00.123456"', '"2026-01-31T12:30:00Z"',
    '"2026-01-31T12:30:00.5+02:00"', '"2026-01-31T12:30:00.123456789Z"', '"2026-03-08T02:30:00"',
    '"2026-11-01T01:30:00"', '"2026-03-29T02:30:00"', '"0001-01-01T00:00:00+01:00"', '"9999-12-31T23:59:59-01:00"',
    '"1769862600123"', r'"tab\t, \u00e9 \ud83d\ude00"', r'"\u0000"', r'"\ud800"', '"AP8="', '"AP8"', '"_-8="', '"AA=="',
    '"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"', '"F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"', '"[1]"', '"é"',
)  # fmt: skip
_ODD_OTHERS = (
    "true", "false", "[1]", "[]", "{}", '{"a": 1}', "[null]", "[[1]]", '[1, "a"]', '{"x": {"y": [1, 2]}}', "[{}, null]",
    '{"a": null}', '{"k": 1, "k": 2}', '{"a": 1, "A": 2}', '[[1, "a"], [2, null]]', '[[1, "a"], [1, "b"]]', "[[1]]",
    '{"": 1}', r'{"\u0061": 1}', '[{"a": 1}, {"a": 2, "zz": 3}]', "[1, 2.5]", '{"b": {"c": "x", "new": true}}',
)  # fmt: skip
_BROKEN = (
    b"", b"  ", b"[]", b"null", b"12", b'"x"', b"\x00\x00\x00\x00\x01{}", b"{'a': 1}", b"{a: 1}", b'{"a": 1,}',
    b'{"a": NaN}', b'{"a": 01}', b'{"a": +1}', b'{"a": .5}', b'{"a": 1} // note', b'{"a": 1} {"a": 2}', b'{"a": 1}\x00',
    b'{"a": "x\ny"}', b'{"a": "\xff"}', b'{"a": "\xed\xa0\x80"}', b'{"a": 1, "\\ud800": 1}', b'{"a" 1}', b'{"a": trux}',
    b'{"a": "\\x"}', b'{"a": 1e}', b"[1, 2", b'{"a": [1, 2}', b"{" * 3, b'{"a":' * 600 + b"1" + b"}" * 600,
)  # fmt: skip


@dataclass(frozen=True)
class Field:
    """A field that records have. draw: makes a good value's text."""

    name: str
    draw: Callable[[], str]
    share: float


@dataclass
class JsonChance:
    """One table with records that fit it, more or less. names: how many names each record has of its own."""

    chance: Chance

    def __post_init__(self) -> None:
        self.own_names = self.chance.one((0, 0, 0, 0, 0, 1, 4, 20))
        self._next_name = 0
        self.settings = self._settings()
        self.fields = self._fields()
        self.is_clean = 0.93 if self.chance.maybe(0.85) else 0.5
        self._most_names = 10**9 if self._has_place_for_names else 200

    @property
    def _has_place_for_names(self) -> bool:
        """Whether names without a column add none."""
        settings = self.settings
        return settings.unknown_fields != "add" or settings.schema_evolution == "freeze"

    def _settings(self) -> Settings:
        chance = self.chance
        drawn = {name: self._column(name) for name in chance.some(_NAMES, 0.4)} if chance.maybe(0.85) else {}
        columns = {name: column for name, column in drawn.items() if column is not None}
        unknown = chance.one(("add", "add", "add", "drop", "rescue", "rescue"))
        evolution = chance.one(("evolve", "evolve", "add_only", "freeze"))
        if self.own_names and chance.maybe(0.7):  # Many names become no columns, but where a limit allows it.
            unknown, evolution = chance.one((("rescue", evolution), ("drop", evolution), ("add", "freeze")))
        if unknown == "rescue" or evolution == "freeze":
            columns = columns or {"id": Column("long")}
        case = chance.one(("keep", "keep", "keep", "lower", "snake"))
        excluded = [name for name in _NAMES if name not in columns and "." not in name and chance.maybe(0.06)]
        return Settings(
            columns=columns,
            unknown_fields=unknown,
            schema_evolution=evolution,
            rescue=chance.maybe(0.4),
            exclude=tuple((name,) for name in excluded),
            column_case=case,
            numbers=chance.one(("as_seen", "as_seen", "double", "decimal(18,4)")),
            infers_times=chance.maybe(0.3),
            limit_columns=20_000 if chance.maybe(0.5) else 5_000,
            metadata=METADATA,
        )

    def _column(self, name: str) -> Column | None:
        chance = self.chance
        if "." in name:
            return None
        kind = chance.one(TYPES)
        has_zone = kind.startswith("timestamp") and chance.maybe(0.5)
        return Column(
            kind,
            coerce=kind in _WITH_TEXT and chance.maybe(0.5),
            zone=chance.one(ZONES) if has_zone else "",
        )

    def _fields(self) -> list[Field]:
        fields = [Field("id", lambda: str(self.chance.upto(10**6)), 1.0)]
        for name in _NAMES:
            column = self.settings.columns.get(name)
            share = self.chance.one((1.0, 0.9, 0.5, 0.1, 0.02))
            if column is not None:
                fields.append(Field(name, self._drawing(column.kind), share))
            elif self.chance.maybe(0.5):
                fields.append(Field(name, self._natural(0), share))
        return fields

    def _drawing(self, kind: Type) -> Callable[[], str]:
        return lambda: good_text(self.chance, kind)

    def _natural(self, level: int) -> Callable[[], str]:
        """Returns what draws the values of a field without a declaration."""
        chance = self.chance
        choice = chance.upto(11 if level < 3 else 7)
        if choice <= 7:
            if choice == 1 and self.settings.numbers.startswith("decimal"):
                return lambda: f"{chance.between(-999, 999)}.{chance.upto(9999)}"
            kind = ("long", "double", "boolean", "string", "timestamptz", "date", "string", "mixed")[choice]
            if kind == "mixed":
                return lambda: str(chance.upto(99)) + (".5" if chance.maybe(0.2) else "")
            return self._drawing(Plain(kind))
        if choice <= 9:
            members = [(name, self._natural(level + 1), chance.one((1.0, 0.5))) for name in chance.some(_NAMES, 0.15)]
            return lambda: _object([(name, draw()) for name, draw, share in members if chance.maybe(share)])
        element = self._natural(level + 1)
        return lambda: "[" + ", ".join(element() for _ in range(chance.upto(3))) + "]"

    def record(self) -> bytes | None:
        """Returns a record's value."""
        chance = self.chance
        if chance.maybe(0.01):
            return chance.one(_BROKEN) if chance.maybe(0.9) else None
        is_clean = chance.maybe(self.is_clean)
        pairs: list[tuple[str, str]] = []
        for field in self.fields:
            if chance.maybe(field.share):
                value = field.draw() if is_clean or chance.maybe(0.8) else odd_text(chance)
                pairs.append((field.name, "null" if chance.maybe(0.05) else value))
        for _ in range(chance.upto(self.own_names)):
            self._next_name = self._next_name % self._most_names + 1
            pairs.append((f"user_{self._next_name}", str(self._next_name)))
        if not is_clean:
            self._spoil(pairs)
        text = _object(pairs, chance.one((" ", "", "\n", "\t ")) if chance.maybe(0.2) else "")
        raw = text.encode()
        if not is_clean and chance.maybe(0.02):
            raw = raw[: chance.upto(len(raw))]
        return b"\xef\xbb\xbf" + raw if chance.maybe(0.01) else raw

    def _spoil(self, pairs: list[tuple[str, str]]) -> None:
        chance = self.chance
        if chance.maybe(0.1):
            pairs.append((chance.one(_NAMES), odd_text(chance)))
        if chance.maybe(0.1) and pairs:
            place = chance.upto(len(pairs) - 1)
            pairs[place] = (chance.one((str.upper, str.lower, str.title))(pairs[place][0]), pairs[place][1])
        if chance.maybe(0.03) and pairs:
            pairs.append((chance.one(pairs)[0], odd_text(chance)))
        if chance.maybe(0.03):
            name = chance.one(("", "_pos", "_offset", "_rescued", "n" * 300, "ü" * 128, "_Partition"))
            pairs.append((name, "1"))
        if chance.maybe(0.02) and not self.settings.rescue:  # Only its end would be rescued, wherever that is.
            levels = chance.between(55, 64)
            pairs.append(("deep", '{"d":' * levels + "1" + "}" * levels))


def _object(pairs: Sequence[tuple[str, str]], space: str = "") -> str:
    return (
        "{"
        + f",{space}".join(f"{json.dumps(name, ensure_ascii=len(name) == 2)}:{space}{text}" for name, text in pairs)
        + "}"
    )


def odd_text(chance: Chance) -> str:
    """Returns the text of any value."""
    return chance.one(chance.one((_ODD_NUMBERS, _ODD_STRINGS, _ODD_OTHERS)))


def good_text(chance: Chance, kind: Type) -> str:
    """Returns the text of a value of a type."""
    match kind:
        case StructOf(members):
            pairs = [(name, good_text(chance, member)) for name, member in members if chance.maybe(0.9)]
            if chance.maybe(0.05):
                pairs.append((f"new{chance.upto(2)}", str(chance.upto(9))))
            return _object(pairs)
        case ListOf(element):
            return "[" + ", ".join(_or_null(chance, element) for _ in range(chance.upto(3))) + "]"
        case MapOf(key, value):
            names = sorted({f"k{chance.upto(5)}" for _ in range(chance.upto(3))})
            if key == Plain("string", is_declared=True):
                return _object([(name, _or_null(chance, value)) for name in names])
            return "[" + ", ".join(f"[{name[1:]}, {_or_null(chance, value)}]" for name in names) + "]"
    return _PLAIN[kind.name](chance, kind)


def _or_null(chance: Chance, kind: Type) -> str:
    return "null" if chance.maybe(0.1) else good_text(chance, kind)


def _digits(chance: Chance, most: int) -> str:
    return str(chance.upto(10 ** chance.between(1, most) - 1))


def _decimal(chance: Chance, kind: Plain) -> str:
    precision, scale = kind.args
    text = _digits(chance, precision - scale) + (
        "." + "".join(str(chance.upto(9)) for _ in range(scale)) if scale else ""
    )
    text = ("-" if chance.maybe(0.3) else "") + text
    return f'"{text}"' if chance.maybe(0.4) else text


def day_text(chance: Chance) -> str:
    """Returns a day."""
    year = chance.between(1900, 2100) if chance.maybe(0.95) else chance.between(1, 9999)
    return f"{year:04}-{chance.between(1, 12):02}-{chance.between(1, 28):02}"


def time_text(chance: Chance) -> str:
    """Returns a time of day."""
    text = f"{chance.upto(23):02}:{chance.upto(59):02}"
    if chance.maybe(0.9):
        text += f":{chance.upto(59):02}"
        if chance.maybe(0.5):
            text += "." + "".join(str(chance.upto(9)) for _ in range(chance.between(1, 9)))
    return text


def _moment(chance: Chance, kind: Plain) -> str:
    if kind.unit and chance.maybe(0.6):
        number = str(chance.between(-(2**31), 2**32) * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit])
        return number + f".{chance.upto(999999999)}" if chance.maybe(0.2) else number
    if kind.is_declared and chance.maybe(0.2):
        return str(chance.between(-(2**40), 2**42))
    text = day_text(chance)
    if kind.is_declared and kind.name == "timestamp" and chance.maybe(0.2):
        return f'"{text}"'
    text += chance.one("T ") + time_text(chance)
    if kind.name == "timestamptz" or chance.maybe(0.05):
        text += chance.one(("Z", "Z", "+02:00", "-05:30", "+0545"))
    return f'"{text}"'


def _base64(chance: Chance, kind: Plain) -> str:
    if kind.name == "fixed":
        return '"AP8="'
    return chance.one(('""', '"AP8="', '"AAECAw=="', '"aGVsbG8gd29ybGQ="', '"+/+/"'))


def _uuid(chance: Chance, kind: Plain) -> str:
    digits = "".join(chance.one("0123456789abcdefABCDEF") for _ in range(32))
    return f'"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"'


def _string(chance: Chance, kind: Plain) -> str:
    return chance.one(
        (
            '"a"',
            '"hello world"',
            '""',
            '"é ü 😀"',
            r'"q\"uote \\ \/ \u0041"',
            f'"s{chance.upto(999)}"',
            r'"\ud83d\ude00"',
        )
    )


def _time(chance: Chance, kind: Plain) -> str:
    if kind.is_declared and chance.maybe(0.4):
        return str(chance.upto(86399) * {"s": 1, "": 10**3, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit])
    return f'"{time_text(chance)}"'


_PLAIN: dict[str, Callable[[Chance, Any], str]] = {
    "boolean": lambda chance, _: chance.one(("true", "false")),
    "int": lambda chance, _: str(chance.between(-(2**31), 2**31 - 1)) if chance.maybe(0.5) else _digits(chance, 4),
    "long": lambda chance, _: str(chance.between(-(2**50), 2**50)) if chance.maybe(0.5) else _digits(chance, 4),
    "float": lambda chance, _: f"{chance.between(-999, 999)}.{chance.upto(99999)}",
    "double": lambda chance, _: f"{chance.between(-999, 999)}.{chance.upto(10**12)}",
    "decimal": _decimal,
    "date": lambda chance, kind: (
        str(chance.between(-30000, 60000)) if kind.is_declared and chance.maybe(0.3) else f'"{day_text(chance)}"'
    ),
    "time": _time,
    "timestamp": _moment,
    "timestamptz": _moment,
    "string": _string,
    "uuid": _uuid,
    "binary": _base64,
    "fixed": _base64,
}
