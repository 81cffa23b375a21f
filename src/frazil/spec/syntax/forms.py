"""How the values of keys are written and read: text, quantities, counts, paths, addresses.

Also what only one key takes.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from annotated_types import MinLen
from pydantic import TypeAdapter, ValidationError

from frazil.errors import SpecError, UnavailableError
from frazil.spec.syntax.document import Items, Node, Scalar
from frazil.spec.syntax.keys import Fields, Form, JsonSchema, Path, Word, read_items, read_text, whole_number
from frazil.spec.syntax.problems import Problems, advice, nearest
from frazil.spec.syntax.units import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    duration_text,
    parse_duration,
    parse_share,
    parse_size,
    share_text,
    size_text,
)
from frazil.zones import regions

_Item = TypeVar("_Item")
_NAMES: TypeAdapter[Path] = TypeAdapter(Annotated[Path, MinLen(1)])
_ADDRESS: JsonSchema = {"type": "string", "pattern": "^\\s*(https?://|\\$\\{)"}
_HOST_AND_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9_.-]+)):(?P<port>[0-9]{1,5})")


def _as_written(value: Any) -> Word:
    """The value itself."""
    word: Word = value
    return word


_SHARE_PATTERN = r"^[0-9]+(\.[0-9]+)?\s*%$"
TEXT = Form({"type": "string", "minLength": 1}, _as_written, lambda fields, key: fields.text(key))


def read_texts(fields: Fields, key: str) -> tuple[str, ...]:
    """The texts of the list under `key`."""
    label = fields.path(key)
    texts = (read_text(item, label, fields.problems) for item in read_items(fields.node(key), label, fields.problems))
    return tuple(text for text in texts if text)


TEXTS = Form({"type": "array", "items": TEXT.schema}, read=read_texts)
STRINGS = Form({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})


def quantity(schema: JsonSchema, write: Callable[[Any], Word], parse: Callable[[str], float]) -> Form:
    """A number with its unit."""

    def read(fields: Fields, key: str) -> Any:
        """A bare number passes, for the unit's own message."""
        node = fields.node(key)
        if isinstance(node, Scalar) and node.kind in ("text", "integer", "number"):
            return fields.problems.attempt(node.line, None, parse, node.text)
        return read_text(node, fields.path(key), fields.problems)

    return Form(schema, write, read)


def parsed_text(schema: JsonSchema, parse: Callable[[str], Any]) -> Form:
    """Text that `parse` turns into the value, or raises a SpecError."""
    return Form(schema, _as_written, lambda fields, key: fields.parsed(key, parse))


DURATION = quantity(
    {"type": "string", "pattern": DURATION_PATTERN, "examples": ["500ms", "2s", "5m", "1h"]},
    duration_text,
    parse_duration,
)
LONGEST_INTERVAL_S = 7 * 24 * 3600.0
"""The longest interval of commits: Kafka's default retention, after which records are lost before they are read."""
INTERVAL = quantity(DURATION.schema, duration_text, lambda text: parse_duration(text, LONGEST_INTERVAL_S))
SIZE = quantity(
    {"type": "string", "pattern": SIZE_PATTERN, "examples": ["64MiB", "128MiB", "1GiB"]}, size_text, parse_size
)


def read_different(
    items: Iterable[Node],
    label: str,
    problems: Problems,
    parse: Callable[[str], _Item],
    spell: Callable[[_Item], str],
) -> tuple[_Item, ...]:
    """What `parse` makes of the texts of a list; two that mean the same are refused as `spell` writes them."""
    found: list[_Item] = []
    for item in items:
        text = read_text(item, label, problems)
        parsed = problems.attempt(item.line, None, parse, text) if text else None
        if parsed in found:
            problems.add(item.line, f"`{spell(parsed)}` is there twice in `{label}`", "keep one of them")
        elif parsed:
            found.append(parsed)
    return tuple(found)


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


def read_paths(fields: Fields, key: str) -> tuple[Path, ...]:
    """The paths of fields under `key`; none if it is absent."""
    entry = fields.get(key)
    if entry is None:
        return ()
    items = read_items(entry.value, key, fields.problems)
    if isinstance(entry.value, Items) and not items:
        remedy = "write paths of fields, such as `[id, user.name]`, or remove it"
        fields.refuse_key(key, f"`{key}` is empty", remedy)
    return read_different(items, key, fields.problems, parse_path, ".".join)


PATHS = Form(
    {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "examples": ["id", "user.name", "order.*"]},
        "minItems": 1,
        "uniqueItems": True,
    },
    read=read_paths,
)
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
    schema = {"type": "string", "pattern": _SHARE_PATTERN, "examples": list(examples)}
    return quantity(schema, share_text, parse_share)


