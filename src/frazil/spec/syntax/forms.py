"""How the values of keys are written and read: text, quantities, counts, paths, addresses.

Also what only one key takes.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from annotated_types import MinLen
from pydantic import TypeAdapter, ValidationError

from frazil.errors import SpecError, UnavailableError
from frazil.plugins.registration import Registered
from frazil.spec.syntax.document import Items, Node, Scalar, Section
from frazil.spec.syntax.keys import Form, JsonSchema, Path, Word, describe, is_true, whole_number
from frazil.spec.syntax.problems import LABEL, Mistake, Mistakes, advice, nearest, read_each
from frazil.spec.syntax.units import (
    DAYS_PATTERN,
    DURATION_PATTERN,
    SIZE_PATTERN,
    days_text,
    duration_text,
    parse_days,
    parse_duration,
    parse_share,
    parse_size,
    share_text,
    size_text,
)
from frazil.zones import regions

if TYPE_CHECKING:
    from frazil.spec.syntax.reading import Reading

_Item = TypeVar("_Item")
_NAMES: TypeAdapter[Path] = TypeAdapter(Annotated[Path, MinLen(1)])
_ADDRESS: JsonSchema = {"type": "string", "pattern": "^\\s*(https?://|\\$\\{)"}
_HOST_AND_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9_.-]+)):(?P<port>[0-9]{1,5})")


def _as_written(value: Any) -> Word:
    """The value itself."""
    word: Word = value
    return word


def read_text(node: Node) -> str:
    """Returns the text of `node`.

    Raises: SpecError for what YAML takes for a number, a boolean or nothing, with the way to write it as text.
    """
    if isinstance(node, Scalar) and (node.kind == "text" or node.variable) and node.text:
        return node.text
    remedy = f"write text after `{LABEL}:`"
    if isinstance(node, Scalar) and node.kind not in ("text", "nothing"):
        remedy = "put it in quotes"
        if node.kind == "boolean":
            remedy += ": YAML reads a bare yes, no, on, off, true or false as a boolean"
    what = "empty" if isinstance(node, Scalar) and not node.text else describe(node)
    raise SpecError(f"`{LABEL}` is {what} where text is expected", remedy=remedy)


def read_string(node: Node, is_joined: bool = True) -> str:
    """Returns a property's value as a string: numbers as written, booleans as `true` and `false`. is_joined: whether a
    property may have several values, joined by commas.

    Raises: SpecError for what is no string.
    """
    if not isinstance(node, Scalar) or node.kind == "nothing":
        is_list = is_joined and isinstance(node, Items) and bool(node)
        remedy = (
            "write one value: join several by commas, such as `a,b`" if is_list else "write one value, or remove it"
        )
        raise SpecError(f"`{LABEL}` is {describe(node)} where one value is expected", remedy=remedy)
    if node.kind != "boolean":
        return node.text
    if node.text.lower() in ("true", "false"):
        return node.text.lower()
    remedy = "write true or false, or put the word in quotes"
    raise SpecError(f"YAML reads the bare yes, no, on or off of `{LABEL}` as a boolean", remedy=remedy)


def entries_of(node: Node, example: str) -> Section:
    """Returns the mapping.

    Raises: SpecError for another value. example: how the mapping is written.
    """
    if isinstance(node, Section):
        return node
    raise SpecError(f"`{LABEL}` is {describe(node)} where a mapping is expected", remedy=f"write {example}")


def read_entries(entries: Section, read: Callable[[str, Node], _Item]) -> list[_Item]:
    """Returns what `read` makes of each key and value of a mapping."""
    return read_each(((key, key) for key in entries), lambda key: read(key, entries[key]))


TEXT = Form({"type": "string", "minLength": 1}, _as_written, lambda node, _: read_text(node))


def read_list(node: Node, read: Callable[[Node], _Item]) -> tuple[_Item, ...]:
    """Returns what `read` makes of each item of a list."""
    if not isinstance(node, Items):
        message = f"`{LABEL}` is {describe(node)} where a list is expected"
        raise SpecError(message, remedy="write a list, such as `[a, b]`, or remove it")
    return tuple(read_each(enumerate(node), read))


def read_some(node: Node, read: Callable[[Node], _Item], remedy: str) -> tuple[_Item, ...]:
    """Returns what `read` makes of each item of a list that is not empty. remedy: for an empty one."""
    items = read_list(node, read)
    if not items:
        raise SpecError(f"`{LABEL}` is empty", remedy=remedy)
    return items


def one_or_several(node: Node, read: Callable[[Node], _Item], if_empty: SpecError) -> tuple[_Item, ...]:
    """Returns what `read` makes of a value, or of each item of a list that is not empty."""
    if not isinstance(node, Items):
        return (read(node),)
    if not node:
        raise if_empty
    return read_list(node, read)


def refuse_twice(items: Sequence[_Item], spell: Callable[[_Item], str]) -> None:
    """Raises Mistakes for items that mean the same as one before them."""
    twice = [n for n, item in enumerate(items) if item in items[:n]]
    if twice:
        message = f"`{{}}` occurs twice in `{LABEL}`"
        raise Mistakes(Mistake((n,), message.replace("{}", spell(items[n])), "keep one of them") for n in twice)


TEXTS = Form({"type": "array", "items": TEXT.schema}, read=lambda node, _: read_list(node, read_text))
STRINGS: JsonSchema = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}


def strings(
    check: Callable[[str, str], None], schema: JsonSchema = STRINGS, example: str = "", has_secrets: bool = True
) -> Form:
    """A mapping of properties, which are strings; `check(value, key)` raises a SpecError for one that is not allowed."""

    def read(node: Node, reading: Reading) -> dict[str, str]:
        def read_one(key: str, value: Node) -> tuple[str, str]:
            text = read_string(value)
            check(text, key)
            return key, reading.secrets.resolve(text, key) if has_secrets else text

        return dict(read_entries(entries_of(node, example or "`key: value` pairs, or remove it"), read_one))

    return Form(schema, read=read)


def by_name(
    schema: JsonSchema,
    example: str,
    short: str = "",
    as_text: bool = False,
    also: Callable[[Section], None] | None = None,
) -> Form:
    """A mapping of names to sections, each of which gets its name. short: the key of a section that is written as one
    value. as_text: whether that is text, also where YAML takes it for a boolean or a number. also: adds what else is
    hidden in a section.
    """

    def read(node: Node, _: Reading) -> list[Node]:
        return [named(key, value) for key, value in entries_of(node, example).items()]

    def named(name: str, value: Node) -> Node:
        if short and not isinstance(value, Section):
            if as_text and isinstance(value, Scalar) and value.kind != "nothing":
                value = replace(value, kind="text")
            value = Section({short: value}, value.line, {short: value.line})
        if isinstance(value, Section):
            value.hide("name", name)
            if also is not None:
                also(value)
        return value

    return Form({"type": "object", "additionalProperties": schema}, read=read)


def words_by_name(schema: JsonSchema, example: str, read_one: Callable[[str, str], Any]) -> Form:
    """A mapping of names to words; `read_one(name, word)` raises a SpecError."""

    def read_word(name: str, word: Node) -> Any:
        return read_one(name, read_string(word, is_joined=False))

    return Form(schema, read=lambda node, _: tuple(read_entries(entries_of(node, example), read_word)))


def quantity(schema: JsonSchema, write: Callable[[Any], Word], parse: Callable[[str], float]) -> Form:
    """A number with its unit. A bare number passes, for the unit's own message."""

    def read(node: Node, _: Reading) -> float:
        is_number = isinstance(node, Scalar) and node.kind in ("integer", "number")
        return parse(node.text if is_number else read_text(node))  # type: ignore[union-attr]

    return Form(schema, write, read)


