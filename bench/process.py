"""What a query and a look-up cost: the records of `running` into a table as they are, through a query that keeps half of
them, through the same query where Spark computes it, and joined with a reference table; the query in Spark Structured
Streaming and in Flink SQL, as a user of each would write it; and records of 20 kinds into one table, and into one of
each kind.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.parquet as pq

from bench import subjects
from bench.arithmetic import in_64_bits, prefix_total
from bench.loads import Load, json_load
from bench.place import Place, Run, say
from bench.records import SCHEMA, Pool, make_pool
from bench.table import Tables
from bench.throughput import DEBUG_LOG, one_run, quietly, stock_job
from bench.wide import weight

_USERS = 500_000  # Half of them.
QUERY = f"""
select id, sha2(cast(user_id as string), 256) as user, page_url, action, cast(amount as int) as amount, ok, ts, ua
from records where user_id < {_USERS}
"""
"""Half of the records, two casts, one hash."""
LOOKUP = f"select {', '.join(SCHEMA)}, user.tier as tier from records"
"""All fields, and one that is looked up by `user_id` in 100,000 rows."""
FLINK_COLUMNS = "id bigint, `user` string, page_url string, action string, amount int, ok boolean, ts bigint, ua string"
_REFERENCE_ROWS = 100_000
_KINDS = 20
IN_SPARK = f"""
select id, try_validate_utf8(sha2(cast(user_id as string), 256)) as user, page_url, action,
bround(cast(amount as int), 0) as amount, ok, ts, ua from records where bround(user_id, 0) < {_USERS}
"""
"""The same, in functions that only Spark computes, which here change nothing."""


def measure(place: Place) -> None:
    """Each, in turn: the machine is not the same from one minute to the next."""
    if "stock" in place.settings.subjects:
        with place.attempt("what a query costs in stock spark"):
            load = loads_of(place)["query"]
            found, job = _stock_runs(place, load)
            place.write_result("process", "stock", "query", found, query=QUERY.strip(), job=job)
    if "flink" in place.settings.subjects:
        with place.attempt("what a query costs in flink"):
            load = loads_of(place)["query"]
            found, job = _flink_runs(place, load)
            place.write_result("process", "flink", "query", found, query=QUERY.strip(), job=job)
    if "frazil" not in place.settings.subjects:
        return
    with place.attempt("what a query costs"):
        loads = {**loads_of(place), "lookup": _lookup_of(place), "kinds": _kinds_of(place), "route": _kinds_of(place)}
        runs: dict[str, list[Run]] = {variant: [] for variant in loads}
        for _ in range(place.settings.runs_of("frazil")):
            for variant, load in loads.items():
                runs[variant].append(_routed_run(place, load) if variant == "route" else _one_run(place, load))
                say(f"{variant}: {json.dumps(runs[variant][-1])}")
        for variant, found in runs.items():
            place.write_result(
                "process", "frazil", variant, found, query=str(loads[variant].table.get("select", "")).strip()
            )


def loads_of(place: Place) -> Mapping[str, Load]:
    """What is read, by names in results: the same topic, with the columns of its records declared."""
    plain = dataclasses.replace(json_load(place, "running"), table={"columns": SCHEMA})
    expected = _expected(place.pool, plain.total)
    query, spark = (
        dataclasses.replace(
            plain,
            expected=expected,
            dropped=plain.total - expected["(rows)"],
            table={**plain.table, "select": select},
        )
        for select in (QUERY, IN_SPARK)
    )
    return {"plain": plain, "query": query, "spark": spark}


def _lookup_of(place: Place) -> Load:
    """The same topic, joined with a reference table that has a row for each of its users, and others."""
    plain, file = loads_of(place)["plain"], place.run_folder("reference") / "users.parquet"
    users = dict.fromkeys(place.pool.user_ids)
    others = (user for user in range(2 * _REFERENCE_ROWS) if user not in users)
    ids = [*users, *itertools.islice(others, max(0, _REFERENCE_ROWS - len(users)))]
    pq.write_table(pa.table({"user": ids, "tier": [f"tier-{user % 7}" for user in ids]}), file)
    rows = [{**json.loads(tail), "tier": "tier-0"} for tail in (b"{" + one for one in place.pool.tails)]
    names = (name for name in [*SCHEMA, "tier"] if name != "id")
    sums = {name: in_64_bits(prefix_total([weight(row[name]) for row in rows], plain.total)) for name in names}
    ids_sum = plain.total * (plain.total - 1) // 2
    return dataclasses.replace(
        plain,
        expected={"(rows)": plain.total, "(different ids)": plain.total, **sums, "id": ids_sum},
        table={
            **plain.table,
            "lookup": {"user": {"file": str(file), "on": "user_id = user", "take": ["tier"]}},
            "select": LOOKUP,
        },
    )


def _kinds_of(place: Place) -> Load:
    """As many records as `running` has, of which each names one of 20 kinds."""
    plain = json_load(place, "running")
    pool = make_pool(kinds=[f"kind{number:02}" for number in range(_KINDS)])
    topic = place.topic("bench_kinds", pool, plain.total)
    return dataclasses.replace(plain, topic=topic, expected=pool.totals(plain.total), table={"columns": SCHEMA})


def _routed_run(place: Place, load: Load) -> Run:
    """The records of each kind into a table of their own."""
    settings, folder = place.settings, place.run_folder("process")
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, settings.catch_up_interval)
    to, rest = f"{subjects.NAMESPACE}.${{action}}", f"{subjects.NAMESPACE}.{subjects.TABLE}"
    route = {"topic": load.topic, "by": "action", "to": to, "rest": rest, **load.table}
    command = subjects.frazil_command(
        settings.frazil, folder, {**pipeline, "routes": [route]}, "--until-caught-up", *DEBUG_LOG
    )
    tables = Tables(command.table.catalog, subjects.NAMESPACE, subjects.TABLE)
    return one_run(place, dataclasses.replace(command, table=tables), load)


def _one_run(place: Place, load: Load) -> Run:
    settings, folder = place.settings, place.run_folder("process")
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, settings.catch_up_interval)
    return one_run(
        place,
        subjects.frazil_table_command(
            settings.frazil, folder, pipeline, load.topic, load.table, "--until-caught-up", *DEBUG_LOG
        ),
        load,
    )


def _stock_runs(place: Place, load: Load) -> tuple[list[Run], Mapping[str, object]]:
    """The query in micro-batches of the size of Frazil's batches."""
    source = {"maxOffsetsPerTrigger": str(place.settings.records)}
    job = {**stock_job(place, load.topic, metadata=False), "trigger": "available", "source": source, "select": QUERY}

    def one() -> Run:
        return one_run(place, subjects.stock_command(place.run_folder("process-stock"), job), load)

    return quietly(place, "stock", "query", one), job


