"""Compares what the present code makes of the corpus with the frozen answers, or freezes them anew."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from structlog.testing import capture_logs

from tests.corpus.answers import (
    ANSWERS,
    Answer,
    answers_of,
    difference,
    lines_of,
    played,
    read_answers,
    row_differences,
    write_answers,
)
from tests.corpus.cases import CASES

_ROOT = Path(__file__).parents[2]
_PROCESSES = 2
_MOST_LINES = 18
_MOST_CASES = 6


def main(words: Sequence[str]) -> int:
    """Runs the command; returns 1 where answers differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("cases", nargs="*", help="names of cases, such as json/rescue or 'debezium_*'; all by default")
    parser.add_argument("--freeze", action="store_true", help="write the answers of the present code")
    parser.add_argument("--against", default="", help="the commit whose rows are shown; by default that of the answers")
    parser.add_argument("--rows", action="store_true", help="print every row of the cases, as JSON")
    given = parser.parse_args(words)
    cases = [one for one in CASES if not given.cases or any(fnmatch(one, name) for name in given.cases)]
    if given.rows:
        with capture_logs():
            sys.stdout.write(json.dumps({case: lines_of(played(case)) for case in cases}))
        return 0
    frozen = read_answers()
    present = dict(_answers(cases))
    if given.freeze:
        answers = {**frozen, **present}
        write_answers({case: answers[case] for case in CASES if case in answers})
        sys.stdout.write(f"{len(present)} answers written\n")
        return 0
    return _compare(cases, frozen, present, given.against)


def _answers(cases: Iterable[str]) -> Iterator[tuple[str, Answer]]:
    """Yields the answers of cases in their order, made by a few processes."""
    topics: dict[str, list[str]] = {}
    for case in cases:
        topics.setdefault(case.rpartition("/")[0], []).append(case)
    with ProcessPoolExecutor(_PROCESSES, get_context("spawn")) as pool:
        for number, made in enumerate(pool.map(answers_of, topics.values()), 1):
            sys.stderr.write(f"\r{number} of {len(topics)} topics")
            yield from made.items()
    sys.stderr.write("\n")


def _compare(cases: Sequence[str], frozen: Mapping[str, Answer], present: Mapping[str, Answer], against: str) -> int:
    """Prints how the answers differ; returns 1 where they do."""
    differing = [case for case in cases if frozen.get(case) != present[case]]
    for case in differing:
        sys.stdout.write(f"\n{case}\n")
        _print(difference(frozen.get(case, ()), present[case]))
    gone = sorted(frozen.keys() - set(CASES))
    for case in gone:
        sys.stdout.write(f"\n{case} is frozen, and no case of this name is played\n")
    if differing:
        _print_rows(differing[:_MOST_CASES], against or _commit_of_answers())
    sys.stdout.write(f"\n{len(cases) - len(differing)} of {len(cases)} answers are as they were frozen\n")
    return int(bool(differing or gone))


def _print(lines: Sequence[str]) -> None:
    for line in islice(lines, _MOST_LINES):
        sys.stdout.write(f"  {line}\n")
    if len(lines) > _MOST_LINES:
        sys.stdout.write(f"  … and {len(lines) - _MOST_LINES} more lines\n")


def _commit_of_answers() -> str:
    return _git("log", "-1", "--format=%H", "--", str(ANSWERS)).strip()


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=_ROOT, check=True, capture_output=True, text=True).stdout


def _print_rows(cases: Sequence[str], commit: str) -> None:
    """Prints the rows of cases that differ from those that the code of a commit makes."""
    if not commit:
        return
    before, now = _rows(cases, _checkout(commit)), _rows(cases, _ROOT)
    for case in cases:
        sys.stdout.write(f"\n{case}, rows and dead letters of {commit[:10]} and of now\n")
        _print(list(row_differences(case, before.get(case, ()), now[case])))


def _rows(cases: Sequence[str], root: Path) -> dict[str, list[str]]:
    sources = [root / "src", *sorted(root.glob("packages/*/src"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources))}
    command = [sys.executable, "-m", "tests.corpus", "--rows", *cases]
    made = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    rows: dict[str, list[str]] = json.loads(made)
    return rows


def _checkout(commit: str) -> Path:
    """Returns the folder with the files of a commit, which stays for later comparisons. What is compiled of files that are
    as they were then is copied, as compiling takes minutes.
    """
    folder = _ROOT / ".venv" / "corpus" / commit
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    folders = [name for name in ("src", "packages", "tests") if _git("ls-tree", commit, name)]
    archive = subprocess.run(["git", "archive", commit, *folders], cwd=_ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    for file in (*(folder / "src").rglob("*.py"), *folder.glob("packages/*/src/**/*.py")):
        present = _ROOT / file.relative_to(folder)
        if present.exists() and present.read_bytes() == file.read_bytes():
            shutil.copystat(present, file)
            for compiled in (present.parent / "__pycache__").glob(f"{file.stem}.*.nb?"):
                (file.parent / "__pycache__").mkdir(exist_ok=True)
                shutil.copy2(compiled, file.parent / "__pycache__")
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
