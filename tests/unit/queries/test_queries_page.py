"""The page of queries lists what queries may have."""

from __future__ import annotations

from docs.scan import ROOT
from frazil.queries.analysis import METADATA
from frazil.queries.refusals import FUNCTIONS, LIMIT_COUNT, LIMIT_DEPTH

_PAGE = (ROOT / "docs" / "reference" / "queries.md").read_text(encoding="utf-8")


def test_the_page_lists_every_allowed_function_in_its_group() -> None:
    for group, names in FUNCTIONS.items():
        assert f"| {group} | {', '.join(f'`{name}`' for name in sorted(names))} |" in _PAGE


def test_the_page_has_the_metadata_and_the_limits() -> None:
    assert [name for name in METADATA if f"| `{name}` |" not in _PAGE] == []
    assert f"above {LIMIT_COUNT}" in _PAGE
    assert f"more than {LIMIT_DEPTH} levels" in _PAGE
