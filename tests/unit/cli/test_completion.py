"""What a shell gets when it asks for completion, as its script asks."""

from __future__ import annotations

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
    monkeypatch.setenv("_FRAZIL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(at))
    with pytest.raises(SystemExit) as ended:
        main([])
    assert (ended.value.code, capsys.readouterr().out.strip()) == (0, expected)


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