def count(example: int) -> Form:
    """A whole number from 1 on."""

    def read(fields: Fields, key: str) -> int | None:
        node = fields.node(key)
        number = whole_number(node)
        if not number:
            is_quoted = isinstance(node, Scalar) and re.fullmatch(r"[1-9][0-9]*", node.text, re.ASCII)
            remedy = "write it without quotes" if is_quoted else f"write a whole number, such as {example}"
            fields.refuse_value(key, f"`{fields.path(key)}` is no count", remedy)
        return number or None

    return Form({"type": "integer", "minimum": 1}, _as_written, read)


def with_switch(form: Form) -> Form:
    """true or false, or the form."""
    return Form({"anyOf": [{"type": "boolean"}, form.schema]})


def read_words(fields: Fields, key: str) -> tuple[str, ...]:
    """One word or a list of them; numbers as they are written."""
    node, label = fields.node(key), fields.path(key)
    nodes = node.items if isinstance(node, Items) else (node,)
    if not nodes:
        fields.refuse_key(key, f"`{label}` is empty", "write the values of the field, or remove it")
    words = (
        one.text if isinstance(one, Scalar) and one.kind == "integer" else read_text(one, label, fields.problems)
        for one in nodes
    )
    return tuple(word for word in words if word is not None)


def _parse_on(text: str) -> tuple[tuple[Path, str], ...]:
    """The equalities between paths of fields and columns."""
    found = []
    for part in re.split(r"\s+and\s+", text.strip(), flags=re.IGNORECASE):
        sides = [side.strip() for side in part.split("=")]
        if len(sides) != 2 or not all(sides):
            raise SpecError(
                f"`{part}` compares no field with a column",
                remedy="write `field = column`, and `and` between several; a constant is a condition for `where`",
            )
        found.append((parse_path(sides[0]), sides[1]))
    return tuple(found)


_MAX_DEPTH = 100
_ABBREVIATION = 5
"""The characters of the longest abbreviation of a zone, such as CEST."""
_CONTEXT = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
_CREDENTIALS_IN_VARIABLES = (
    "take them out, and set the variable OTEL_EXPORTER_OTLP_HEADERS or OPENLINEAGE_API_KEY in their place"
)
ADDRESS = Form(
    _ADDRESS,
    _as_written,
    lambda fields, key: fields.parsed(key, lambda url: parse_url(url, fields.path(key), _CREDENTIALS_IN_VARIABLES)),
)
ADDRESSES = Form({"anyOf": [_ADDRESS, {"type": "array", "items": _ADDRESS, "minItems": 1}]})
TEXT_OR_TEXTS = Form({"anyOf": [TEXT.schema, {"type": "array", "items": TEXT.schema, "minItems": 1}]})
_WORD: JsonSchema = {"anyOf": [TEXT.schema, {"type": "integer"}]}
WORDS = Form({"anyOf": [*_WORD["anyOf"], {"type": "array", "items": _WORD, "minItems": 1}]}, read=read_words)
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


def _read_depth(fields: Fields, key: str) -> int | None:
    depth = whole_number(fields.node(key)) or 0
    if 1 <= depth <= _MAX_DEPTH:
        return depth
    message = f"`{fields.path(key)}` is not a number from 1 to {_MAX_DEPTH}"
    fields.refuse_value(key, message, "write how many levels become columns; without it all do")
    return None


def _parse_separator(text: str) -> str:
    if "." in text:
        message = "`flatten.separator` has a dot, and a dot in a column's name looks like a nested field"
        raise SpecError(message, remedy="write another one, such as `_` or `__`")
    return text


def _read_zone(fields: Fields, key: str) -> str | None:
    text = fields.text(key)
    try:
        if text is None or text in regions():
            return text
        remedy = _zone_remedy(text)
    except UnavailableError as error:
        fields.refuse_value(key, f"`{fields.path(key)}: {text}`: {error.message}", error.remedy)
        return None
    fields.refuse_value(key, f"`{fields.path(key)}: {text}` is no zone of the IANA database", remedy)
    return None


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
SPARK_CONF = Form(
    {**STRINGS.schema, "propertyNames": {"pattern": r"^spark\."}},
    read=lambda fields, key: fields.strings(key, _check_spark_property),
)
DEPTH = Form({"type": "integer", "minimum": 1, "maximum": _MAX_DEPTH}, read=_read_depth)
ZONE = Form(text_like("UTC", "Europe/Berlin"), read=_read_zone)


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
    if match is None or not 0 < int(match["port"]) < 65536:
        raise SpecError(f"`{text}` is no address to listen on", remedy="write host and port, such as `127.0.0.1:8787`")
    return Address(match["v6"] or match["host"], int(match["port"]))


def _read_address(fields: Fields, key: str) -> Address | None:
    """A bare port passes, for the address's own message."""
    node = fields.node(key)
    if isinstance(node, Scalar) and node.kind == "integer":
        return fields.problems.attempt(node.line, None, parse_address, node.text)
    address: Address | None = fields.parsed(key, parse_address)
    return address


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