def _flink_runs(place: Place, load: Load) -> tuple[list[Run], Mapping[str, object]]:
    """The query as one INSERT statement of Flink SQL, with a checkpoint every ten seconds."""
    settings = place.settings
    job = {
        "bootstrap": place.bootstrap,
        "topic": load.topic,
        "heap": settings.heap,
        "columns": FLINK_COLUMNS,
        "select": QUERY.strip().replace(" as user,", " as `user`,"),
    }

    def one() -> Run:
        return one_run(place, subjects.stock_command(place.run_folder("process-flink"), job, "bench.flink"), load)

    return quietly(place, "flink", "query", one), job


def _expected(pool: Pool, count: int) -> dict[str, int]:
    """What the query makes of the records 0 to `count` (exclusive): rows, different ids, and each field's sum."""
    rows = [_row(json.loads(pool.value(index))) for index in range(len(pool.tails))]
    kept = numpy.array([row is not None for row in rows])
    ids = numpy.arange(count)
    ids = ids[kept[ids % len(rows)]]
    names = next(row for row in rows if row is not None)
    sums = {name: in_64_bits(prefix_total([weight(row[name]) if row else 0 for row in rows], count)) for name in names}
    return {"(rows)": len(ids), "(different ids)": len(ids), **sums, "id": int(ids.sum())}


def _row(record: Mapping[str, Any]) -> dict[str, object] | None:
    """What the query makes of a record."""
    if record["user_id"] >= _USERS:
        return None
    as_it_is = {name: value for name, value in record.items() if name != "user_id"}
    return {**as_it_is, "user": "0" * 64, "amount": int(record["amount"])}
