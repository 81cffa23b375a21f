"""Generated schemas and records, written by fastavro, and bodies that were damaged at random.

FRAZIL_EXAMPLES: how many times as many examples to try (`make soak` tries hundreds of times as many).
"""

from __future__ import annotations

import base64
import json
import math
import os
import uuid
from decimal import Context, Decimal
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.decode.avro_bodies import plain_rows, record_of, write
from tests.unit.decode.avro_strict import Refused, Strict

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_MODEST = settings(max_examples=20 * _TIMES, deadline=None, suppress_health_check=list(HealthCheck))
_EXACT = Context(prec=60)
_DAY_MS = 86_400_000
_LONG = (-(2**63), 2**63 - 1)
_MILLIS = (-(2**63 // 1000), 2**63 // 1000)
_RANGES: dict[str, tuple[int, int]] = {
    "int": (-(2**31), 2**31 - 1),
    "long": _LONG,
    "date": (-(2**31), 2**31 - 1),
    "time-millis": (0, _DAY_MS - 1),
    "time-micros": (0, _DAY_MS * 1000 - 1),
    "timestamp-millis": _MILLIS,
    "timestamp-micros": _LONG,
    "timestamp-nanos": _LONG,
    "local-timestamp-millis": _MILLIS,
    "local-timestamp-micros": _LONG,
}
_texts = st.text(st.characters(codec="utf-8"), max_size=12)
_SCALARS: tuple[Any, ...] = (
    "boolean", "int", "long", "float", "double", "bytes", "string",
    {"type": "string", "logicalType": "uuid"},
    *({"type": "int", "logicalType": name} for name in ("date", "time-millis")),
    *({"type": "long", "logicalType": name} for name in _RANGES if name.endswith(("micros", "nanos"))),
    *({"type": "long", "logicalType": name} for name in _RANGES if name.endswith("timestamp-millis")),
)  # fmt: skip


@st.composite
def _named_scalars(draw: st.DrawFn, name: str) -> Any:
    choice = draw(st.sampled_from(["enum", "fixed", "uuid", "decimal"]))
    if choice == "enum":
        return {"type": "enum", "name": name, "symbols": [f"S{n}" for n in range(draw(st.integers(1, 70)))]}
    if choice == "fixed":
        return {"type": "fixed", "name": name, "size": draw(st.integers(1, 20))}
    if choice == "uuid":
        return {"type": "fixed", "name": name, "size": 16, "logicalType": "uuid"}
    precision = draw(st.integers(1, 38))
    decimal = {"logicalType": "decimal", "precision": precision, "scale": draw(st.integers(0, precision))}
    if draw(st.booleans()):
        return {"type": "bytes", **decimal}
    return {"type": "fixed", "name": name, "size": draw(st.integers(17, 20)), **decimal}


@st.composite
def _nodes(draw: st.DrawFn, names: Any, depth: int, around: tuple[str, ...], in_union: bool = False) -> Any:
    kinds = ["scalar", "scalar", "named"]
    if depth < 4:
        kinds += ["array", "map", "record"] if in_union else ["array", "map", "record", "union", "optional", "optional"]
    kind = draw(st.sampled_from(kinds))
    if kind == "scalar":
        return draw(st.sampled_from(_SCALARS))
    if kind == "named":
        return draw(_named_scalars(f"n{next(names)}"))
    if kind == "record":
        return draw(_records(names, depth + 1, around))
    if kind in ("array", "map"):
        inner = draw(_nodes(names, depth + 1, around)) if draw(st.booleans()) else draw(st.sampled_from(around))
        return {"type": "array", "items": inner} if kind == "array" else {"type": "map", "values": inner}
    if kind == "optional":
        inner = draw(_nodes(names, depth, around, True)) if draw(st.booleans()) else draw(st.sampled_from(around))
        return draw(st.permutations(["null", inner]))
    branches = [draw(_nodes(names, depth + 1, around, True)) for _ in range(draw(st.integers(1, 4)))]
    if draw(st.booleans()):
        branches.insert(draw(st.integers(0, len(branches))), "null")
    return list({_branch(branch): branch for branch in branches}.values())


@st.composite
def _records(draw: st.DrawFn, names: Any, depth: int = 0, around: tuple[str, ...] = ()) -> Any:
    name = f"r{next(names)}"
    nodes = [draw(_nodes(names, depth, (*around, name))) for _ in range(draw(st.integers(1, 4)))]
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": node} for n, node in enumerate(nodes)]}


def _branch(node: Any) -> str:
    """What Avro calls a branch."""
    return str(node.get("name", node["type"])) if isinstance(node, dict) else str(node)


def _is_null(node: Any) -> bool:
    return bool(node == "null")


@st.composite
def _datum(draw: st.DrawFn, node: Any, named: dict[str, Any], depth: int = 0) -> Any:
    """A value of the type, as fastavro takes it; branches of unions are pairs of name and value."""
    if isinstance(node, list):
        choices = [branch for branch in node if _is_null(branch)] if depth > 6 else []
        branch = draw(st.sampled_from(choices or node))
        return None if _is_null(branch) else (_branch(branch), draw(_datum(branch, named, depth + 1)))
    node = named.get(node, node) if isinstance(node, str) else node
    kind = node["type"] if isinstance(node, dict) else node
    if kind == "record":
        inside = {**named, node["name"]: node}
        return {member["name"]: draw(_datum(member["type"], inside, depth + 1)) for member in node["fields"]}
    length = draw(st.integers(0, 3)) if depth < 5 else 0
    if kind == "array":
        return [draw(_datum(node["items"], named, depth + 1)) for _ in range(length)]
    if kind == "map":
        keys = draw(st.lists(_texts, min_size=length, max_size=length, unique=True))
        return {key: draw(_datum(node["values"], named, depth + 1)) for key in keys}
    return draw(_scalar(node, kind))


def _scalar(node: Any, kind: str) -> st.SearchStrategy[Any]:
    logical = node.get("logicalType", "") if isinstance(node, dict) else ""
    if logical == "decimal":
        most = 10 ** node["precision"] - 1
        return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-node["scale"], _EXACT))
    if logical == "uuid" and kind == "string":
        return st.uuids()
    if kind in ("int", "long"):
        return st.integers(*_RANGES[logical or kind])
    if kind == "fixed":
        return st.binary(min_size=node["size"], max_size=node["size"])
    if kind == "enum":
        return st.sampled_from(node["symbols"])
    plain: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(), "float": st.floats(width=32), "double": st.floats(), "bytes": st.binary(max_size=12),
        "string": _texts,
    }  # fmt: skip
    return plain[kind]


