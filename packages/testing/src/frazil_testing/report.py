"""How cases have ended, as text for people and as JUnit's XML for programs that collect tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.text import Text

from frazil.errors import UnavailableError
from frazil.printable import plain, plural
from frazil_testing.compare import Difference, Verdict

_INDENT = "  "


def text_report(verdicts: Sequence[Verdict], seconds: float) -> Text:
    """Returns the cases that are not as expected, with their differences, and the counts."""
    text = Text(no_wrap=True, overflow="ignore")
    for verdict in verdicts:
        if not verdict.is_ok or verdict.is_updated:
            _add_case(text, verdict)
    passed = sum(verdict.is_ok and not verdict.is_updated for verdict in verdicts)
    counts = [f"{passed} as expected"]
    for count, words in (
        (sum(verdict.is_updated for verdict in verdicts), "updated"),
        (sum(bool(verdict.differences) for verdict in verdicts), "not as expected"),
        (sum(bool(verdict.error) for verdict in verdicts), "could not be played"),
    ):
        counts += [f"{count} {words}"] if count else []
    is_well = all(verdict.is_ok for verdict in verdicts)
    text.append(f"{plural(len(verdicts), 'case')}: {', '.join(counts)}", "green" if is_well else "bold red")
    text.append(f" ({seconds:.1f} s)")
    return text


def _add_case(text: Text, verdict: Verdict) -> None:
    word, style = (
        ("updated", "yellow") if verdict.is_updated else ("error", "red") if verdict.error else ("differs", "red")
    )
    text.append(f"{word}  ", style)
    text.append(f"{verdict.name}  ", "bold")
    text.append(f"{verdict.file}:{verdict.line}\n", "dim")
    if verdict.error:
        for line in error_lines(verdict):
            text.append(f"{_INDENT}{line}\n")
    for difference in verdict.differences:
        text.append(f"{_INDENT}{difference.what}  ")
        text.append(f"{difference.where}\n", "dim")
        width = max((len(change.column) for change in difference.changes), default=0)
        for change in difference.changes:
            text.append(f"{_INDENT * 2}{change.column:<{width}}  expected  ")
            text.append(f"{change.expected}\n", "green")
            text.append(f"{_INDENT * 2}{'':<{width}}  actual    ")
            text.append(f"{change.actual}\n", "red")
    text.append("\n")


def error_lines(verdict: Verdict) -> Iterator[str]:
    """Yields why a case could not be played."""
    yield verdict.error
    yield from (f"{word}: {words}" for word, words in (("where", verdict.where), ("remedy", verdict.remedy)) if words)


def difference_lines(difference: Difference) -> Iterator[str]:
    """Yields a difference as text without colours."""
    yield f"{difference.what} ({difference.where})"
    for change in difference.changes:
        yield f"{_INDENT}{change.column}: expected {change.expected}, actual {change.actual}"


def write_junit(verdicts: Iterable[Verdict], path: Path) -> None:
    """Writes the cases as JUnit's XML.

    Raises: UnavailableError where the file cannot be written.
    """
    root = ElementTree.Element("testsuites")
    for file, group in groupby(verdicts, key=lambda verdict: verdict.file):
        cases = list(group)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=file,
            tests=str(len(cases)),
            failures=str(sum(bool(case.differences) for case in cases)),
            errors=str(sum(bool(case.error) for case in cases)),
            time=f"{sum(case.seconds for case in cases):.3f}",
        )
        for case in cases:
            _add_junit_case(suite, case)
    ElementTree.indent(root)
    try:
        path.write_bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))
    except OSError as error:
        remedy = "name a file in a folder that exists and can be written"
        raise UnavailableError(
            f"the JUnit file cannot be written: {error.strerror}", remedy=remedy, where=str(path)
        ) from None


def _add_junit_case(suite: Any, case: Verdict) -> None:
    element = ElementTree.SubElement(
        suite, "testcase", classname=case.file, name=plain(case.name), time=f"{case.seconds:.3f}"
    )
    element.set("file", case.file)
    element.set("line", str(case.line))
    if case.error:
        error = ElementTree.SubElement(element, "error", message=plain(case.error))
        error.text = plain("\n".join(error_lines(case)))
    elif case.differences:
        lines = [line for difference in case.differences for line in difference_lines(difference)]
        failure = ElementTree.SubElement(element, "failure", message=plain(case.differences[0].what))
        failure.text = plain("\n".join(lines))
