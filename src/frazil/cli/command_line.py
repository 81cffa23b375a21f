"""Finds the command that was called, runs it, and turns every outcome into an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import typer

import frazil
from frazil.cli.commands import COMMANDS, Settings, build_app, packaged_names, shared_last, take_overrides
from frazil.cli.output import Output, OutputFormat, ReaderGone
from frazil.errors import SpecError, UnavailableError
from frazil.spec.syntax.environments import CHOSEN

READER_GONE = 141
_COMPLETION = ("--show-completion", "--install-completion")


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Raises: KeyboardInterrupt for Ctrl-C."""
    if sys.flags.utf8_mode:  # Java uses UTF-8 file names too then, although the locale does not (LC_ALL=C).
        os.environ["LC_ALL"] = "C.UTF-8"
    if isinstance(sys.stdout, io.TextIOWrapper):  # As standard error does with what the locale's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    words, overrides = take_overrides(_to_complete() or list(sys.argv[1:] if arguments is None else arguments))
    words = shared_last(words)
    choice = CHOSEN.set(overrides)
    output = Output(_wanted_form(words))
    settings = Settings(output, debug="--debug" in words)
    try:
        return _run(words or ["--help"], settings)
    except typer.TyperException as error:
        # Pydantic's, of a value that is none of several. Choices are in lines of their own.
        message = " ".join(error.format_message().replace("Value error, ", "").split())
        usage = SpecError(message, remedy=f"see {' '.join(['frazil', *_command_words(words)])} --help")
        return settings.output.error(usage, debug=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except ReaderGone:
        return READER_GONE
    except OSError as error:
        # Until a command is called, help and completions are all that is written, and not by its output.
        lost = output.lose_results(error) if settings.output is output else error
        return READER_GONE if isinstance(lost, ReaderGone) else settings.output.error(lost, debug=settings.debug)
    except Exception as error:  # noqa: BLE001  (the process edge)
        return settings.output.error(error, debug=settings.debug)
    finally:
        CHOSEN.reset(choice)
        settings.output.close()


def _to_complete() -> list[str]:
    """Returns the words of the line that a shell wants completed, which it passes in variables; empty otherwise."""
    if "_FRAZIL_COMPLETE" not in os.environ:
        return []
    os.environ["COLUMNS"] = "10000"  # A description that is wrapped would have lines that shells take for words.
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:]


def _run(words: list[str], settings: Settings) -> int:
    if _asks_for_version(words):
        settings.output.result({"version": frazil.__version__}, frazil.__version__)
        return 0
    if words[0] in _COMPLETION and len(words) > 1:
        message = f"`{words[0]}` takes no value: it is about the shell that runs it"
        raise SpecError(message, remedy=f"run `frazil {words[0]}` in bash, zsh or fish")
    # Libraries fail without a current directory while they are loaded.
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UnavailableError(
            "the current directory has been deleted",
            remedy="change to a directory that exists, and start the command there",
            where=os.environ.get("PWD", ""),
        ) from None
    command = typer.main.get_command(build_app(words, settings))
    code = command.main(words, prog_name="frazil", standalone_mode=False, auto_envvar_prefix="FRAZIL")
    return code if isinstance(code, int) else 0


def _asks_for_version(words: list[str]) -> bool:
    forms: list[list[str]] = [[]]
    for form in OutputFormat:
        forms += ["--output", form], [f"--output={form}"]
    return any(words in (["--version", *form], [*form, "--version"]) for form in forms)


def _command_words(words: list[str]) -> list[str]:
    if not words or words[0].startswith("-"):
        return []
    for names in ([command.name for command in COMMANDS], packaged_names()):
        for length in (2, 1):
            if any(name.split()[:length] == words[:length] for name in names):
                return words[:length]
    return []


def _variable(*words: str) -> str:
    """Returns the name of the variable for an option of a command, or, with its name alone, of every command."""
    return "_".join(["FRAZIL", *words]).upper().replace("-", "_")


def _wanted_form(words: list[str]) -> OutputFormat:
    # Also for a command line that cannot be parsed, which still names the format that its reader expects.
    asked = [after for word, after in pairwise(words) if word == "--output"]
    asked += [word.partition("=")[2] for word in words if word.startswith("--output=")]
    variables = [_variable(*_command_words(words), "output"), _variable("output")]
    form = asked[-1] if asked else next(filter(None, map(os.environ.get, variables)), None)
    return OutputFormat.json if form == OutputFormat.json else OutputFormat.text
