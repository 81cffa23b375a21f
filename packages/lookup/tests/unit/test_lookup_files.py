"""Parquet and CSV files of `lookup`: what is read of them, and which of them cannot be joined."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from frazil.spec.settings import LookupSpec
from frazil_lookup import references
from tests.unit.ingest.service_scene import Scene, only


def _lookup(file: Path) -> dict[str, Any]:
    return {"lookup": (LookupSpec(name="country", file=str(file), on=((("code",), "code"),), take=("name",)),)}


def _refused(made: Scene) -> str:
    """Returns why the table does not read a record, with the remedy."""
    service = made.start()
    for _ in range(12):
        service.turn(until_caught_up=True)
    status = only(service.tables).status
    return f"{status.reason} / {status.remedy}"


def test_values_of_a_csv_file_have_line_breaks_wherever_they_are_in_it(scene: Any, tmp_path: Path) -> None:
    file = tmp_path / "shops.csv"  # Of several of Arrow's blocks.
    names = [f"Shop {n}\n" + '"one", two\n' * 1000 for n in range(300)]
    file.write_text(
        "code,name\n" + "".join('{},"{}"\n'.format(n, one.replace('"', '""')) for n, one in enumerate(names))
    )
    made = scene(**_lookup(file), select="select country.* from records")
    made.feed("a", *({"code": str(n)} for n in range(300)))
    made.catch_up()
    assert [row["name"] for row in made.rows("n.a")] == names


def test_a_csv_file_whose_first_line_is_wrong_is_waited_for(scene: Any, tmp_path: Path) -> None:
    file = tmp_path / "countries.csv"
    made = scene(**_lookup(file))
    made.feed("a", {"code": "de"})
    file.write_bytes(b"code,name,name\nde,Germany,D\n")
    assert "has several columns `name` / give each column of the file a name of its own" in _refused(made)
    file.write_bytes("code,name,région\nde,Germany,EU\n".encode("latin-1"))
    assert "cannot be read" in _refused(made)
    file.write_bytes(b"code,name,NAME\nde,Germany,D\n")
    made.catch_up()
    assert made.rows("n.a")[0]["country"] == {"name": "Germany"}


def test_a_column_of_a_file_whose_type_cannot_be_taken_is_named(scene: Any, tmp_path: Path) -> None:
    file = tmp_path / "countries.parquet"
    made = scene(**_lookup(file))
    made.feed("a", {"code": "de"})
    texts, nested = pa.array(["de"], pa.string_view()), pa.array([{"en": "Germany"}])
    pq.write_table(pa.table({"code": texts, "name": nested}), file)
    remedy = "take another column, or store it as text, a number, a boolean, a date or a time"
    assert f"has the column `name` with a type that lookups cannot use / {remedy}" in _refused(made)
    pq.write_table(pa.table({"name": nested}), file)
    assert f"has no column `code` that lookups can use / {remedy}" in _refused(made)
    pq.write_table(pa.table({"code": texts, "name": texts}), file)
    made.catch_up()
    assert made.rows("n.a")[0]["country"] == {"name": "de"}


@pytest.mark.parametrize("write", [pq.write_table, csv.write_csv])
def test_a_file_that_is_too_large_is_not_read_whole(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    """It would take the driver's memory, and with it every other table."""
    file = tmp_path / f"countries.{'csv' if write is csv.write_csv else 'parquet'}"
    texts = pa.array(range(300_000)).cast(pa.string())
    write(pa.table({"code": texts, "name": texts}), str(file))
    made = scene(**_lookup(file))
    made.feed("a", {"code": "7"})
    with monkeypatch.context() as patched:
        patched.setattr(references, "MOST_ROWS", 1000)
        found = re.search(r"too large: at least ([\d,]+) rows", _refused(made))
    assert found is not None
    assert int(found[1].replace(",", "")) < len(texts)
    made.catch_up()
    assert made.rows("n.a")[0]["country"] == {"name": "7"}
