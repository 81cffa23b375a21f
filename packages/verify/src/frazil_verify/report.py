"""The report of `frazil verify` for people who did not run it: as JSON, as text, or as a page with pictures."""

from __future__ import annotations

import hashlib
import html
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from frazil import __version__
from frazil.api.results import VerifyResult
from frazil.errors import SpecError, UnavailableError
from frazil_verify.findings import Kind

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#1c2733}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25em .6em;border-bottom:1px solid #d5dce3}"
    "h2{margin-top:2em}.ok{color:#17683a}.bad{color:#a11d1d}code{font-size:.9em;word-break:break-all}"
    "svg text{font:12px system-ui,sans-serif;fill:#1c2733}"
)
_BAR, _HEIGHT, _CHART = 22, 120, 640
_COLOURS = dict(
    zip(Kind, itertools.cycle(("#a11d1d", "#c46a1b", "#8a6d0a", "#3d6b99", "#6a3d99", "#4d5661")), strict=False)
)


def document_of(result: VerifyResult, at_ms: int) -> dict[str, Any]:
    """Returns the report as JSON. at_ms: when it was made."""
    body = {"frazil": __version__, "made_at": _moment(at_ms), **result.document()}
    return {**body, "signature": signature_of(body)}


def signature_of(document: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a report without its signature: a changed report has another one."""
    body = {name: value for name, value in document.items() if name != "signature"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def write_report(path: Path, document: Mapping[str, Any]) -> Path:
    """Writes a report: as a page where the name ends in `.html`, as text in `.txt`, else as JSON. A folder gets a JSON file
    and a page, both named by the date. Returns the file.

    Raises: UnavailableError where it cannot be written.
    """
    try:
        if path.is_dir():
            stem = f"verify-{document['pipeline']}-{document['made_at'].replace(':', '')}"
            write_report(path / f"{stem}.html", document)
            return write_report(path / f"{stem}.json", document)
        make = page_of if path.suffix == ".html" else text_of if path.suffix == ".txt" else _as_json
        path.write_text(make(document) + "\n", encoding="utf-8", errors="surrogateescape")
        return path
    except OSError as error:
        raise UnavailableError(f"the report cannot be written: {error.strerror}", where=str(path)) from None


def _as_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, default=str)


def read_report(path: Path) -> dict[str, Any]:
    """Returns a report that was written as JSON.

    Raises: SpecError where it is not one, or was changed.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if document["signature"] == signature_of(document):
            return document
        reason = "the report was changed after it was written: its signature is another one"
    except OSError as error:
        reason = f"the report cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError):
        reason = "the file is not a report of `frazil verify` in JSON"
    remedy = "write one with `frazil verify TABLE --independent --report report.json`"
    raise SpecError(reason, remedy=remedy, where=str(path))


def text_of(document: Mapping[str, Any]) -> str:
    """Returns the report as text."""
    lines = [f"pipeline {document['pipeline']}, verified {document['made_at']} by frazil {document['frazil']}"]
    for name, table in document["tables"].items():
        lines.append(f"{name}: {_verdict(table)}")
        lines += [f"  {kind}: {number}" for kind, number in sorted(table.get("counts", {}).items())]
        lines += [f"  {finding['text']}" for finding in table.get("findings", [])]
        lines += [f"  note: {note}" for note in table.get("notes", [])]
    return "\n".join([*lines, f"signature {document['signature']}"])


def page_of(document: Mapping[str, Any]) -> str:
    """Returns the report as a page that needs no other file."""
    head = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>frazil verify: {_text(document['pipeline'])}</title>"
    )
    parts = [
        f"{head}<style>{_STYLE}</style><h1>Pipeline {_text(document['pipeline'])}</h1>",
        f"<p>Verified {_text(document['made_at'])} by Frazil {_text(document['frazil'])}.</p>",
    ]
    for name, table in document["tables"].items():
        parts += _section(name, table)
    parts.append(f"<h2>Signature</h2><p><code>{_text(document['signature'])}</code></p></html>")
    return "\n".join(parts)


