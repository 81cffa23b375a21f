"""The versions of reference tables that the commits of a table name, for a copy that joins the same offsets with them.

A copy of a table with `lookup` is made part by part: each part ends where a commit names other versions than the commit
before. Between two parts the copy's reference tables are others; the records of one part are read in any batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.data_files import Described
from frazil.catalog.iceberg.java import java_errors, unavailable
from frazil.catalog.port import Catalog, TableState
from frazil.catalog.progress import LOOKUPS, REPLAY_ID, key
from frazil.catalog.scans import Scan
from frazil.errors import FrazilError
from frazil.ingest.tables.lookups import open_lookups
from frazil.ingest.tables.table import Table
from frazil.spec.models import TableSpec
from frazil.types import Offsets, Progress
from frazil_verify.history import History

Versions = Mapping[str, Mapping[str, Any]]
"""The version of the reference table of each lookup, as a commit names it."""


class UnknownVersions(Exception):
    """Why the versions that records were joined with are not known, or cannot be read any more."""


@dataclass(frozen=True)
class Part:
    """Consecutive commits that name the same versions."""

    versions: Versions
    #: The offsets behind the last of them.
    ends: Offsets

    @property
    def snapshots(self) -> Mapping[str, int | None]:
        """The snapshot of each reference table; None for a table without rows.

        Raises: UnknownVersions where two lookups name two snapshots of one table.
        """
        snapshots: dict[str, int | None] = {}
        for version in self.versions.values():
            if "table" in version:
                name, number = version["table"], version["snapshot-id"]
                if snapshots.setdefault(name, number) != number:
                    raise UnknownVersions(f"two of its lookups were joined with two versions of {name}")
        return snapshots


def parts_of(spec: TableSpec, history: History, pipeline: str) -> list[Part]:
    """Returns the parts of a table with lookups, the first one first. history: its snapshots up to the compared one.

    Raises: UnknownVersions where commits that name versions have expired, or name none of a lookup, and where rows of dead
    letters were joined later than their records were read.
    """
    names = {lookup.name for lookup in spec.query.lookup}
    parts = list[Part]()
    for progress in _commits(history, pipeline):
        ledger = progress.ledger
        if ledger is not None and ledger.commits == 1:  # The first one, also of a topic that was recreated.
            parts.clear()
        elif not parts:
            raise UnknownVersions("its oldest commits have expired, which named the versions of its reference tables")
        versions = progress.batch.lookups
        if versions.keys() != names:
            raise UnknownVersions("some of its commits were made with other lookups")
        if parts and parts[-1].versions == versions:
            parts.pop()
        parts.append(Part(versions, progress.offsets))
    if any(key(pipeline, REPLAY_ID) in of.summary and key(pipeline, LOOKUPS) in of.summary for of in history.snapshots):
        raise UnknownVersions("rows of replayed dead letters were joined with the versions of their replay")
    return parts


def _commits(history: History, pipeline: str) -> Iterator[Progress]:
    """Yields the progress of the commits that have read records, the oldest first."""
    for _, progress in history.progress(pipeline):
        if progress is not None and progress.batch.balance is not None:
            yield progress


def check_versions(table: Table, catalog: IcebergCatalog, parts: Iterable[Part]) -> None:
    """Checks that the reference tables still have the versions of some parts.

    Raises: UnknownVersions; UnavailableError where the catalog does not answer.
    """
    snapshots = {place for part in parts for place in part.snapshots.items()}
    for name, number in sorted(snapshots, key=repr):
        main = catalog.on_main(name)
        if main.load(name) is None:
            raise UnknownVersions(f"its reference table {name} no longer exists")
        if number is not None and main.java_table(name).snapshot(number) is None:
            raise UnknownVersions(f"its reference table {name} no longer has snapshot {number}")
    for lookup in table.spec.query.lookup:
        if not lookup.file:
            continue
        try:
            current = open_lookups(catalog).find(table, lookup, {}).version
        except FrazilError as error:
            raise UnknownVersions(error.message) from None
        if any(part.versions[lookup.name] != current for part in parts):
            raise UnknownVersions(f"its commits name other versions of {lookup.file} than there is now")


def references_at(catalog: IcebergCatalog, part: Part) -> Catalog:
    """Returns a catalog whose reference tables have the versions of a part. Lookups alone read it."""
    return cast(Catalog, _References(catalog, part.snapshots))


class _References:
    """Reference tables at snapshots, as far as lookups ask for them."""

    def __init__(self, catalog: IcebergCatalog, snapshots: Mapping[str, int | None]) -> None:
        self._catalog = catalog
        self._snapshots = snapshots

    def on_main(self, table: str) -> Catalog:  # noqa: ARG002
        return cast(Catalog, self)

    def load(self, table: str) -> TableState | None:
        state = self._catalog.on_main(table).load(table)
        return None if state is None else replace(state, head_id=self._snapshots[table])

    def scan(self, table: str) -> Scan:
        number, catalog = self._snapshots[table], self._catalog.on_main(table)
        if number is None:
            return Scan()
        try:
            java = catalog.java_table(table)
            described = Described(catalog.gateway.jvm, java)
            files = described.live_files(java.newScan().useSnapshot(number).includeColumnStats())
        except java_errors() as error:
            raise unavailable("the files of the reference table cannot be listed", error, table) from None
        return Scan(number, tuple(files))

    def store_properties(self, location: str) -> Mapping[str, str]:
        return self._catalog.store_properties(location)
