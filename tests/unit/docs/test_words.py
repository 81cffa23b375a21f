"""Pages use the words of Kafka, Iceberg, Spark and Debezium: retired words of Frazil's own do not come back."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatch

import pytest

from docs.scan import ROOT

FOLDERS = (
    "catalogs", "concepts", "contributing", "deploy", "engines", "guides", "migrate", "migrate/transforms", "operate",
    "reference", "security", "start", "troubleshoot", "tutorials",
)  # fmt: skip
"""Folders of docs: all but the decisions, which quote the words of their time."""
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "docs/*.md",
    *(f"docs/{folder}/*.md" for folder in FOLDERS),
    "packages/*/README.md",
)
"""Globs of pages whose prose is searched."""
SOURCES = ("src/**/*.py", "packages/*/src/**/*.py")
"""Globs of Python files whose whole text is searched: docstrings, comments, strings and names."""

RETIRED = {
    r"(?<!dead[ -])(?<!dead_)\bletters?\b": "dead letter, or character",
    r"\bletter box(es)?\b": "dead-letter table",
    r"\bmirror(s|ed|ing)?\b": "upsert table, current-state table",
    r"\bchange logs?\b": "changelog table",
    r"\b(table )?care\b|\bcare(s|d) for\b|\bcaretakers?\b|\bcare_\w+": "table maintenance",
    r"\bow(e|es|ed)\b|\bdebts?\b": "maintenance backlog",
    r"\bat rest\b|\brests\b|\bquiet\b|\bcalm\b": "idle",
    r"\b(told|tells?|telling)\b|\bsaid\b|\bsays\b|\bsaying\b": "reported, recorded, logged, returned, contains",
    r"\bspeaks?\b|\bspoken\b|\basked of\b": "refers to, requested from",
    r"\bin vain\b": "no-op, unsuccessful",
    r"\b(un)?barred\b|\bgranting\b": "column-name conflict, rejected",
    r"\bmoved in part\b|\bhalf of a (change|move)\b": "incomplete primary-key update",
    r"\bfold(s|ed|ing)?\b": "keep the latest change per key",
    r"\bgiven up\b|\bgives? up\b": "abandoned",
    r"\bawaited\b|\bunfilled\b": "pending, missing required values",
    r"\bpass(ed|es|ing)? over\b": "ignored, skipped",
    r"\banew\b": "again; made anew: deleted and recreated",
    r"\bwait(ed|s)? out\b": "retried with back-off",
    r"\b(go|goes|going|went|gone) on\b": "continues",
    r"\bstands?\b(?! for\b|[ -](by|down)\b)": "is stored in, is listed in",
    r"\bother hands\b": "other writers",
    r"\bdoubled process\b": "a second process of the same pipeline",
    r"\blanes?\b": "worker",
    r"\bframes?\b|\bframed\b|\bmagic\b": "wire format, header",
    r"\bmisfits?\b": "type mismatch, value out of range",
    r"\bput aside\b|\bset aside\b": "rescued, stored",
    r"\bmade again\b": "created again",
    r"\bcomes? (too )?late(r)?\b|\b(that|which|what) (is|are) there\b": "arrives later, exists",
    r"\btak(e|es|en|ing) out\b|\btak(e|es|en|ing) away\b": "removed, deleted",
    r"\bput(s)? together\b": "compacted, merged",
    r"\bon_drift\b|\bundeclared: \w+|\bdeletes: (remove|mark|apply)\b": "the setting's present name",
}
"""Retired words, as regular expressions that ignore case, with the words to use instead."""

IN_TESTS = (
    "dead letter, or character", "changelog table", "upsert table, current-state table", "table maintenance",
    "other writers", "worker",
)  # fmt: skip
"""Of these, those that are searched in tests too, in their names as well."""

EXEMPT_IN_SOURCES = {
    r"magic (byte|number)": "the wire formats of Confluent and Puffin",
    r"letters? that latin|letter case|letters?(, digits| or digit)|(small|lower-case) letter": "letters of the alphabet",
    r"(a|one) pass over": "a loop over values, once",
    r"(\.|def )tell\(": "Python's files",
    r"mirror's Ivy settings": "Maven",
    r"\bfold=0\b": "an argument of Python's datetime",
    r'overflow="fold"': "rich's tables",
    r"framed=True": "kafka-python's messages",
    r"frame-ancestors": "the Content-Security-Policy of HTTP",
}
"""Regular expressions of phrases in Python files that are no dialect, with their origin."""
EXEMPT_FILES = {
    "packages/demo/src/frazil_demo/*.py": (r"\bframes?\b", "frames of the terminal"),
}
"""Globs of Python files with phrases that are searched in other files, as regular expressions, and the reason."""

_COMMENT_LINE = re.compile(r"\n\s*#:? ")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_CODE_SPAN = re.compile(r"`[^`]*`")
_LINK_TARGET = re.compile(r"\]\([^)]*\)")
_BENCH_REPORT = re.compile(r"<!-- bench report begins -->.*?<!-- bench report ends -->", re.DOTALL)


def prose_of(page: str) -> str:
    """The page without code, link targets and the report that benchmarks write, on one line."""
    for part in (_BENCH_REPORT, _CODE_BLOCK, _CODE_SPAN):
        page = part.sub(" ", page)
    return " ".join(_LINK_TARGET.sub("]", page).split())


def text_of(name: str, source: str) -> str:
    """The text of a Python file without exempt phrases, on one line: a phrase may continue on the next comment line."""
    text = " ".join(_COMMENT_LINE.sub(" ", source).split())
    exempt = [*EXEMPT_IN_SOURCES, *(phrase for glob, (phrase, _) in EXEMPT_FILES.items() if fnmatch(name, glob))]
    return re.sub("|".join(exempt), " ", text, flags=re.IGNORECASE)


def retired_words(text: str, searched: Collection[str] = tuple(RETIRED.values())) -> Iterator[str]:
    """Each occurrence of a retired word with 30 characters on both sides, and the words to use instead. searched: of the
    latter, those that are looked for.
    """
    for pattern, instead in RETIRED.items():
        if instead not in searched:
            continue
        for found in re.finditer(pattern, text, re.IGNORECASE | re.ASCII):  # Twice as fast: the words are of ASCII.
            context = text[max(found.start() - 30, 0) : found.end() + 30]
            yield f"{found.group()!r} in {context!r}: write {instead}"


def files_of(globs: Iterable[str]) -> list[str]:
    """Returns the files that the globs name, relative to the repository."""
    return sorted({str(path.relative_to(ROOT)) for glob in globs for path in ROOT.glob(glob)})


def test_pages_have_no_retired_words() -> None:
    prose = {name: prose_of((ROOT / name).read_text(encoding="utf-8")) for name in files_of(PAGES)}
    assert [f"{name}: {word}" for name, text in prose.items() for word in retired_words(text)] == []


def test_the_source_has_no_retired_words() -> None:
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in files_of(SOURCES)}
    assert [f"{name}: {word}" for name, text in texts.items() for word in retired_words(text_of(name, text))] == []


def test_the_first_line_of_each_module_is_a_sentence() -> None:
    """The first lines are the index of a room."""
    opening = {name: (ROOT / name).read_text(encoding="utf-8").partition("\n")[0] for name in files_of(SOURCES)}
    assert [name for name, line in opening.items() if re.fullmatch(r'"""[^"].*\.("""| """)?', line) is None] == []


def test_tests_have_no_retired_names() -> None:
    names = [
        name
        for name in files_of(("tests/**/*.py", "packages/*/tests/**/*.py"))
        if name != "tests/unit/docs/test_words.py"
    ]
    texts = {name: (ROOT / name).read_text(encoding="utf-8").replace("_", " ") for name in names}
    assert [
        f"{name}: {word}" for name, text in texts.items() for word in retired_words(text_of(name, text), IN_TESTS)
    ] == []


def test_every_exemption_of_the_source_is_used() -> None:
    texts = {name: _COMMENT_LINE.sub(" ", (ROOT / name).read_text(encoding="utf-8")) for name in files_of(SOURCES)}
    unused = [phrase for phrase in EXEMPT_IN_SOURCES if not any(map(re.compile(phrase, re.I).search, texts.values()))]
    for glob, (phrase, _) in EXEMPT_FILES.items():
        if not any(re.search(phrase, text, re.I) for name, text in texts.items() if fnmatch(name, glob)):
            unused.append(glob)
    assert unused == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("the letters of a mirror", 2),
        ("dead letters, dead-letter tables and `letters`", 0),
        ("[why](maintain.md#table-care)", 0),
        ("it is\npassed over", 1),
        ("```\nthe table tells\n```\na standalone master understands frameworks", 0),
        ("the rest of a careful user's mirrormaker", 0),
    ],
)
def test_retired_words_are_found_in_prose_alone(text: str, count: int) -> None:
    assert len(list(retired_words(prose_of(text)))) == count


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("x = 1  # it goes\n# on, and the table says so", 2),
        ("#: It is passed\n    #: over.", 1),
        ("the magic byte 0, as in letter case; DataFrame; frames", 1),
    ],
)
def test_retired_words_are_found_in_comments(source: str, count: int) -> None:
    assert len(list(retired_words(text_of("src/frazil/rows/a.py", source)))) == count


def test_every_glob_finds_files() -> None:
    assert [glob for glob in (*PAGES, *SOURCES) if not files_of([glob])] == []
