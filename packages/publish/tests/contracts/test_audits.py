"""The port of audits on Spark: which answers of a query hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.catalog.iceberg.compaction import rows_at
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.errors import UnavailableError
from frazil.runtime.jvm import Jvm
from frazil_publish import spark_audits
from frazil_publish.audits import Audited
from frazil_publish.spark_audits import SparkAudits
from tests.contracts.catalogs import IcebergLake
from tests.contracts.tables import SCHEMA, TABLE, commit_of, create, head_of, load

pytestmark = pytest.mark.jvm
LONG = " and ".join(f"id is distinct from {number}" for number in range(7000, 7100))


def test_which_answers_hold(jvm: Jvm, tmp_path: Path) -> None:
    catalog: Any = IcebergLake(jvm, tmp_path).catalog()
    catalog.commit(commit_of(create(catalog), 5, ids=(1, 2, 3)))
    queries = {
        "long": f"select count_if(not ({LONG})) = 0 from candidate",
        "each": "select id > 0 from candidate",
        "every row of many": "select x < 2000 from (select explode(sequence(1, 1999)) x from candidate)",
        "one row of many": "select x < 1500 from (select explode(sequence(1, 1500)) x)",
        "null of many": "select if(x < 1500, true, null) from (select explode(sequence(1, 1500)) x)",
        "null": "select cast(null as boolean)",
        "no row": "select true from published",
        "change": f"with new as (select 1L id) insert into {TABLE} select id from new",
        "end": "select count(*) = 3 from candidate;",
        "rows": "select id from candidate where id > 1",
        "unknown column": "select count(*) = 0 from candidate where amount < 0",
    }
    audited = Audited(TABLE, head_of(catalog), None, list(queries.items()))
    [failures] = SparkAudits(catalog, jvm.session).run([audited])
    reasons = {failure.name: failure.reason for failure in failures}
    assert reasons.pop("unknown column").startswith("the query fails: [UNRESOLVED_COLUMN")
    assert reasons.pop("change").startswith("the query fails: [PARSE_SYNTAX_ERROR]")
    assert reasons == {
        "one row of many": "the query returns false",
        "null of many": "the query returns null",
        "null": "the query returns null",
        "no row": "the query returns no row",
        "rows": "the query returns 2 rows",
    }


def test_nothing_stays_in_the_jvm_of_files_that_were_read(jvm: Jvm, tmp_path: Path) -> None:
    catalog: Any = IcebergLake(jvm, tmp_path).catalog()
    catalog.commit(commit_of(create(catalog), 5, ids=(1, 2, 3)))
    head = head_of(catalog)
    readers: Any = catalog.gateway.jvm.org.apache.iceberg.arrow.ArrowAllocation.rootAllocator()
    assert rows_at(jvm.session(), catalog, TABLE, head).where("id > 1").count() == 2
    assert readers.getChildAllocators().size() > 0, "vectorized readers leave nothing any more: `forget_readers` can go"
    audited = Audited(TABLE, head, None, [("all", "select id > 0 from candidate")])
    assert SparkAudits(catalog, jvm.session).run([audited]) == [[]]
    assert readers.getChildAllocators().size() == 0
    assert rows_at(jvm.session(), catalog, TABLE, head).where("id > 1").count() == 2
    IcebergMaintenance(catalog, jvm.session).activated()
    assert readers.getChildAllocators().size() == 0


def test_samples_are_rows_as_spark_writes_them_in_json(jvm: Jvm, tmp_path: Path) -> None:
    catalog: Any = IcebergLake(jvm, tmp_path).catalog()
    catalog.commit(commit_of(create(catalog), 5, ids=(1, 2, 3)))
    query = (
        "select id, cast(null as string) word, 1.10BD amount, timestamp'0001-01-02 03:04:05.123456' old,"
        " timestamp_ntz'2026-01-02 03:04:05' plain, date'1500-02-03' day, array(1, null) list, map('k', 2) pairs,"
        " named_struct('a', null) part, 1 `Id`, cast('x' as binary) bytes, interval '1' day span from values (1L) as t(id)"
    )
    audited = Audited(TABLE, head_of(catalog), None, [("rows", query)])
    audits = SparkAudits(catalog, jvm.session)
    [[failure]] = audits.run([audited])
    session = jvm.session().newSession()
    session.conf.set("spark.sql.caseSensitive", "true")
    session.conf.set("spark.sql.jsonGenerator.ignoreNullFields", "false")
    assert failure.rows == (session.sql(query)._jdf.toJSON().first(),)


def test_tables_are_audited_at_a_time_and_see_their_own_snapshots(
    jvm: Jvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog: Any = IcebergLake(jvm, tmp_path).catalog()
    names = [TABLE, *(f"shop.t{number}" for number in range(1, 7))]
    schema = catalog.create(TABLE, SCHEMA, {}, 2).schema
    heads: dict[str, int] = {}
    for number, name in enumerate(names):
        state = catalog.load(TABLE) if name == TABLE else catalog.create(name, schema, {}, 2)
        commit = commit_of(load(catalog), 5, ids=(*range(number + 1),))
        catalog.commit(replace(commit, table=name, expected=state.progress))
        heads[name] = catalog.load(name).head_id
    read = list[tuple[str, int | None]]()

    def counted(spark: Any, catalog: Any, table: str, snapshot_id: int | None) -> Any:
        read.append((table, snapshot_id))
        return rows_at(spark, catalog, table, snapshot_id)

    monkeypatch.setattr(spark_audits, "rows_at", counted)
    tables = [
        Audited(
            name,
            heads[name],
            None,
            [
                ("count", f"select count(*) = {number + 1} from candidate"),
                (
                    "before",
                    f"select * from {names[number - 1].rpartition('.')[2]} p left anti join candidate using (id)",
                ),
                ("wrong", "select id from candidate where id = 4"),
                ("empty", "select count(*) = 0 from published") if number == 2 else ("true", "select true"),
            ],
            {other: heads[other] for other in names if other != name},
        )
        for number, name in enumerate(names)
        if number
    ]
    audits = SparkAudits(catalog, jvm.session)
    failures = audits.run([Audited(TABLE, heads[TABLE], None, []), *tables])
    assert [[(failure.name, failure.rows) for failure in failing] for failing in failures] == [
        *[[]] * 4, *[[("wrong", ('{"id":4}',))]] * 3,
    ]  # fmt: skip
    assert sorted(read, key=str) == sorted([*heads.items(), (names[2], None)], key=str)


def test_a_table_that_cannot_be_read_fails_all_audits(jvm: Jvm, tmp_path: Path) -> None:
    catalog: Any = IcebergLake(jvm, tmp_path).catalog()
    catalog.commit(commit_of(create(catalog), 5))
    query = [("any", "select count(*) > 0 from candidate")]
    tables = [Audited(TABLE, head_of(catalog), None, query) for _ in range(3)]
    tables.insert(1, Audited("shop.absent", 1, None, query))
    with pytest.raises(UnavailableError, match="the table cannot be audited") as refused:
        SparkAudits(catalog, jvm.session).run(tables)
    assert refused.value.where == "shop.absent"