def parsed_text(schema: JsonSchema, parse: Callable[[str], Any]) -> Form:
    """Text that `parse` turns into the value, or raises a SpecError."""
    return Form(schema, _as_written, lambda node, _: parse(read_text(node)))


def text_of(pattern: str, *examples: str) -> JsonSchema:
    """Text of a pattern, of which these are examples."""
    return {"type": "string", "pattern": pattern, "examples": list(examples)}


def days(*examples: str) -> Form:
    """Days or a duration, of which these are examples."""
    return quantity(text_of(f"({DURATION_PATTERN})|({DAYS_PATTERN})", *examples), days_text, parse_days)


DURATION = quantity(text_of(DURATION_PATTERN, "500ms", "2s", "5m", "1h"), duration_text, parse_duration)
LONGEST_INTERVAL_S = 7 * 24 * 3600.0
"""The longest interval of commits: Kafka's default retention, after which records are lost before they are read."""
INTERVAL = quantity(DURATION.schema, duration_text, lambda text: parse_duration(text, LONGEST_INTERVAL_S))
SIZE = quantity(text_of(SIZE_PATTERN, "64MiB", "128MiB", "1GiB"), size_text, parse_size)


def parse_path(text: str) -> Path:
    """The path that `text` spells; `a.b` and `a.b.*` are the same. A name with a dot is written in a list of JSON:
    `["a.b", "c"]`.
    """
    if text.startswith("["):
        return _parse_names(text)
    parts = text.split(".")
    if len(parts) > 1 and parts[-1] == "*":
        parts = parts[:-1]
    if not all(parts) or any("*" in part for part in parts):
        remedy = "join names of fields by dots, such as `user.name`; `user` and `user.*` stand for everything in it"
        raise SpecError(f"`{text}` is not the path of a field", remedy=remedy)
    return tuple(parts)


