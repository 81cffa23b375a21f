"""A bad record's class of error comes from one table; packages may have classes of their own."""

from __future__ import annotations

import ast
import json
import pickle
import re

import pyarrow as pa
import pyarrow.compute as pc

from docs.scan import SOURCE, name_of, nodes, sources
from frazil.error_classes import ErrorClass
from frazil.report import BadRecords, TaskReport, dump_report, load_report
from frazil.types import BadRecord

TABLE = SOURCE / "error_classes.py"
OTHER_MEANINGS = {
    "late": "a key of the pipeline file, and the name of drops",
    "tombstone": "a kind of ignored record, which the type checker tells apart from a class",
    "unavailable_value": "a key of the pipeline file",
}
"""Classes whose text has another meaning elsewhere in the source."""
JUDGE = "frazil_verify/"
"""What judges Frazil's records by rules of its own, and so spells classes too."""


def test_no_module_but_the_table_spells_a_class() -> None:
    classes = set(ErrorClass) - OTHER_MEANINGS.keys()
    spelled = [
        f"{name_of(path)}:{node.lineno}: {node.value}"
        for path in sources()
        if path != TABLE and not name_of(path).startswith(JUDGE)
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in classes
    ]
    assert spelled == []


def test_only_packages_make_classes_that_the_table_lacks() -> None:
    calls = [
        f"{name_of(path)}:{node.lineno}"
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ErrorClass"
        if any(isinstance(argument, ast.Constant | ast.JoinedStr) for argument in node.args)
    ]
    assert calls == []


def test_every_class_of_the_table_is_used() -> None:
    used = {
        node.attr
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "ErrorClass"
    }
    assert used == set(ErrorClass.__members__)


def test_the_text_of_a_class_is_its_name_in_lower_case() -> None:
    assert [str(one) for one in ErrorClass] == [name.lower() for name in ErrorClass.__members__]
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", one) for one in ErrorClass)


def test_a_class_is_its_text_in_json_arrow_and_messages() -> None:
    one = ErrorClass.MALFORMED
    assert (f"{one}", json.dumps({one: one}), one in {"malformed"}) == ("malformed", '{"malformed": "malformed"}', True)
    column = pa.array([one, "tombstone"], pa.string())
    assert (column.to_pylist(), pc.equal(column, one).to_pylist()) == (["malformed", "tombstone"], [True, False])


def test_a_class_is_itself_after_its_way_to_a_task_and_back() -> None:
    assert [pickle.loads(pickle.dumps(one)) is one for one in ErrorClass] == [True] * len(ErrorClass)
    report = TaskReport("t", bad_records=BadRecords((BadRecord("a", 0, 1, ErrorClass.TOMBSTONE, "", "no value"),), 1))
    assert load_report(dump_report(report)).bad_records.first[0].kind is ErrorClass.TOMBSTONE


def test_a_package_has_a_class_of_its_own() -> None:
    bad_quotes = ErrorClass("bad_quotes")
    assert (bad_quotes, f"{bad_quotes}", repr(bad_quotes)) == (
        "bad_quotes", "bad_quotes", "<ErrorClass.bad_quotes: 'bad_quotes'>",
    )  # fmt: skip
    assert (bad_quotes.entry.remedy, bad_quotes.entry.quotes_values) == ("", True)
    assert pickle.loads(pickle.dumps(bad_quotes)) == bad_quotes
    assert bad_quotes not in list(ErrorClass)
    record = BadRecord("a", 0, 1, bad_quotes, "", "a quote is open")
    report = TaskReport("t", bad_records=BadRecords((record,), 1, {bad_quotes: 1}))
    assert load_report(dump_report(report)) == report
