"""The answers of cases as compact text, which files keep, and how two answers differ.

An answer has the facts of each table in full and of its rows a digest for each block of a hundred offsets, so that a
difference is found without all rows being kept.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory

from structlog.testing import capture_logs

from tests.corpus.cases import setting_of
from tests.corpus.play import Line, Played, PlayedTable, digest, play

ANSWERS = Path(__file__).parent / "answers"
_FIRST_ROWS = 1
_MOST_CHARACTERS = 200
_MESSAGE_CHARACTERS = 90
_MOST_FACTS = 36
_BLOCKS_IN_LINE = 6
_BEFORE_DIFFERENCE = 40
_PLACE = re.compile(r" [0-9]+/[0-9]+ ")
_HEAD = "== "
Answer = Sequence[str]
"""The lines of one case."""


def played(case: str) -> Played:
    """Plays a case."""
    with TemporaryDirectory() as folder:
        return play(*setting_of(case), Path(folder))


def answers_of(cases: Iterable[str]) -> dict[str, Answer]:
    """Returns the answers of cases; of one that cannot be played the error, which is an answer that nobody expects."""
    answers: dict[str, Answer] = {}
    for case in cases:
        try:
            with capture_logs():
                answers[case] = answer_of(played(case))
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            answers[case] = [f"{type(error).__name__}: {error}"]
    return answers


def answer_of(case: Played) -> list[str]:
    """Returns the answer of a played case."""
    lines = [f"records {case.record_count}", *_limited(case.events, _MOST_FACTS)]
    for table in case.tables:
        lines += _table_lines(table)
    return lines


def _table_lines(table: PlayedTable) -> Iterator[str]:
    rows = [line.text for line in table.rows]
    yield f"table {table.name}: {len(rows)} rows, order {digest(rows)}"
    yield from _limited(table.facts, _MOST_FACTS)
    yield from map(_short, rows[:_FIRST_ROWS])
    blocks = [f"{block} {len(texts)} {digest(texts)}" for block, texts in _blocks(table.rows)]
    yield from (", ".join(blocks[first : first + _BLOCKS_IN_LINE]) for first in range(0, len(blocks), _BLOCKS_IN_LINE))
    yield from _dead_letter_lines(table.dead_letters)


def _dead_letter_lines(lines: Sequence[Line]) -> Iterator[str]:
    """Yields a line for each class: how many there are of each path, and the first message."""
    classes: dict[str, list[tuple[str, list[str]]]] = {}
    for block, texts in _blocks(lines):
        kind, _, path = block.partition(" ")
        classes.setdefault(kind, []).append((path, texts))
    for kind, paths in classes.items():
        every = [text for _, texts in paths for text in texts]
        counts = ", ".join(f"{path} {len(texts)}" for path, texts in paths)
        yield _short(f"bad {kind} {len(every)} {digest(every)}: {every[0][:_MESSAGE_CHARACTERS]}; {counts}")


def _blocks(lines: Iterable[Line]) -> list[tuple[str, list[str]]]:
    """Returns the texts of each block, sorted."""
    blocks: dict[str, list[str]] = {}
    for line in lines:
        blocks.setdefault(line.block, []).append(line.text)
    return [(block, sorted(texts)) for block, texts in sorted(blocks.items())]


def _limited(lines: Sequence[str], most: int) -> Iterator[str]:
    yield from map(_short, lines[:most])
    if len(lines) > most:
        yield f"and {len(lines) - most} more {digest(lines[most:])}"


def _short(text: str) -> str:
    """Returns a line of at most so many characters; a longer one ends in a digest."""
    text = text.replace("\n", "\\n").replace("\r", "\\r")
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}… {digest([text])}"


def file_of(case: str) -> Path:
    """Returns the file with the answer of a case."""
    return ANSWERS / f"{case.split('/')[0]}.txt"


def read_answers() -> dict[str, list[str]]:
    """Returns the frozen answers by case."""
    answers: dict[str, list[str]] = {}
    for file in sorted(ANSWERS.glob("*.txt")):
        lines: list[str] = []
        for line in file.read_text().splitlines():
            if line.startswith(_HEAD):
                lines = answers.setdefault(f"{file.stem}/{line.removeprefix(_HEAD)}", [])
            else:
                lines.append(line)
    return answers


def write_answers(answers: Mapping[str, Answer]) -> None:
    """Freezes these answers, in place of all that are kept."""
    texts: dict[Path, list[str]] = {}
    for case, lines in answers.items():
        texts.setdefault(file_of(case), []).extend([_HEAD + case.split("/", 1)[1], *lines])
    ANSWERS.mkdir(exist_ok=True)
    for file in set(ANSWERS.glob("*.txt")) - texts.keys():
        file.unlink()
    for file, lines in texts.items():
        file.write_text("\n".join(lines) + "\n")


def difference(frozen: Answer, present: Answer) -> list[str]:
    """Returns the lines that differ, with their neighbours; none of equal answers."""
    return list(unified_diff(frozen, present, "frozen", "present", lineterm="", n=1))


def lines_of(case: Played) -> list[str]:
    """Returns every row and dead letter of a case."""
    lines = []
    for table in case.tables:
        lines += [f"{table.name} {text}" for text in sorted(line.text for line in table.rows)]
        lines += [f"{table.name} bad {block} {text}" for block, texts in _blocks(table.dead_letters) for text in texts]
    return lines


def row_differences(case: str, before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """Yields, for each record whose rows or dead letters differ, what they are from where they do, and the record."""
    places: dict[str, tuple[list[str], list[str]]] = {}
    for side, lines in enumerate((before, now)):
        for line in lines:
            match = _PLACE.search(line)
            places.setdefault(match[0].strip() if match else "", ([], []))[side].append(line)
    for place, (old, new) in places.items():
        gone, come = sorted(set(old) - set(new)), sorted(set(new) - set(old))
        if gone or come:
            pairs = enumerate(zip(*gone, *come, strict=False))
            same = next((number for number, several in pairs if len(set(several)) > 1), 0) if gone and come else 0
            start = max(0, same - _BEFORE_DIFFERENCE)
            yield from (f"- {place} {line[start : start + _MOST_CHARACTERS]}" for line in gone)
            yield from (f"+ {place} {line[start : start + _MOST_CHARACTERS]}" for line in come)
            if place:
                yield _record_at(case, *map(int, place.split("/")))


def _record_at(case: str, partition: int, offset: int) -> str:
    stream, _ = setting_of(case)
    record = [one for one in stream.records if one.partition == partition][offset]
    return f"  of the key {record.key!r}, value {record.value!r}"[: 2 * _MOST_CHARACTERS]