def _parse_names(text: str) -> Path:
    try:
        return _NAMES.validate_json(text)
    except ValidationError:
        remedy = """write names in quotes, such as '["user", "first.name"]'"""
        raise SpecError(f"`{text}` is not the path of a field", remedy=remedy) from None


def _read_paths(node: Node, _: Reading) -> tuple[Path, ...]:
    remedy = "write paths of fields, such as `[id, user.name]`, or remove it"
    paths = read_some(node, lambda item: parse_path(read_text(item)), remedy)
    refuse_twice(paths, ".".join)
    return paths


PATHS = Form(
    {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "examples": ["id", "user.name", "order.*"]},
        "minItems": 1,
        "uniqueItems": True,
    },
    read=_read_paths,
)
NAMES = replace(PATHS, read=lambda node, reading: tuple(map(".".join, _read_paths(node, reading))))
"""Paths as they are written."""
TYPE_WORD: JsonSchema = {
    "type": "string",
    "minLength": 1,
    "examples": ["long", "timestamptz(ms)", "decimal(18,2)", "list<string>", "map<string,double>", "struct<a: int>"],
}


def text_like(*examples: str) -> JsonSchema:
    """Text of which these are examples."""
    return {**TEXT.schema, "examples": list(examples)}


def share(*examples: str) -> Form:
    """A percentage of which these are examples."""
    return quantity(text_of(r"^[0-9]+(\.[0-9]+)?\s*%$", *examples), share_text, parse_share)


def count(example: int) -> Form:
    """A whole number from 1 on."""

    def read(node: Node, _: Reading) -> int:
        if number := whole_number(node):
            return number
        is_quoted = isinstance(node, Scalar) and re.fullmatch(r"[1-9][0-9]*", node.text, re.ASCII)
        remedy = "write it without quotes" if is_quoted else f"write a whole number, such as {example}"
        raise SpecError(f"`{LABEL}` is not a count", remedy=remedy)

    return Form({"type": "integer", "minimum": 1}, _as_written, read)


def with_switch(form: Form, of_switch: Callable[[bool], Any]) -> Form:
    """true or false, or the form."""

    def read(node: Node, _: Reading) -> Any:
        if isinstance(node, Scalar) and node.kind == "boolean":
            return of_switch(is_true(node))
        if not isinstance(node, Section):
            message = f"`{LABEL}` is {describe(node)} where a mapping is expected"
            raise SpecError(message, remedy="write true, false, or its settings")
        return node

    return Form({"anyOf": [{"type": "boolean"}, form.schema]}, read=read)


def words_or(form: Form, words: tuple[Word, ...], of_word: Callable[[Any], Any]) -> Form:
    """One of some words, or the form."""
    return Form({"anyOf": [{"enum": list(words)}, form.schema]}, words=words, of_word=of_word)


def names_of(registered: Registered[Any], schema: JsonSchema) -> Form:
    """A list of names, each of an object of the table, those of installed packages included."""

    def read_name(node: Node) -> str:
        name = read_text(node)
        if registered.added() and name not in registered:
            raise SpecError(f"`{LABEL}` cannot have `{name}`", remedy=advice(name, registered.added()))
        registered.get(name)
        return name

    return Form(schema, read=lambda node, _: read_list(node, read_name))


def some_of(words: tuple[str, ...]) -> Form:
    """A list of some of these words."""

    def read_word(node: Node) -> str:
        if (word := read_text(node)) not in words:
            raise SpecError(f"`{LABEL}` cannot have `{word}`", remedy=advice(word, words))
        return word

    schema = {"type": "array", "items": {"enum": list(words)}, "uniqueItems": True}
    return Form(schema, read=lambda node, _: read_list(node, read_word))