def _section(name: str, table: Mapping[str, Any]) -> Iterator[str]:
    kind = "ok" if table["equal"] else "bad"
    yield f"<h2>{_text(name)}</h2><p class={kind}>{_text(_verdict(table))}</p>"
    facts = {
        "level": table.get("level", "copy"),
        **table.get("seen", {}),
        "snapshot": table.get("snapshot_id"),
        "up to": json.dumps(table.get("until", {})),
        **{f"digest of {of.replace('_', ' ')}": text for of, text in table.get("digests", {}).items()},
    }
    yield "<table>" + "".join(f"<tr><th>{_text(of)}<td><code>{_text(fact)}</code>" for of, fact in facts.items())
    yield "</table>"
    if table.get("counts"):
        yield "<h3>Differences by kind</h3>" + _bars(sorted(table["counts"].items()))
    if table.get("hours"):
        yield "<h3>Differences by hour</h3>" + _columns(table["hours"])
    if table.get("findings"):
        rows = (
            f"<tr><td>{_text(of['kind'])}<td>{_text(of['text'])}<td><code>{_text(_values(of))}</code>"
            for of in table["findings"]
        )
        yield f"<h3>Differences</h3><table><tr><th>kind<th>what<th>values{''.join(rows)}</table>"
    if table.get("notes"):
        yield f"<h3>Notes</h3><ul>{''.join(f'<li>{_text(note)}' for note in table['notes'])}</ul>"


def _values(finding: Mapping[str, Any]) -> str:
    names = finding.get("columns") or []
    expected, actual = finding.get("expected") or {}, finding.get("actual") or {}
    return "; ".join(f"{name}: {actual.get(name)!r}, must be {expected.get(name)!r}" for name in names)


def _bars(counts: Sequence[tuple[str, int]]) -> str:
    """Returns a picture of numbers by kind."""
    most = max(number for _, number in counts)
    bars = []
    for place, (kind, number) in enumerate(counts):
        top, width = place * _BAR, max(2, round(400 * number / most))
        bars += [
            f"<text x=0 y={top + 15}>{_text(kind)}</text>",
            f'<rect x=130 y={top + 3} height=16 fill="{_colour(kind)}" width={width} />',
            f"<text x={138 + width} y={top + 15}>{number:,}</text>",
        ]
    return f"<svg role=img width={_CHART} height={len(counts) * _BAR}>{''.join(bars)}</svg>"


def _columns(hours: Mapping[str, Mapping[str, int]]) -> str:
    """Returns a picture of numbers by hour, those of the kinds on top of each other."""
    sums: dict[int, dict[str, int]] = {}
    for kind, by_hour in sorted(hours.items()):
        for name, number in by_hour.items():
            sums.setdefault(int(name), {})[kind] = number
    first, last, most = min(sums), max(sums), max(sum(numbers.values()) for numbers in sums.values())
    span = (last - first) // 3_600_000 + 1
    width = (_CHART - 20) / span
    columns = []
    for hour, numbers in sorted(sums.items()):
        top = _HEIGHT
        for kind, number in numbers.items():
            height = max(1, round(100 * number / most))
            top -= height
            columns.append(
                f"<rect x={(hour - first) // 3_600_000 * width:.1f} width={max(1.0, width - 1):.1f} y={top}"
                f' height={height} fill="{_colour(kind)}">'
                f"<title>{_moment(hour)}: {number:,} {_text(kind)}</title></rect>"
            )
    ends = f"<text x=0 y={_HEIGHT + 16}>{_moment(first)}</text><text x={_CHART} y={_HEIGHT + 16}"
    ends += f' text-anchor="end">{_moment(last)}</text>'
    return f"<svg role=img width={_CHART} height={_HEIGHT + 22}>{''.join(columns)}{ends}</svg>"


def _colour(kind: str) -> str:
    """Returns the colour of a kind of differences, in all pictures."""
    return next((colour for of, colour in _COLOURS.items() if of == kind), "#4d5661")


def _verdict(table: Mapping[str, Any]) -> str:
    if table["equal"] is None:
        return f"not compared, as {table['reason']}" + (f"; {table['remedy']}" if table.get("remedy") else "")
    count = sum(table.get("counts", {}).values()) or table.get("missing", 0) + table.get("surplus", 0)
    return "nothing differs" if table["equal"] else f"{count:,} differences"


def _moment(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # Producers choose timestamps, also those of no calendar.
        return f"{at_ms} ms"


def _text(value: Any) -> str:
    return html.escape(str(value))
