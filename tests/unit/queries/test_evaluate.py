"""A program's rows, failures and drops; that single functions are Spark's is tested against Spark itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from frazil.queries.evaluate import EXPLODED, Processed, evaluate
from frazil.queries.kernels.table import reason
from frazil.queries.program import Call, Explode, Expression, Field, Filter, Literal, Operator, Program, Project

INT, TEXT, BOOL = pa.int32(), pa.string(), pa.bool_()
N, KIND, TAGS = Field("n", TEXT), Field("kind", TEXT), Field("tags", pa.list_(TEXT))
AS_INT = Call("Cast", (N,), INT, (("evalMode", "ANSI"),), "CAST(n AS INT)")
IS_ORDER = Call("EqualTo", (KIND, Literal("order", TEXT)), BOOL, (), "(kind = order)")


def program(*operators: Operator, **output: pa.DataType) -> Program:
    """A program with these columns in its result."""
    return Program(operators, tuple(Field(name, kind) for name, kind in output.items()))


def select(**columns: Expression) -> Program:
    """A program of one projection."""
    return program(Project(tuple(columns.items())), **{name: one.type for name, one in columns.items()})


def run(of: Program, rows: int, on_error: Any = "dead_letter", **columns: list[Any]) -> Processed:
    """The result for columns of text; `tags` has lists of texts."""
    kinds = {"tags": pa.list_(TEXT)}
    arrays = {name: pa.array(values, kinds.get(name, TEXT)) for name, values in columns.items()}
    return evaluate(of, arrays, rows, on_error)


def test_a_failing_record_has_no_row_and_its_neighbours_have_theirs() -> None:
    found = run(select(n=AS_INT, again=N), 3, n=["1", "x", "3"])
    assert [column.to_pylist() for column in found.columns] == [[1, 3], ["1", "3"]]
    assert found.parents.tolist() == [0, 2]
    assert found.failed.tolist() == [False, True, False]
    (failure,) = found.failures
    assert (failure.row, failure.column, failure.error_class) == (1, "n", "CAST_INVALID_INPUT")
    assert (failure.expression, failure.values) == ("CAST(n AS INT)", ('"x"',))


def test_with_null_a_failing_expression_is_a_null_and_the_record_stays() -> None:
    found = run(select(n=AS_INT, again=N), 3, "null", n=["1", "x", None])
    assert [column.to_pylist() for column in found.columns] == [[1, None, None], ["1", "x", None]]
    assert found.failures == []
    assert not found.failed.any()


def test_a_record_that_a_filter_drops_cannot_fail_later() -> None:
    of = program(Filter(IS_ORDER, "where"), Project((("n", AS_INT),)), n=INT)
    found = run(of, 4, n=["1", "x", "3", "y"], kind=["order", "view", None, "order"])
    assert found.columns[0].to_pylist() == [1]
    assert found.dropped["where"].tolist() == [False, True, True, False]
    assert [failure.row for failure in found.failures] == [3]


def test_a_failing_condition_refuses_the_record_or_drops_it() -> None:
    condition = Call("GreaterThan", (AS_INT, Literal(1, INT)), BOOL)
    of = program(Filter(condition, "where"), Project((("n", N),)), n=TEXT)
    refused = run(of, 3, n=["1", "x", "3"])
    assert refused.columns[0].to_pylist() == ["3"]
    assert refused.failed.tolist() == [False, True, False]
    assert refused.failures[0].column == "where"
    assert refused.dropped["where"].tolist() == [True, False, False]
    dropped = run(of, 3, "null", n=["1", "x", "3"])
    assert dropped.dropped["where"].tolist() == [True, True, False]


def test_only_the_branch_that_a_row_reaches_can_fail() -> None:
    of = select(n=Call("If", (IS_ORDER, AS_INT, Literal(0, INT)), INT))
    found = run(of, 3, n=["x", "x", "2"], kind=["view", "order", "order"])
    assert found.columns[0].to_pylist() == [0, 2]
    assert [failure.row for failure in found.failures] == [1]


def test_a_list_becomes_rows_and_a_failure_in_one_of_them_refuses_the_record() -> None:
    element = Call("Cast", (Field("tag", TEXT),), INT, (("evalMode", "ANSI"),), "CAST(tag AS INT)")
    of = program(Explode(TAGS, "tag", "at"), Project((("n", N), ("at", Field("at", INT)), ("tag", element))),
                 n=TEXT, at=INT, tag=INT)  # fmt: skip
    found = run(of, 5, n=["a", "b", "c", "d", "e"], tags=[["1", "2"], [], None, ["3", "x", "4"], ["5"]])
    assert [column.to_pylist() for column in found.columns] == [["a", "a", "e"], [0, 1, 0], [1, 2, 5]]
    assert found.parents.tolist() == [0, 0, 4]
    assert found.dropped[EXPLODED].tolist() == [False, True, True, False, False]
    assert [failure.row for failure in found.failures] == [3]


def test_an_outer_explode_keeps_records_without_elements() -> None:
    of = program(Explode(TAGS, "tag", "at", is_outer=True), n=TEXT, tag=TEXT, at=INT)
    found = run(of, 3, n=["a", "b", "c"], tags=[["1", None], [], None])
    assert [column.to_pylist() for column in found.columns] == [
        ["a", "a", "b", "c"],
        ["1", None, None, None],
        [0, 1, None, None],
    ]
    assert not any(mask.any() for mask in found.dropped.values())


def test_slices_of_columns_are_evaluated_as_what_they_are() -> None:
    tags = pa.array([["0"], ["1", "2"], None, ["3"]], pa.list_(TEXT)).slice(1)
    kind = pa.array(["no", "Ä", "b", "c"]).slice(1)
    of = program(
        Explode(TAGS, "tag"),
        Project((("tag", Field("tag", TEXT)), ("kind", Call("Lower", (KIND,), TEXT)),
                 ("hash", Call("Md5", (Call("Cast", (KIND,), pa.binary()),), TEXT)))),
        tag=TEXT, kind=TEXT, hash=TEXT,
    )  # fmt: skip
    found = evaluate(of, {"tags": tags, "kind": kind}, 3)
    assert found.columns[0].to_pylist() == ["1", "2", "3"]
    assert found.columns[1].to_pylist() == ["ä", "ä", "c"]
    assert found.columns[2][2].as_py() == "4a8a08f09d37b73795649038408b5f33"


def test_every_record_is_a_row_a_failure_or_a_drop() -> None:
    chance = np.random.default_rng(3)
    rows = 500
    tags = [None if one == 0 else ["1", "x", "2"][: one - 1] for one in chance.integers(0, 5, rows).tolist()]
    kinds = [["order", "view", None][one] for one in chance.integers(0, 3, rows).tolist()]
    element = Call("Cast", (Field("tag", TEXT),), INT, (("evalMode", "ANSI"),))
    small = Call("LessThan", (element, Literal(2, INT)), BOOL)
    of = program(Filter(IS_ORDER, "where"), Explode(TAGS, "tag"), Filter(small, "small"), tag=TEXT)
    found = run(of, rows, kind=kinds, tags=tags)
    every = [found.failed, *found.dropped.values(), np.isin(np.arange(rows), found.parents)]
    assert (np.sum(every, axis=0) == 1).all()


def test_no_records_make_no_rows() -> None:
    of = program(Filter(IS_ORDER, "where"), Explode(TAGS, "tag"), Project((("n", AS_INT), ("tag", Field("tag", TEXT)))),
                 n=INT, tag=TEXT)  # fmt: skip
    found = run(of, 0, n=[], kind=[], tags=[])
    assert [len(column) for column in found.columns] == [0, 0]


def test_the_first_expression_outside_the_table_is_named() -> None:
    pattern = Call("RLike", (N, Literal("a", TEXT)), BOOL, (), "RLIKE(n, a)")
    assert reason(select(a=AS_INT, b=pattern)) == "`RLIKE(n, a)`: RLike is not a proven function"
    as_text = Call("Cast", (Field("x", pa.float64()),), TEXT, (), "CAST(x AS STRING)")
    assert reason(select(a=as_text)) == "`CAST(x AS STRING)`: casts from double to text are not proven"
    assert reason(select(a=AS_INT)) is None