def _read_words(node: Node, _: Reading) -> tuple[str, ...]:
    """One word or a list of them; numbers as they are written."""
    return one_or_several(
        node,
        lambda word: word.text if isinstance(word, Scalar) and word.kind == "integer" else read_text(word),
        SpecError(f"`{LABEL}` is empty", remedy="write the values of the field, or remove it"),
    )


def _parse_on(text: str) -> tuple[tuple[Path, str], ...]:
    """The equalities between paths of fields and columns."""
    equalities = []
    for part in re.split(r"\s+and\s+", text.strip(), flags=re.IGNORECASE):
        sides = [side.strip() for side in part.split("=")]
        if len(sides) != 2 or not all(sides):
            raise SpecError(
                f"`{part}` compares no field with a column",
                remedy="write `field = column`, and `and` between several; a constant is a condition for `where`",
            )
        equalities.append((parse_path(sides[0]), sides[1]))
    return tuple(equalities)


_MAX_DEPTH = 100
_ABBREVIATION = 5
"""The characters of the longest abbreviation of a zone, such as CEST."""
_CONTEXT = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
_CREDENTIALS_IN_VARIABLES = (
    "take them out, and set the variable OTEL_EXPORTER_OTLP_HEADERS or OPENLINEAGE_API_KEY in their place"
)
ADDRESS = parsed_text(_ADDRESS, lambda url: parse_url(url, LABEL, _CREDENTIALS_IN_VARIABLES))


def several(item: JsonSchema) -> JsonSchema:
    """One item, or a list of some."""
    return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]}


ADDRESSES = several(_ADDRESS)
TEXT_OR_TEXTS = several(TEXT.schema)
_WORD: JsonSchema = {"anyOf": [TEXT.schema, {"type": "integer"}]}
WORDS = Form({"anyOf": [*_WORD["anyOf"], {"type": "array", "items": _WORD, "minItems": 1}]}, read=_read_words)
YOUNGEST_ORPHAN_VARIABLE = "FRAZIL_MIN_ORPHAN_AGE"
"""For tests that cannot wait: another limit of `maintenance.orphans.age` than Iceberg's own."""


def _parse_orphan_age(text: str) -> float:
    """The age in seconds. A file that no snapshot names may belong to an uncommitted batch, also of another process."""
    age_s, youngest = parse_duration(text), os.environ.get(YOUNGEST_ORPHAN_VARIABLE, "24h")
    if age_s < parse_duration(youngest):
        raise SpecError(
            f"`{text}` is too short for `maintenance.orphans.age`: files that are about to be committed would be removed",
            remedy=f"write {youngest} or more",
        )
    return age_s


ORPHAN_AGE = quantity(DURATION.schema, duration_text, _parse_orphan_age)


def _read_depth(node: Node, _: Reading) -> int:
    depth = whole_number(node) or 0
    if 1 <= depth <= _MAX_DEPTH:
        return depth
    message = f"`{LABEL}` is not a number from 1 to {_MAX_DEPTH}"
    raise SpecError(message, remedy="write how many levels become columns; without it all do")


def _parse_separator(text: str) -> str:
    if "." in text:
        message = "`flatten.separator` has a dot, and a dot in a column's name looks like a nested field"
        raise SpecError(message, remedy="write another one, such as `_` or `__`")
    return text


def parse_zone(text: str) -> str:
    """Returns the name of a zone of the IANA database. Raises: SpecError for another text."""
    try:
        if text in regions():
            return text
        remedy = _zone_remedy(text)
    except UnavailableError as error:
        raise SpecError(f"`{LABEL}: {text}`: {error.message}", remedy=error.remedy) from None
    raise SpecError(f"`{LABEL}: {text}` is not a zone of the IANA database", remedy=remedy)


