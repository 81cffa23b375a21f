"""The page of engines and the table that `readers` is checked by: both have the same engines, which read the same."""

from __future__ import annotations

import re

import pytest

from docs.scan import ROOT
from frazil.spec.publishing import READERS

_PAGE = (ROOT / "docs/engines/README.md").read_text()
_UNREAD = ("not known", "does not read", "reading: not known")


def rows() -> dict[str, list[str]]:
    """Returns the cells of each engine of the page's first table, by what its row begins with."""
    table = _PAGE.partition("| engine |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip().replace("**", "") for cell in line.strip("|").split("|")] for line in table]
    return {engine: rest for engine, *rest in cells}


def is_read(cell: str) -> bool:
    """Returns whether a cell says that an engine reads; a preview is read."""
    assert cell.startswith((*_UNREAD, "reads", "preview")), cell
    return not cell.startswith(_UNREAD)


@pytest.mark.parametrize("name", READERS)
def test_the_page_has_each_reader_as_check_knows_it(name: str) -> None:
    reader = READERS[name]
    [cells] = [cells for engine, cells in rows().items() if engine.startswith(reader.label)]
    known = (reader.reads_position_deletes, reader.reads_format_3, reader.reads_vectors)
    assert tuple(map(is_read, cells[:3])) == known


def test_the_page_has_no_other_engine_and_the_same_versions() -> None:
    assert len(rows()) == len(READERS)
    versions = {
        reader.label: engine
        for reader in READERS.values()
        for engine in rows()
        if engine.startswith(reader.label)
        and (reader.version not in engine or (not reader.version and re.search(r"\d", engine)))
    }
    assert versions == {}
