"""Every way a command can end: exit code, what goes to which stream, and nothing secret in either."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from typing import Annotated

import pytest
import typer

from frazil import __version__
from frazil.cli import commands
from frazil.cli.commands import Command
from frazil.cli.main import main
from frazil.cli.output import Output
from frazil.errors import FencedError, SpecError


def well(output: Output, count: Annotated[int, typer.Option()] = 1) -> None:
    """Say how many."""
    output.note("counting")
    output.result({"count": count}, f"{count} things")


def stopped(output: Output) -> int:
    output.result({"stopped": True}, "some table stopped")
    return 4


def misspelt(output: Output) -> None:
    output.hide(["s3cret"])
    raise SpecError("unknown key: key=s3cret", where="frazil.yaml, line 3", remedy="write tables")


def fenced(_output: Output) -> None:
    raise FencedError


def broken(output: Output) -> None:
    output.hide(["s3cret"])
    raise ValueError("no s3cret here")


def interrupted(_output: Output) -> None:
    raise KeyboardInterrupt


def without_output(count: int = 1) -> None:
    """Lacks its first parameter."""


@pytest.fixture(autouse=True)
def own_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("well", "stopped", "misspelt", "fenced", "broken", "interrupted", "without_output")
    table = tuple(Command(name.replace("_", "-"), f"{__name__}:{name}", f"Is {name}.") for name in names)
    nested = Command("dev well", f"{__name__}:well", "Is nested.")
    absent = Command("absent", "frazil.cli.no_such_module:command", "Is never imported.")
    monkeypatch.setattr(commands, "COMMANDS", (*table, nested, absent))
    monkeypatch.setattr("frazil.cli.command_line.COMMANDS", commands.COMMANDS)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


Captured = pytest.CaptureFixture[str]


def test_a_result_goes_to_standard_output_and_a_note_to_standard_error(capsys: Captured) -> None:
    assert main(["well", "--count", "3"]) == 0
    assert capsys.readouterr() == ("3 things\n", "counting\n")


def test_the_garbage_collector_passes_over_what_a_command_has_loaded() -> None:
    gc.unfreeze()
    assert main(["well"]) == 0
    assert (gc.isenabled(), gc.get_freeze_count() > 0) == (True, True)
    assert main(["absent"]) != 0
    assert gc.isenabled()


def test_json_is_alone_on_standard_output(capsys: Captured) -> None:
    assert main(["well", "--output", "json"]) == 0
    assert capsys.readouterr() == ('{"count": 1}\n', "counting\n")


def test_a_command_of_a_group_is_called_by_two_words(capsys: Captured) -> None:
    assert main(["dev", "well"]) == 0
    assert capsys.readouterr().out == "1 things\n"


def test_every_option_has_an_environment_variable(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_WELL_COUNT", "7")
    monkeypatch.setenv("FRAZIL_WELL_OUTPUT", "json")
    assert main(["well"]) == 0
    assert capsys.readouterr().out == '{"count": 7}\n'


@pytest.mark.parametrize(
    ("variables", "count"),
    [({"FRAZIL_OUTPUT": "json"}, 1), ({"FRAZIL_OUTPUT": "text", "FRAZIL_WELL_OUTPUT": "json"}, 1)],
)
def test_a_variable_of_every_command_sets_what_that_of_the_command_does_not(
    variables: dict[str, str], count: int, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert main(["well"]) == 0
    assert capsys.readouterr().out == f'{{"count": {count}}}\n'
    monkeypatch.setenv("FRAZIL_COUNT", "9")
    assert main(["well"]) == 0
    assert capsys.readouterr().out == f'{{"count": {count}}}\n', "an option of one command has no variable of all"


def test_an_error_has_the_form_of_the_variable_of_every_command(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_OUTPUT", "json")
    for words in (["misspelt"], ["well", "--nosuch"]):
        assert main(words) == 2
        assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 2


@pytest.mark.parametrize(
    "words",
    [
        "--output json dev well --count 2",
        "--output=json dev well --count 2",
        "dev --output json well --count 2",
        "--log-level error --debug --output json dev well --count 2",
    ],
)
def test_the_options_of_every_command_may_stand_before_it(words: str, capsys: Captured) -> None:
    assert main(words.split()) == 0
    assert capsys.readouterr().out == '{"count": 2}\n'


@pytest.mark.parametrize(
    ("words", "remedy"), [("--output yaml well", "see frazil well --help"), ("--output json", "see")]
)
def test_options_before_no_command_or_with_a_wrong_value_are_usage_errors(
    words: str, remedy: str, capsys: Captured
) -> None:
    assert main(words.split()) == 2
    printed = capsys.readouterr()
    assert remedy in printed.err + printed.out


def test_help_names_the_version_and_lists_unknown_commands_last(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert [name for name in ("From installed packages", "--version", "--output") if name not in printed] == []


def test_the_commands_number_is_the_exit_code() -> None:
    assert main(["stopped"]) == 4


def test_an_error_reports_what_where_and_what_to_do_without_secrets(capsys: Captured) -> None:
    assert main(["misspelt"]) == 2
    expected = "error: unknown key: key=***\nwhere: frazil.yaml, line 3\nremedy: write tables\n"
    assert capsys.readouterr() == ("", expected)


def test_an_error_in_json_is_one_document_on_standard_output(capsys: Captured) -> None:
    assert main(["misspelt", "--output", "json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "error": {
            "type": "SpecError",
            "message": "unknown key: key=***",
            "where": "frazil.yaml, line 3",
            "remedy": "write tables",
            "exit_code": 2,
        }
    }
    assert captured.err == ""


def test_each_error_has_its_exit_code() -> None:
    assert [main([name]) for name in ("fenced", "broken", "interrupted")] == [3, 1, 130]


def test_an_unexpected_error_is_one_line_and_a_hint(capsys: Captured) -> None:
    assert main(["broken"]) == 1
    expected = "error: unexpected ValueError: no *** here\nremedy: run again with --debug\n"
    assert capsys.readouterr().err == expected


def test_debug_prints_the_stack_trace_without_secrets(capsys: Captured) -> None:
    assert main(["broken", "--debug"]) == 1
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert "no *** here" in printed
    assert "s3cret here" not in printed


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["nosuch"], "see frazil --help"),
        (["well", "--nosuch"], "see frazil well --help"),
        (["dev", "well", "--count", "x"], "see frazil dev well --help"),
        (["dev"], "see frazil dev --help"),
    ],
)
def test_a_usage_error_is_two(capsys: Captured, words: list[str], remedy: str) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"remedy: {remedy}"


@pytest.mark.parametrize("words", [["well", "--nosuch", "--output", "json"], ["well", "--output=json", "--nosuch"]])
def test_a_usage_error_too_comes_in_the_form_that_was_asked_for(capsys: Captured, words: list[str]) -> None:
    assert main(words) == 2
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 2


def test_help_lists_every_command_and_imports_none(capsys: Captured) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert "Is never imported." in printed
    assert "misspelt" in printed


def test_help_of_a_command_names_the_environment_variables(capsys: Captured) -> None:
    assert main(["well", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "Say how many." in printed
    assert "FRAZIL_WELL_COUNT for --count" in printed
    assert "FRAZIL_OUTPUT" in " ".join(printed.split())


@pytest.mark.parametrize("words", [[], ["dev", "--help"], ["well", "--help"]])
def test_help_shows_switches_without_a_value(words: list[str], capsys: Captured) -> None:
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "--help" in printed
    assert "bool" not in printed.lower()


def test_the_version_is_told(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.count(".") == 2


@pytest.mark.parametrize("words", ["--version --output json", "--output=json --version"])
def test_the_version_is_told_to_programs(words: str, capsys: Captured) -> None:
    assert main(words.split()) == 0
    assert json.loads(capsys.readouterr().out) == {"version": __version__}


@pytest.mark.parametrize("words", ["--version --output yaml", "--version well"])
def test_the_version_goes_with_no_other_words(words: str, capsys: Captured) -> None:
    assert main(words.split()) == 2
    assert __version__ not in capsys.readouterr().out


def test_a_command_without_an_output_is_a_bug() -> None:
    assert main(["without-output"]) == 1


def test_what_others_print_does_not_reach_standard_output_in_json() -> None:
    program = (
        "import os, sys\n"
        "from frazil.cli.output import Output, OutputFormat, reserve_standard_output\n"
        "output = Output(OutputFormat.json, results=reserve_standard_output())\n"
        "sys.stdout.write('python chatter\\n'); sys.stdout.flush(); os.system('echo chatter')\n"
        "output.result({'a': 1}, '')\n"
        "output.close()\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (answer.stdout, answer.stderr) == ('{"a": 1}\n', "python chatter\nchatter\n")


def test_a_value_that_is_none_of_several_is_named_in_words(capsys: Captured) -> None:
    assert main(["well", "--output", "yaml"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: Invalid value for '--output': 'yaml' is not one of 'text', 'json'"
    )


def test_ctrl_c_while_the_command_line_is_imported_prints_nothing() -> None:
    script = """if True:
        import sys

        class Pressed:
            def find_spec(self, name, *_):
                if name == "typer":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Pressed())
        from frazil.cli.main import main
        sys.exit(main(["schema"]))"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