def _zone_remedy(text: str) -> str:
    """Names the zone that `text` probably means. Abbreviations are like one another and mean others: only names of places
    are compared.
    """
    hours = re.fullmatch(r"(?:UTC|GMT)?([+-])(1[0-4]|0?[0-9])(?::?00)?", text, re.IGNORECASE | re.ASCII)
    if text.lower() in ("z", "utc", "zulu") or (hours is not None and int(hours[2]) == 0):
        return "did you mean `UTC`?"
    if hours is not None and (hours[1] == "+" or int(hours[2]) <= 12):
        # POSIX counts the hours to the west.
        sign = "-" if hours[1] == "+" else "+"
        return f"write `Etc/GMT{sign}{int(hours[2])}`, or the name of a place, which has its summer time"
    places = sorted(name for name in regions() if "/" in name and not name.startswith("Etc/"))
    city = nearest(text, {name.rpartition("/")[2]: name for name in places}) if len(text) > _ABBREVIATION else None
    if "/" not in text and city is not None:
        return f"did you mean `{next(name for name in places if name.endswith(f'/{city}'))}`?"
    return advice(text, places if "/" in text else (), ["UTC", "Europe/Berlin", "America/New_York"])


def _parse_context(text: str) -> str:
    if not re.fullmatch(_CONTEXT, text, re.ASCII):
        plain = text.strip(":.")
        is_name = re.fullmatch(_CONTEXT, plain, re.ASCII)
        remedy = f"write `{plain}`" if is_name else "use letters, digits, dots, underscores and hyphens"
        raise SpecError(f"`{text}` is not the name of a context", remedy=remedy)
    return text


def _check_spark_property(_: str, key: str) -> None:
    if not key.startswith("spark."):
        remedy = f"write `spark.{key}`, or `spark.hadoop.{key}` for a property of Hadoop"
        raise SpecError(f"Spark ignores `{key}`: its properties begin with `spark.`", remedy=remedy)


ON = parsed_text(text_like("country_code = code", "shop = shop_id and item.sku = sku"), _parse_on)
SEPARATOR = parsed_text(TEXT.schema, _parse_separator)
CONTEXT = parsed_text({"type": "string", "pattern": f"^{_CONTEXT}$"}, _parse_context)
SPARK_CONF = strings(_check_spark_property, {**STRINGS, "propertyNames": {"pattern": r"^spark\."}})
DEPTH = Form({"type": "integer", "minimum": 1, "maximum": _MAX_DEPTH}, read=_read_depth)
ZONE = Form(text_like("UTC", "Europe/Berlin"), read=lambda node, _: parse_zone(read_text(node)))


class Address(NamedTuple):
    """A host and a port."""

    #: A name or an IP address.
    host: str
    #: 1 to 65535.
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Returns the address that `text` spells.

    Raises: SpecError for another text.
    """
    match = _HOST_AND_PORT.fullmatch(text)
    # Such as the two ports of a container, `8787:80`.
    is_half = match is not None and match["host"] and not _is_host(match["host"])
    if match is None or is_half or not 0 < int(match["port"]) < 65536:
        raise SpecError(
            f"`{text}` is not an address to listen on", remedy="write host and port, such as `127.0.0.1:8787`"
        )
    return Address(match["v6"] or match["host"], int(match["port"]))


def _is_host(text: str) -> bool:
    """Whether a text can be a host: an IPv4 address where there are only digits and dots."""
    if re.search(r"[^0-9.]", text):
        return True
    try:
        return ipaddress.ip_address(text).version == 4
    except ValueError:
        return False


def _read_address(node: Node, _: Reading) -> Address:
    """A bare port passes, for the address's own message."""
    return parse_address(node.text if isinstance(node, Scalar) and node.kind == "integer" else read_text(node))


LISTEN = Form(text_like("127.0.0.1:8787", "0.0.0.0:8787", "[::1]:8787"), _as_written, _read_address)
"""An address to listen on."""


def parse_url(text: str, label: str, instead: str) -> str:
    """Returns the address of an HTTP service that `text` spells, without a slash at the end. label: the key that has it.
    instead: what to do where it holds credentials.

    Raises: SpecError for another text.
    """
    remedy = "write only scheme, host, port and path, such as https://registry:8081"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise SpecError(f"`{label}` is not an HTTP address", remedy=remedy) from None
    if "@" in parts.netloc:
        raise SpecError(f"`{label}` holds credentials, and addresses are shown in logs", remedy=instead)
    if not re.match("https?://", text) or not parts.hostname or port == 0 or re.search(r"\s", text):
        raise SpecError(f"`{label}` is not an HTTP address", remedy="begin it with http:// or https://")
    if parts.query or parts.fragment:
        raise SpecError(f"`{label}` has a part after ? or #", remedy=remedy)
    return text.rstrip("/")
