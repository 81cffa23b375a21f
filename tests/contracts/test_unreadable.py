"""A store that has lost what the catalog names, and a clock that went back: outages of Iceberg's own JDBC catalog, and never
a table that is not there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.java import is_named, java_errors, message_of, unavailable
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.catalog.layout import Layout
from frazil.catalog.port import NamedAppend, NotSent
from frazil.errors import UnavailableError
from frazil.runtime.jvm import Jvm
from frazil.schema.evolve import extend_schema
from frazil.spec.partitioning import parse_term
from tests.contracts.catalogs import IcebergLake
from tests.contracts.tables import SCHEMA, TABLE, commit_of, create, load

pytestmark = pytest.mark.jvm
AN_HOUR_MS = 3_600_000


@pytest.fixture
def lake(jvm: Jvm, folder: Path) -> IcebergLake:
    """A lake in a JVM whose session exists, so that PySpark puts its own exceptions in place of some of py4j's."""
    jvm.session()
    return IcebergLake(jvm, folder)


def metadata_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.metadata.json"))


def lose_metadata(folder: Path) -> Callable[[], None]:
    newest = metadata_files(folder)[-1]
    away = newest.rename(newest.with_suffix(".away"))

    def restore() -> None:
        away.rename(newest)

    return restore


def lose_warehouse(folder: Path) -> Callable[[], None]:
    """All folders of the warehouse are away, as after it was unmounted; the catalog's own file is elsewhere."""
    away = folder.parent / "away"
    away.mkdir()
    held = [path for path in folder.iterdir() if path.is_dir()]
    for path in held:
        path.rename(away / path.name)

    def restore() -> None:
        for path in held:
            (away / path.name).rename(path)

    return restore


@pytest.mark.parametrize("lose", [lose_metadata, lose_warehouse])
@pytest.mark.parametrize("is_known", [False, True], ids=["fresh", "known"])
def test_a_table_without_its_metadata_file_is_an_outage_with_the_path(
    lake: IcebergLake, folder: Path, lose: Callable[[Path], Callable[[], None]], is_known: bool
) -> None:
    first = lake.catalog()
    first.commit(commit_of(create(first), 5))
    newest = metadata_files(folder)[-1].name
    mine: Any = first if is_known else lake.catalog()
    if is_known:
        lake.append_foreign(TABLE)  # What is known is refreshed only where the catalog names another file.
        newest = metadata_files(folder)[-1].name
    restore = lose(folder)
    for ask in (lambda: mine.load(TABLE), lambda: IcebergMaintenance(mine).metadata(TABLE, with_files=False)):
        with pytest.raises(UnavailableError, match="a file of it is not in the store") as caught:
            ask()
        assert newest in caught.value.message
        assert "mount the warehouse again" in caught.value.remedy
    with pytest.raises(UnavailableError):
        mine.create(TABLE, SCHEMA, {}, 2)
    restore()
    assert load(mine).progress.offsets["a"][0] == 5


def move_clock(folder: Path, by_ms: int) -> None:
    """Makes the table's newest change as much younger: so it looks to a machine whose clock went back."""
    newest = metadata_files(folder)[-1]
    document = json.loads(newest.read_text())
    document["last-updated-ms"] += by_ms
    for part in (document["snapshots"], document["snapshot-log"]):
        part[-1]["timestamp-ms"] += by_ms
    newest.write_text(json.dumps(document))


def test_a_clock_that_went_back_is_named_by_every_change_and_nothing_is_sent(lake: IcebergLake, folder: Path) -> None:
    first = lake.catalog()
    first.commit(commit_of(create(first), 5))
    move_clock(folder, AN_HOUR_MS)
    mine = lake.catalog()
    before = load(mine)
    spec = (parse_term("bucket(id, 4)"),)
    changes: list[Callable[[], object]] = [
        lambda: mine.commit(commit_of(before, 7)),
        lambda: mine.evolve(TABLE, lambda schema: extend_schema(schema, {(): {"x": StringType()}})),
        lambda: mine.arrange(TABLE, Layout(partition_by=spec)),
        lambda: mine.mark(TABLE, "word", "yes"),
        lambda: mine.append_once(NamedAppend(TABLE, (), "word", "yes", None)),
    ]
    for change in changes:
        with pytest.raises(UnavailableError, match="clock was set back: it is more than a minute behind") as caught:
            change()
        assert "correct the clock" in caught.value.remedy
    with pytest.raises(NotSent):
        changes[0]()
    assert load(mine).progress == before.progress
    move_clock(folder, -AN_HOUR_MS)
    again = lake.catalog()
    assert again.commit(commit_of(load(again), 7)).offsets["a"][0] == 7


@pytest.mark.parametrize(
    "provoke",
    [
        lambda java: java.lang.Integer.parseInt("word"),
        lambda java: java.util.Collections.emptyList().add("word"),
        lambda java: java.math.BigInteger("1").divide(java.math.BigInteger("0")),
        lambda java: java.time.LocalDate.of(2020, 13, 1),
        lambda java: java.util.ArrayList().get(0),
        lambda java: java.util.Optional.empty().get(),
    ],
    ids=["number", "unsupported", "arithmetic", "date", "index", "element"],
)
def test_every_kind_of_java_exception_is_caught_and_named(lake: IcebergLake, provoke: Callable[[Any], object]) -> None:
    catalog: Any = lake.catalog()
    assert isinstance(catalog, IcebergCatalog)
    with pytest.raises(java_errors()) as caught:
        provoke(catalog.gateway.jvm.java)
    error = caught.value
    assert is_named(error, "java.")
    assert not is_named(error, "org.apache")
    reported = unavailable("the table cannot be loaded", error, TABLE)
    assert reported.message.startswith("the table cannot be loaded: ")
    assert "\n" not in reported.message
    assert message_of(error) in reported.message
