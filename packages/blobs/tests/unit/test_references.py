"""Which packs belong to a table, and which are worth copying."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.table import Table

from frazil.store.file_io import StoredFile
from frazil_blobs.references import PackUse, all_packs, packs_of_snapshot
from frazil_blobs.settings import BlobSettings
from frazil_blobs.upkeep import worth_copying
from packages.blobs.tests.unit.test_faults import table_of
from packages.blobs.tests.unit.test_packs import JPEG, PNG, read_rows, rows_of, table, text

COLUMNS = {"id": "long", "image": "binary"}
PACK_BYTES, NOW_MS = 1000, 10_000


def test_packs_of_older_snapshots_and_of_branches_belong_to_the_table_until_these_are_gone(tmp_path: Path) -> None:
    target = table(tmp_path, COLUMNS, ["image"], pack="1MiB")
    some = [
        rows_of(read_rows(target, {"id": n, "image": text(content)}))
        for n, content in enumerate((PNG, JPEG, PNG + JPEG))
    ]
    older, newest, of_branch = (rows["image"][0].as_py()["uri"] for rows in some)
    made = table_of(tmp_path, some[0])
    first = current(made)
    made.manage_snapshots().create_branch(first, "kept").commit()
    made.overwrite(some[1])
    made.append(some[2], branch="kept")
    assert all_packs(made) == {older, newest, of_branch}
    assert [*packs_of_snapshot(made, None)] == [newest]
    made.manage_snapshots().remove_branch("kept").commit()
    gone = [snapshot.snapshot_id for snapshot in made.snapshots() if snapshot.snapshot_id != current(made)]
    made.maintenance.expire_snapshots().by_ids(gone).commit()
    assert all_packs(made) == {newest}


def current(made: Table) -> int:
    """The newest snapshot of the main branch."""
    snapshot = made.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def packs(**sizes: int) -> dict[str, StoredFile]:
    """Packs of so many bytes; those whose names begin with `old` were written long ago."""
    return {name: StoredFile(name, size, 1 if name.startswith("old") else NOW_MS) for name, size in sizes.items()}


def uses(**live_bytes: int) -> dict[str, PackUse]:
    """What rows have of packs."""
    return {name: PackUse(live, {f"{name}.parquet"}) for name, live in live_bytes.items()}


def test_packs_that_are_mostly_dead_or_old_with_dead_bytes_are_copied() -> None:
    found = packs(dead=1000, mostly=1000, half=1000, whole=20_000, old_whole=1000, old_less=1000)
    used = uses(mostly=499, half=500, whole=20_000, old_whole=1000, old_less=999, elsewhere=1)
    assert worth_copying(used, found, PACK_BYTES, NOW_MS // 2) == {"mostly", "old_less"}
    assert BlobSettings(columns=("image",), store="s3://lake/o").forget == 720 * 3600
    assert BlobSettings.model_validate({"columns": ["image"], "store": "s3://lake/o", "forget": "1h"}).forget == 3600


def test_those_that_have_most_dead_bytes_are_copied_until_few_of_all_are_dead() -> None:
    sizes = dict.fromkeys(("half", "tenth", "twentieth", "whole", "mostly"), 1000)
    live = {"half": 500, "tenth": 900, "twentieth": 950, "whole": 1000, "mostly": 100}
    assert worth_copying(uses(**live), packs(**sizes), PACK_BYTES, 0) == {"mostly", "half"}
    sizes["tenth"], live["tenth"] = 10_000, 9000
    assert worth_copying(uses(**live), packs(**sizes), PACK_BYTES, 0) == {"mostly", "half", "tenth"}
    at_limit = worth_copying(uses(one=950, other=950), packs(one=1000, other=1000), PACK_BYTES, 0)
    above = worth_copying(uses(one=949, other=950), packs(one=1000, other=1000), PACK_BYTES, 0)
    assert (at_limit, above) == (set(), {"one"})


def test_small_packs_are_copied_together_where_there_are_many() -> None:
    sizes = {f"small{n}": 249 for n in range(8)} | {"large": 250}
    assert worth_copying(uses(**sizes), packs(**sizes), PACK_BYTES, 0) == {f"small{n}" for n in range(8)}
    del sizes["small0"]
    assert worth_copying(uses(**sizes), packs(**sizes), PACK_BYTES, 0) == set()