@st.composite
def _batches(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    schema = draw(_records(count()))
    return schema, draw(st.lists(_datum(schema, {}), max_size=6))


def _row(node: Any, datum: Any, around: dict[str, Any]) -> Any:
    """What the column has for a datum."""
    if isinstance(node, list):
        others = [branch for branch in node if not _is_null(branch)]
        if datum is None:
            return None
        found = {_branch(branch): _row(branch, datum[1], around) for branch in others if _branch(branch) == datum[0]}
        return found[datum[0]] if len(others) == 1 else dict.fromkeys(map(_branch, others)) | found
    if isinstance(node, str) and node in around:
        return json.dumps(_json(node, datum, around), ensure_ascii=False, separators=(",", ":"))
    kind = node["type"] if isinstance(node, dict) else node
    if kind == "record":
        inside = {**around, node["name"]: node}
        return {member["name"]: _row(member["type"], datum[member["name"]], inside) for member in node["fields"]}
    if kind == "array":
        return [_row(node["items"], item, around) for item in datum]
    if kind == "map":
        return [(key, _row(node["values"], item, around)) for key, item in datum.items()]
    if isinstance(datum, uuid.UUID):
        return datum.bytes
    is_millis = isinstance(node, dict) and node.get("logicalType", "").endswith("millis")
    return datum * 1000 if is_millis else datum


def _json(node: Any, datum: Any, around: dict[str, Any]) -> Any:
    if isinstance(node, list):
        if datum is None:
            return None
        (branch,) = (branch for branch in node if _branch(branch) == datum[0])
        value = _json(branch, datum[1], around)
        return value if sum(not _is_null(other) for other in node) == 1 else {datum[0]: value}
    node = around.get(node, node) if isinstance(node, str) else node
    kind = node["type"] if isinstance(node, dict) else node
    if kind == "record":
        inside = {**around, node["name"]: node}
        return {member["name"]: _json(member["type"], datum[member["name"]], inside) for member in node["fields"]}
    if kind == "array":
        return [_json(node["items"], item, around) for item in datum]
    if kind == "map":
        return {key: _json(node["values"], item, around) for key, item in datum.items()}
    return _json_scalar(node, kind, datum)


def _json_scalar(node: Any, kind: str, datum: Any) -> Any:
    if isinstance(datum, uuid.UUID):
        return str(datum)
    if isinstance(datum, Decimal):
        (body,) = write({**node, "name": "x"}, datum)
        datum = body[-node["size"] :] if kind == "fixed" else body[1:]
    if isinstance(datum, bytes):
        return base64.b64encode(datum).decode()
    if isinstance(datum, float) and not math.isfinite(datum):
        return "NaN" if math.isnan(datum) else "Infinity" if datum > 0 else "-Infinity"
    return datum


@_MODEST
@given(_batches())
def test_what_fastavro_writes_is_read_back(batch: tuple[Any, list[Any]]) -> None:
    schema, data = batch
    bodies = write(schema, *data)
    assert repr(plain_rows(schema, bodies)) == repr([_row(schema, datum, {}) for datum in data])
    assert repr([Strict(schema, body).row() for body in bodies]) == repr([_row(schema, datum, {}) for datum in data])


@st.composite
def _damaged(draw: st.DrawFn) -> tuple[Any, list[bytes]]:
    schema, data = draw(_batches())
    bodies = []
    for body in write(schema, *data):
        kind = draw(st.sampled_from(["none", "cut", "flip", "insert", "noise"]))
        at = draw(st.integers(0, max(0, len(body) - 1)))
        noise = draw(st.binary(min_size=1, max_size=3))
        damaged = {
            "none": body, "cut": body[:at], "flip": body[:at] + noise[:1] + body[at + 1 :],
            "insert": body[:at] + noise + body[at:], "noise": noise * at,
        }  # fmt: skip
        bodies.append(damaged[kind])
    return schema, bodies


def _strict(schema: Any, body: bytes) -> Any:
    try:
        return Strict(schema, body).row()
    except Refused:
        return None


@settings(_MODEST, max_examples=30 * _TIMES)
@given(_damaged())
def test_a_damaged_record_is_refused_exactly_when_it_is_damage(batch: tuple[Any, list[bytes]]) -> None:
    schema, bodies = batch
    assert repr(plain_rows(schema, bodies)) == repr([_strict(schema, body) for body in bodies])


@_MODEST
@given(_damaged())
def test_a_record_s_row_is_the_same_whatever_its_neighbours_are(batch: tuple[Any, list[bytes]]) -> None:
    schema, bodies = batch
    together = plain_rows(schema, bodies)
    assert repr(together) == repr([plain_rows(schema, [body])[0] for body in bodies])


_MIXED = record_of(
    a="long", b=["null", "string"], c={"type": "array", "items": ["null", "string", {"type": "array", "items": "int"}]},
    d={"type": "map", "values": {"type": "map", "values": "double"}}, e=["null", "r"],
    f={"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
)  # fmt: skip


@settings(_MODEST, max_examples=50 * _TIMES)
@given(st.lists(st.binary(max_size=40), max_size=8))
def test_bytes_at_random_are_refused_exactly_when_they_are_no_record(bodies: list[bytes]) -> None:
    assert repr(plain_rows(_MIXED, bodies)) == repr([_strict(_MIXED, body) for body in bodies])
