"""The port of audits on Spark: which answers of a query hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.runtime.jvm import Jvm
from frazil_publish.spark_audits import SparkAudits
from tests.contracts.catalogs import IcebergLake
from tests.contracts.tables import TABLE, commit_of, create, head_of

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
    failures = SparkAudits(catalog, jvm.session).run(TABLE, head_of(catalog), None, list(queries.items()))
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
