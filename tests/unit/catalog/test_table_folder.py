"""Which metadata files are read to see whether a folder is one table's alone: few of those that are its own."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from frazil.catalog.table_metadata import find_foreign_metadata, normalize_path

OWN, OTHER = "0b0c", "d1e2"


def path(number: int, table: str = "a") -> str:
    return f"file:/lake/t/metadata/{number:05}-{table}.metadata.json"


def line(uuid: str, count: int, table: str = "a", kept: int = 10, first: int = 0) -> dict[str, str]:
    """The metadata files of a table's commits, each of which lists so many before it."""
    return {
        path(number, table): json.dumps(
            {
                "table-uuid": uuid,
                # A catalog writes `file:` another way than a listing does.
                "metadata-log": [
                    {"metadata-file": path(before, table).replace("file:/", "file:///"), "timestamp-ms": before}
                    for before in range(max(first, number - kept), number)
                ],
            }
        )
        for number in range(first, first + count)
    }


def found(files: Mapping[str, str | None], paths: list[str] | None = None) -> tuple[str | None, int]:
    """Who was found, and how many files were read."""
    read: list[str] = []

    def read_one(one: str) -> str | None:
        read.append(one)
        return files[one]

    return find_foreign_metadata(paths or list(files), OWN, read_one), len(read)


def test_of_a_table_that_keeps_all_its_metadata_one_in_many_is_read() -> None:
    assert found(line(OWN, 2000, kept=100, first=99_000)) == (None, 20)


@pytest.mark.parametrize(("count", "number"), [(500, 0), (500, 250), (500, 499), (3, 0)])
def test_one_file_of_another_table_is_found_among_any_number(count: int, number: int) -> None:
    stranger = path(number, "b")
    files = line(OWN, count) | {stranger: json.dumps({"table-uuid": OTHER})}
    assert found(files)[0] == stranger
    assert found(files, sorted(files, reverse=True))[0] == stranger


def test_a_table_that_lists_its_own_files_is_found_beside_one_that_does() -> None:
    stranger, _ = found(line(OWN, 300) | line(OTHER, 300, "b"))
    assert stranger is not None
    assert stranger.endswith("-b.metadata.json")


def test_a_file_that_is_gone_tells_nothing_of_others() -> None:
    files: dict[str, str | None] = {**line(OWN, 5, kept=2), path(4): None}
    stranger = path(9, "b")
    assert found(files) == (None, 3)
    assert found({**files, stranger: json.dumps({"table-uuid": OTHER})})[0] == stranger


@pytest.mark.parametrize("name", ["v7.metadata.json", "copy.metadata.json", "00003-x.gz.metadata.json"])
def test_names_of_every_catalog_are_read(name: str) -> None:
    stranger = f"s3://lake/t/metadata/{name}"
    assert found({stranger: json.dumps({"table-uuid": OTHER})}) == (stranger, 1)


@pytest.mark.parametrize("path", ["/lake/a", "//lake/a", "file:/lake/a", "file:///lake/a"])
def test_a_path_is_the_same_however_its_scheme_and_slashes_are_written(path: str) -> None:
    assert normalize_path(path) == "/lake/a"
    assert normalize_path("s3://lake//a") == "s3://lake//a", "as a store has it"
