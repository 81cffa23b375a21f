"""`frazil dead-letters` on tables in memory: what it prints, in both forms, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from frazil.cli.main import main
from frazil.errors import UnavailableError
from frazil_deadletters import commands
from packages.deadletters.tests.unit.scene import DEAD_LETTERS, TABLE, Scene
from packages.deadletters.tests.unit.upsert_scene import LARGE, Upserted

Command = Callable[..., tuple[int, Any]]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Five dead_letters: two that are no JSON, one that is no UTF-8, one with a number too large, and a tombstone."""
    made = Scene(tmp_path, {"id": "int"})
    made.feed(b"{", partition=1)
    return made.feed({"id": 1}, b"{\x1b[31m", b"\x00\xff", {"id": 3_000_000_000, "text": "x" * 1000}, None)


@pytest.fixture
def frazil(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Runs a command; its exit code, and its JSON document or, with form="text", its text."""
    monkeypatch.setattr(commands, "read_spec", lambda _output, _file: scene.pipeline)
    monkeypatch.setattr(commands, "catalog_and_queries", lambda _spec, **_: nullcontext((scene.catalog, None)))
    monkeypatch.setattr(commands, "topics_for_reading", lambda _spec: scene.source)
    capsys.readouterr()

    def run(*words: str, form: str = "json") -> tuple[int, Any]:
        code = main(["dead-letters", *words, "-f", str(tmp_path / "p.yaml"), "--output", form])
        reported = capsys.readouterr()
        text = reported.out or reported.err
        return code, json.loads(text.splitlines()[-1]) if form == "json" else text

    return run


def test_list_counts_dead_letters_by_class_with_their_times_and_an_example(frazil: Command) -> None:
    code, document = frazil("list")
    assert code == 0
    found = document["tables"][TABLE]
    assert (found["dead_letter_table"], found["dead_letters"]) == (DEAD_LETTERS, 5)
    assert [(one["error_class"], one["count"]) for one in found["classes"]] == [
        ("malformed", 2), ("invalid_text", 1), ("out_of_range", 1), ("tombstone", 1),
    ]  # fmt: skip
    assert (found["classes"][0]["first"], found["classes"][0]["last"]) == (
        "1970-01-01T00:00:01.000+00:00",
        "1970-01-01T00:00:02.000+00:00",
    )
    assert (found["classes"][2]["path"], "3000000000" in found["classes"][2]["example"]) == ("id", True)
    _, text = frazil("list", form="text")
    assert f"{TABLE}: 5 dead letters in {DEAD_LETTERS}\n" in text
    assert "  malformed             2  1970-01-01T00:00:01.000+00:00 to 1970-01-01T00:00:02.000+00:00\n" in text


def test_records_after_the_year_9999_are_listed_and_shown_with_milliseconds(frazil: Command, scene: Scene) -> None:
    scene.source.produce("a", 0, b"{", 10**15)
    scene.catch_up()
    code, document = frazil("list")
    found = document["tables"][TABLE]["classes"][0]
    assert (code, found["error_class"], found["first"]) == (0, "malformed", "1970-01-01T00:00:01.000+00:00")
    assert (found["count"], found["last"]) == (3, "1970-01-01T00:00:02.000+00:00")
    code, document = frazil("show")
    found = [one for one in document["tables"][TABLE] if one["offset"] == 5]
    assert [(one["timestamp"], one["timestamp_ms"]) for one in found] == [(None, 10**15)]
    assert "offset 5, timestamp 1000000000000000 ms\n" in frazil("show", form="text")[1]
    assert frazil("replay")[1]["tables"][TABLE] == {"replayed": 0, "remaining": 6}


def test_show_has_the_newest_first_and_the_record_whole(frazil: Command) -> None:
    code, document = frazil("show", "--limit", "3")
    assert code == 0
    dead_letters = document["tables"][TABLE]
    assert [dead_letter["offset"] for dead_letter in dead_letters] == [4, 3, 2]
    assert dead_letters[0]["value"] is None
    assert json.loads(dead_letters[1]["value"]["text"]) == {"id": 3_000_000_000, "text": "x" * 1000}
    assert dead_letters[2]["value"] == {"base64": "AP8="}
    assert {name: dead_letters[1][name] for name in ("topic", "partition", "error_class", "path", "retries", "headers")} == {
        "topic": "a", "partition": 0, "error_class": "out_of_range", "path": "id", "retries": 0, "headers": [],
    }  # fmt: skip


def test_show_filters_and_cuts_and_lets_no_record_paint_the_screen(frazil: Command) -> None:
    _, text = frazil("show", form="text")
    assert "\x1b" not in text
    assert "value:   {\\x1b[31m" in text
    assert "value:   base64 AP8=" in text
    assert "… (1,030 bytes)" in text
    assert [
        dead_letter["offset"] for dead_letter in frazil("show", "--error-class", "tombstone")[1]["tables"][TABLE]
    ] == [4]
    assert [dead_letter["offset"] for dead_letter in frazil("show", "--offset", "4")[1]["tables"][TABLE]] == [4]
    for words in (["--topic", "b"], ["--partition", "5"]):
        assert frazil("show", *words)[1]["tables"][TABLE] == []
    assert frazil("show", "--partition", "5", form="text") == (0, "no such dead letters\n")


@pytest.mark.parametrize("words", [["show"], ["replay"], ["drop"], ["drop", "--yes"]])
def test_an_error_class_that_does_not_exist_is_named_with_the_nearest_one(
    frazil: Command, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["dead-letters", *words, "--error-class", "tombstones", "-f", "p.yaml"])
    reported = capsys.readouterr()
    assert (code, reported.out) == (1 if words == ["drop"] else 0, "no such dead letters\n")
    assert "`tombstones` is not an error class of Frazil: did you mean `tombstone`?" in reported.err
    assert frazil(*words, "--error-class", "missing_image", form="text")[1] == "no such dead letters\n"
    assert frazil("list")[1]["tables"][TABLE]["dead_letters"] == 5


@pytest.mark.parametrize("option", ["--partition", "--offset"])
def test_a_place_that_no_record_has_is_refused(frazil: Command, option: str) -> None:
    assert frazil("drop", option, "-1", "--yes", form="text")[0] == 2
    assert frazil("list")[1]["tables"][TABLE]["dead_letters"] == 5


def test_retry_reports_how_many_dead_letters_are_rows_now(frazil: Command, scene: Scene) -> None:
    assert frazil("replay")[1]["tables"][TABLE] == {"replayed": 0, "remaining": 5}
    scene.declare({"id": "long"})
    assert frazil("replay", form="text") == (
        0,
        f"{TABLE}: 1 dead letter replayed, 4 remaining\n"
        "`frazil dead-letters list` shows the reasons of the remaining dead letters\n",
    )
    assert frazil("replay", "--offset", "3") == (
        0,
        {"pipeline": "p", "tables": {TABLE: {"replayed": 0, "remaining": 0}}},
    )


def test_retry_asks_the_topics_where_records_replace_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    upserted = Upserted(tmp_path / "m").tell((1, 10), (1, LARGE), (2, LARGE), (2, 20), (3, LARGE)).cure()
    monkeypatch.setattr(commands, "read_spec", lambda _output, _file: upserted.pipeline)
    monkeypatch.setattr(commands, "catalog_and_queries", lambda _spec, **_: nullcontext((upserted.catalog, None)))
    monkeypatch.setattr(commands, "topics_for_reading", lambda _spec: upserted.source)
    monkeypatch.setattr(commands, "KafkaReader", lambda _properties: upserted.source)
    capsys.readouterr()

    def run(*words: str) -> Any:
        assert main(["dead-letters", *words, "-f", "p.yaml", "--output", "json"]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])["tables"][TABLE]

    assert run("replay") == {"replayed": 2, "remaining": 1}
    assert upserted.upsert_table() == {1: LARGE, 2: 20, 3: LARGE}
    assert [(one["error_class"], one["count"]) for one in run("list")["classes"]] == [("superseded", 1)]
    assert [(dead_letter["offset"], dead_letter["retries"]) for dead_letter in run("show")] == [(2, 1)]
    assert run("drop", "--yes", "--error-class", "superseded") == {"dead_letters": 1}


def test_drop_asks_first(frazil: Command, scene: Scene) -> None:
    code, document = frazil("drop", "--error-class", "malformed")
    assert (code, document["dropped"], document["tables"]) == (1, False, {TABLE: {"dead_letters": 2}})
    assert "would be removed\nnothing was changed" in frazil("drop", form="text")[1]
    assert len(scene.dead_letters()) == 5
    assert frazil("drop", "--error-class", "malformed", "--yes", form="text") == (
        0,
        f"{TABLE}: 2 dead letters removed\n",
    )
    assert len(scene.dead_letters()) == 3


def test_a_table_is_named_or_all_are_meant(frazil: Command) -> None:
    assert frazil("list", TABLE)[1]["tables"][TABLE]["dead_letters"] == 5
    code, document = frazil("list", "lake.b")
    assert (code, document["error"]["remedy"]) == (2, "did you mean `lake.a`?")


def test_a_catalog_that_does_not_answer_is_exit_code_one(
    frazil: Command, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_table: str) -> None:
        raise UnavailableError("the catalog: refused", where="http://catalog")

    monkeypatch.setattr(scene.catalog, "load", away)
    for command in ("list", "show", "replay", "drop"):
        code, document = frazil(command)
        assert (code, document["error"]["message"]) == (1, "the catalog: refused")


def test_a_table_that_is_stopped_is_an_error_with_its_remedy(frazil: Command, scene: Scene) -> None:
    scene.catalog.drop(DEAD_LETTERS)
    code, document = frazil("list")
    assert code == 1
    assert "no longer exists" in document["error"]["message"]
    assert document["error"]["remedy"].startswith("restore it")


@pytest.mark.parametrize("command", ["list", "show", "replay", "drop"])
def test_a_table_is_named_behind_the_command(frazil: Command, command: str) -> None:
    _, document = frazil(command, TABLE)
    assert list(document["tables"]) == [TABLE]
    code, document = frazil(command, "n.none")
    assert (code, document["error"]["message"]) == (2, "the pipeline has no table `n.none`")
