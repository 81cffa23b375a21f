"""`frazil check --offline [--show]`, and the options that change the file for every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.cli.commands import take_overrides
from frazil.cli.main import main
from frazil.spec.syntax.environments import CHOSEN, Overrides

FILE = """\
pipeline: shop
kafka: {bootstrap.servers: "localhost:1", security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: u,
        sasl.password: "${env:KAFKA_PASSWORD}"}
tables: {shop.orders: {topic: orders}}
environments:
  prod: {commit: {interval: 5s}, pipeline: shop-prod}
  test: {commit: {interval: "${env:TEST_INTERVAL}"}}
"""
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)
    path = tmp_path / "frazil.yaml"
    path.write_text(FILE)
    return path


def checked(capsys: Captured, *words: str) -> tuple[int, dict[str, Any]]:
    code = main([*words, "--output", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_file_is_checked_without_any_service_and_without_its_secrets(capsys: Captured) -> None:
    code, document = checked(capsys, "check", "--offline")
    assert (code, document["ok"], document["settings"]) == (0, True, [])
    assert [(check["name"], check["found"]) for check in document["checks"]] == [
        ("file", "frazil.yaml: pipeline shop"),
        ("secrets", "not set here: KAFKA_PASSWORD"),
        ("environment prod", "pipeline shop-prod"),
        ("environment test", "as far as it can be read without the variables TEST_INTERVAL"),
    ]
    assert "Kafka and its topics" in document["not_checked"]
    assert main(["check", "--offline"]) == 0
    assert "not checked: Kafka and its topics, the schema registry," in capsys.readouterr().out
    code, document = checked(capsys, "check")
    assert (code, document["error"]["message"]) == (2, "the environment variable `KAFKA_PASSWORD` is not set")


@pytest.mark.parametrize(
    ("columns", "found", "followed"),
    [
        ("{id: long, ID: long}", "`id` and `ID`, which differ", "{id: long, ID_2: {type: long, field: ID}}"),
        ("{s: 'struct<a: int, A: int>'}", "`a` and `A` in `s`, which differ", "{s: 'struct<a: int>'}"),
    ],
)
def test_columns_that_no_new_table_can_have_together_are_a_problem(
    file: Path, capsys: Captured, columns: str, found: str, followed: str
) -> None:
    file.write_text(FILE.replace("topic: orders}", f"topic: orders, columns: {columns}}}"))
    code, document = checked(capsys, "check", "--offline")
    (problem,) = [check for check in document["checks"] if not check["ok"]]
    assert (code, problem["name"], problem["where"]) == (1, "columns shop.orders", "shop.orders")
    assert found in problem["found"]
    assert problem["remedy"].endswith("; a table that has both already may declare both, as `frazil check` sees")
    file.write_text(FILE.replace("topic: orders}", f"topic: orders, columns: {followed}}}"))
    assert checked(capsys, "check", "--offline")[0] == 0


def test_a_mistake_in_another_environment_is_a_problem(file: Path, capsys: Captured) -> None:
    file.write_text(FILE.replace("interval: 5s", "intervl: 5s"))
    code, document = checked(capsys, "check", "--offline")
    (problem,) = [check for check in document["checks"] if not check["ok"]]
    assert (code, problem["name"], problem["found"]) == (1, "environment prod", "unknown key `intervl` in `commit`")
    assert (problem["where"], problem["remedy"]) == (f"{file.name}:6", "did you mean `interval`?")
    code, document = checked(capsys, "--env", "prod", "check", "--offline")
    assert (code, document["error"]["message"]) == (2, "unknown key `intervl` in `commit`")


@pytest.mark.parametrize("words", [["--env", "prod", "--set=commit.interval=9s", "check"], ["check", "--env=prod"]])
def test_the_file_is_shown_as_a_command_reads_it(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2hunter2")
    code, document = checked(capsys, *words, "--offline", "--show")
    settings = {setting["key"]: setting for setting in document["settings"]}
    assert (code, document["pipeline"]) == (0, "shop-prod")
    assert settings["pipeline"] == {
        "key": "pipeline", "value": "shop-prod", "where": "frazil.yaml:6", "environment": "prod", "variable": "",
    }  # fmt: skip
    value, where = ("9s", "--set commit.interval") if len(words) > 2 else ("5s", "frazil.yaml:6")
    assert (settings["commit.interval"]["value"], settings["commit.interval"]["where"]) == (value, where)
    assert settings["kafka.sasl.password"]["value"] == "${env:KAFKA_PASSWORD}"
    assert main([*words, "--offline", "--show"]) == 0
    shown = capsys.readouterr().out
    assert "hunter2" not in shown
    assert shown.startswith("pipeline: shop-prod ")
    assert CHOSEN.get() is None


def test_queries_are_parsed_without_any_record(file: Path, capsys: Captured) -> None:
    query = "select id, lower(email) as email from records where id > > 0"
    tables = [f'topic: orders, select: "{text}"' for text in (query, query.replace("> >", ">"))]
    file.write_text(FILE.replace("{topic: orders}", f"{{{tables[0]}}}, shop.corrected: {{{tables[1]}}}"))
    code, document = checked(capsys, "check", "--offline")
    found = {check["name"]: check["ok"] for check in document["checks"] if check["name"].startswith("query ")}
    assert (code, found) == (1, {"query shop.orders": False, "query shop.corrected": True})


@pytest.mark.jvm
def test_an_audit_is_parsed_until_it_is_corrected(file: Path, capsys: Captured) -> None:
    audits = {
        "ids": "select count(*) = 0 from candidate where id is null",
        "sums": "select count(* = 0 from candidate",
        "sums_corrected": "select count(*) = 0 from candidate",
        "change": "with new as (select 1 as id) insert into shop.orders select * from new",
        "misspelt": "select * from candidate c where exists (select 1 from publication p where p.id = c.id)",
        "misspelt_corrected": "select * from candidate c where exists (select 1 from published p where p.id = c.id)",
        "change_corrected": "with new as (select 1 as id) select * from new",
    }
    publish = f"branch: ingest, publish: {{audits: {json.dumps(audits)}}}"
    file.write_text(FILE.replace("topic: orders", f"topic: orders, {publish}"))
    code, document = checked(capsys, "check", "--offline")
    found = {check["name"]: check for check in document["checks"] if check["name"].startswith("audit ")}
    are_good = {f"audit {name} of shop.orders": name not in ("sums", "change", "misspelt") for name in audits}
    assert (code, {name: check["ok"] for name, check in found.items()}) == (1, are_good)
    assert "correct `publish.audits.sums`" in found["audit sums of shop.orders"]["remedy"]
    view = "there is no view `publication`: the audit can read candidate, published"
    assert found["audit misspelt of shop.orders"]["found"] == view


def test_the_options_are_taken_from_any_place_and_the_variable_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_ENV", "dev")
    assert take_overrides(["run"]) == (["run"], Overrides("dev", (), is_by_variable=True))
    words = ["--env", "prod", "run", "--set", "a=b", "-f", "x", "--set=c=d=e", "--", "--env", "y"]
    assert take_overrides(words) == (["run", "-f", "x", "--", "--env", "y"], Overrides("prod", ("a=b", "c=d=e")))
    assert take_overrides(["run", "--env"])[0] == ["run", "--env"]


def test_the_options_are_in_the_help_of_all_commands(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    help_text = " ".join(capsys.readouterr().out.split())
    assert "--env" in help_text
    assert "--set" in help_text
