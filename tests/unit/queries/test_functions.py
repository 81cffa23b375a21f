"""Python functions in a program: values, failures of single records, and results that stop the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from frazil.errors import SpecError
from frazil.plugins.functions import import_function
from frazil.queries.evaluate import OnError, Processed, evaluate
from frazil.queries.program import PYTHON, Call, Expression, Field, Filter, Literal, Program, Project

MODULE = """
import pyarrow as pa
import pyarrow.compute as pc

calls = []

def clean(email):
    calls.append(len(email))
    if any(one is not None and "@" not in one for one in email.to_pylist()):
        raise ValueError("no @ in it")
    return pc.utf8_lower(email)

def strict(email):
    assert "nobody" not in email.to_pylist()
    return email

def joined(left, right):
    return pc.binary_join_element_wise(left, right, "/")

def short(email):
    return email.slice(1)

def number(email):
    return pa.array([1] * len(email))

def words(email):
    return email.to_pylist()

def broken(email):
    return pa.array([b"\\xff"] * len(email)).view(pa.string())

def chunks(email):
    return pa.chunked_array([email.slice(0, 1), email.slice(1)])
"""
EMAIL, TEXT = Field("email", pa.string()), pa.string()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("functions")
    (made / "own_functions.py").write_text(MODULE)
    return made


def call(folder: Path, name: str, *arguments: Expression) -> Call:
    """A call of a function of the module."""
    options = (("function", f"own_functions.{name}"), ("folder", str(folder)))
    return Call(PYTHON, arguments or (EMAIL,), TEXT, options, f"{name}(email)")


def run(expression: Expression, emails: Sequence[str | None], on_error: OnError = "dead_letter") -> Processed:
    program = Program((Project((("made", expression),)),), (Field("made", expression.type),))
    return evaluate(program, {"email": pa.array(emails, TEXT)}, len(emails), on_error)


def test_a_function_is_called_once_for_all_rows_and_never_without_rows(folder: Path) -> None:
    calls = import_function("own_functions.clean", str(folder)).__globals__["calls"]
    calls.clear()
    assert run(call(folder, "clean"), ["A@x", None, "B@y"]).columns[0].to_pylist() == ["a@x", None, "b@y"]
    assert run(call(folder, "clean"), []).columns[0].to_pylist() == []
    assert calls == [3]


def test_only_records_for_which_a_function_raises_are_refused_with_its_words(folder: Path) -> None:
    emails = [f"U{n}@x" for n in range(9)]
    emails[2] = emails[7] = "nobody"
    found = run(call(folder, "clean"), emails)
    assert found.columns[0].to_pylist() == [one.lower() for one in emails if one != "nobody"]
    assert [(one.row, one.column, one.error_class, one.expression, one.values) for one in found.failures] == [
        (row, "made", "ValueError: no @ in it", "clean(email)", ('"nobody"',)) for row in (2, 7)
    ]
    assert run(call(folder, "clean"), ["A@x", "nobody"], "null").columns[0].to_pylist() == ["a@x", None]


def test_a_failure_without_words_is_named_by_its_class(folder: Path) -> None:
    found = run(call(folder, "strict"), ["A@x", "nobody"])
    assert [(one.row, one.error_class) for one in found.failures] == [(1, "AssertionError")]


def test_a_call_of_literals_that_raises_names_its_words_in_every_record(folder: Path) -> None:
    found = run(call(folder, "clean", Literal("nobody", TEXT)), ["a", "b"])
    assert [one.error_class for one in found.failures] == ["ValueError: no @ in it"] * 2


def test_a_failure_counts_only_for_rows_that_reach_it(folder: Path) -> None:
    is_known = Call("Contains", (EMAIL, Literal("@", TEXT)), pa.bool_())
    guarded = Call("If", (is_known, call(folder, "clean"), Literal("none", TEXT)), TEXT)
    assert run(guarded, ["A@x", "nobody"]).columns[0].to_pylist() == ["a@x", "none"]
    program = Program((Filter(is_known, "where"), Project((("made", call(folder, "clean")),))), (Field("made", TEXT),))
    found = evaluate(program, {"email": pa.array(["nobody", "A@x"])}, 2)
    assert (found.columns[0].to_pylist(), found.failures) == (["a@x"], [])


def test_literals_and_other_expressions_are_arguments(folder: Path) -> None:
    inner = Call("Upper", (EMAIL,), TEXT, (), "upper(email)")
    assert run(call(folder, "joined", Literal("eu", TEXT), inner), ["a", "b"]).columns[0].to_pylist() == [
        "eu/A",
        "eu/B",
    ]
    constant = call(folder, "joined", Literal("eu", TEXT), Literal("x", TEXT))
    assert run(constant, ["a", "b"]).columns[0].to_pylist() == ["eu/x", "eu/x"]


def test_chunks_are_an_array(folder: Path) -> None:
    assert run(call(folder, "chunks"), ["a", "b"]).columns[0].to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("short", "`short(email)` returns 1 value for 2 rows"),
        ("number", "`number(email)` returns an array of int64, and declares string"),
        ("words", "`words(email)` returns no Arrow array, but list"),
        ("broken", "`broken(email)` returns an invalid array"),
    ],
)
def test_a_result_that_is_no_column_stops_the_table_until_the_function_is_corrected(
    folder: Path, name: str, words: str
) -> None:
    with pytest.raises(SpecError, match="correct the function, and start again") as stopped:
        run(call(folder, name), ["a", "b"])
    assert words in stopped.value.message
    assert len(run(call(folder, "clean"), ["a@b", "b@c"]).columns[0]) == 2


def test_a_function_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = Call(
        PYTHON, (EMAIL,), TEXT, (("function", "no_such_module.clean"), ("folder", str(tmp_path))), "clean(email)"
    )
    with pytest.raises(SpecError, match=r"`no_such_module.clean` cannot be imported: ModuleNotFoundError"):
        run(missing, ["a"])
