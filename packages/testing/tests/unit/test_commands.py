"""`frazil test` and `frazil try --input` as commands: exit codes, what is printed, JUnit, updates."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from frazil.cli.main import main
from packages.testing.tests.unit.conftest import ORDERS

Captured = pytest.CaptureFixture[str]
CASES = """table: shop.orders
cases:
  right:
    records: [{value: {id: 1, amount: 2}}]
    rows: [{id: 1, amount: 2}]
  wrong:
    records: [{value: {id: 1, amount: 2}}]
    rows: [{id: 1, amount: 3}]
"""


@pytest.fixture(autouse=True)
def files(folder: Path) -> Path:
    (folder / "frazil.yaml").write_text(ORDERS)
    (folder / "cases").mkdir()
    (folder / "cases" / "orders.yaml").write_text(CASES)
    return folder


def test_a_difference_reads_well_and_ends_with_4(files: Path, capsys: Captured) -> None:
    assert main(["test", "--junit", "results.xml"]) == 4
    text = capsys.readouterr().out
    assert text.partition(" (")[0] == (
        "differs  wrong  cases/orders.yaml:6\n"
        "  row 1 of shop.orders  cases/orders.yaml:8\n"
        "    amount  expected  3\n"
        '            actual    "2.00"\n'
        "\n"
        "2 cases: 1 as expected, 1 not as expected"
    )
    suite = ElementTree.parse(files / "results.xml").getroot()[0]
    assert {name: suite.get(name) for name in ("name", "tests", "failures", "errors")} == {
        "name": "cases/orders.yaml", "tests": "2", "failures": "1", "errors": "0",
    }  # fmt: skip
    right, wrong = suite
    assert (right.get("name"), len(right), wrong[0].tag) == ("right", 0, "failure")
    assert wrong[0].text == 'row 1 of shop.orders (cases/orders.yaml:8)\n  amount: expected 3, actual "2.00"'


def test_cases_are_chosen_by_a_part_of_their_name(capsys: Captured) -> None:
    assert main(["test", "-k", "right", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], [case["name"] for case in document["cases"]]) == (True, ["right"])
    assert main(["test", "--case", "none"]) == 2
    assert "remedy: name a part of a case's name with --case" in capsys.readouterr().err


def test_several_files_are_played_each_once(files: Path, capsys: Captured) -> None:
    (files / "other.yaml").write_text(CASES.replace("right", "other").replace("amount: 3", "amount: 2"))
    assert main(["test", "other.yaml", "cases", "cases/orders.yaml", "--output", "json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert [(case["file"], case["name"]) for case in document["cases"]] == [
        ("other.yaml", "other"),
        ("other.yaml", "wrong"),
        ("cases/orders.yaml", "right"),
        ("cases/orders.yaml", "wrong"),
    ]


def test_a_long_line_is_printed_whole(files: Path, capsys: Captured) -> None:
    longer = CASES.replace("amount: 3", f"amount: 3, note: {'x' * 200}.")
    (files / "cases" / "orders.yaml").write_text(longer)
    assert main(["test"]) == 4
    assert f"{'x' * 200}." in capsys.readouterr().out


def test_an_update_makes_every_case_right(files: Path, capsys: Captured) -> None:
    assert main(["test", "cases/orders.yaml", "--update"]) == 0
    assert "updated  wrong  cases/orders.yaml:6" in capsys.readouterr().out
    assert 'amount: "2.00"' in (files / "cases" / "orders.yaml").read_text()
    assert main(["test"]) == 0


def test_a_case_that_cannot_be_played_ends_with_1_and_a_wrong_file_with_2(files: Path, capsys: Captured) -> None:
    (files / "cases" / "orders.yaml").write_text(CASES.replace("value: {id: 1", "timestamp: x, value: {id: 1", 1))
    assert main(["test", "--junit", "results.xml"]) == 1
    assert "error  right  cases/orders.yaml:3\n  the record cannot be written: " in capsys.readouterr().out
    assert ElementTree.parse(files / "results.xml").getroot()[0][0][0].tag == "error"
    assert main(["test", "--junit", "none/results.xml"]) == 1
    assert "remedy: name a file in a folder that exists and can be written" in capsys.readouterr().err
    (files / "cases" / "orders.yaml").write_text("table: shop.orders\n")
    assert main(["test"]) == 2
    assert "error: the file has no `cases`" in capsys.readouterr().err
    (files / "cases" / "orders.yaml").unlink()
    assert main(["test"]) == 2
    assert "error: the folder has no files of cases" in capsys.readouterr().err
    assert main(["test", "none"]) == 2
    assert "error: there are no cases" in capsys.readouterr().err


def test_the_environment_of_the_command_is_that_of_the_cases(files: Path, capsys: Captured) -> None:
    other = "environments: {wide: {tables: {shop.orders: {columns: {amount: string}}}}}\n"
    (files / "frazil.yaml").write_text(ORDERS + other)
    assert main(["--env", "wide", "test", "-k", "wrong"]) == 4
    assert "type_mismatch at amount: integer 2 does not fit string" in capsys.readouterr().out
    (files / "cases" / "orders.yaml").write_text(
        CASES.replace("amount: 2", 'amount: "2"').replace("amount: 3", "amount: 2")
    )
    assert main(["--env", "wide", "test"]) == 0


def test_records_of_a_file_are_tried(files: Path, capsys: Captured) -> None:
    (files / "in.jsonl").write_text('{"id": 1, "amount": 2}\n{"id": 2, "amount": "x"}\n')
    assert main(["try", "shop.orders", "--input", "in.jsonl"]) == 4
    text = capsys.readouterr().out
    assert text.startswith("shop.orders: 2 records tried, 1 written, 0 dropped, 1 failed; nothing was changed\n")
    assert main(["try", "shop.orders", "--input", "in.jsonl", "--record", "x.yaml"]) == 2
    assert "remedy: leave out --input, or --record" in capsys.readouterr().err
