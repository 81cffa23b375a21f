"""What a shell gets when it asks for completion, as its script asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.cli.main import main


@pytest.mark.parametrize(
    ("line", "at", "expected"),
    [
        ("frazil lin", 1, "lineage"),
        ("frazil dead-letters sh", 2, "show"),
        ("frazil doctor --log-f", 2, "--log-format"),
        ("frazil doctor --log-format j", 3, "json"),
    ],
)
def test_commands_options_and_values_are_completed(
    line: str, at: int, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # Restored afterwards: completion sets another one.
    monkeypatch.setenv("_FRAZIL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(at))
    with pytest.raises(SystemExit) as ended:
        main([])
    assert (ended.value.code, capsys.readouterr().out.strip()) == (0, expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("frazil status shop.", ["shop.clicks", "shop.old", "shop.orders"]),
        ("frazil status shop.o --file frazil.yaml", ["shop.old", "shop.orders"]),
        ("frazil --output json maintain --table shop.or", ["shop.orders"]),
        ("frazil dead-letters show shop.c", ["shop.clicks"]),
        ("frazil status --file nowhere.yaml shop.", []),
        ("frazil status --file secret.yaml shop.", ["shop.secret"]),
    ],
)
def test_the_tables_of_the_file_and_of_the_last_run_are_completed(
    line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("frazil.yaml").write_text(
        'pipeline: p\nkafka: {bootstrap.servers: "x:1"}\nnamespace: shop\ntopics: [clicks, /^dev.*/]\n'
        "tables: {shop.orders: {topic: orders}}\n"
    )
    Path("secret.yaml").write_text(
        'pipeline: s\nkafka: {bootstrap.servers: "x:1", security.protocol: SASL_SSL, sasl.mechanism: PLAIN,'
        ' sasl.username: u, sasl.password: "${env:NO_SUCH_SECRET}"}\ntables: {shop.secret: {topic: a}}\n'
    )
    state = Path("frazil-data/state/p.json")
    state.parent.mkdir(parents=True)
    state.write_text('{"tables": {"shop.old": {}, "shop.orders": {}}}')
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("_FRAZIL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    at = next(place for place, word in enumerate(line.split()) if word.startswith("shop."))
    monkeypatch.setenv("COMP_CWORD", str(at))
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == expected


def test_every_description_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("_FRAZIL_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    for line in ("frazil ", "frazil doctor --"):
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        with pytest.raises(SystemExit):
            main([])
        shown = capsys.readouterr().out.splitlines()
        assert len(shown) > 4
        assert [one for one in shown if "\t" not in one] == []


@pytest.mark.parametrize("option", ["--show-completion", "--install-completion"])
def test_another_shell_than_the_one_that_asks_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option, "zsh"]) == 2
    assert f"`{option}` takes no value" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_shown(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The shell is looked for among the processes that started the tests, which may have none.
    monkeypatch.setattr("shellingham.detect_shell", lambda: (shell, shell))
    with pytest.raises(SystemExit) as ended:
        main(["--show-completion"])
    assert ended.value.code == 0
    assert f"_FRAZIL_COMPLETE=complete_{shell}" in capsys.readouterr().out
