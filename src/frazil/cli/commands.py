"""Every command by name, with the module that implements it; only the command that is called is imported.

A command is a function whose first parameter is the `Output` to write to; Typer turns the others into options and
arguments. It returns its exit code, or None for 0. `--output`, `--debug` and the logging options are added here, so
that every command has them. An installed package adds a `Command` by an entry point in the group `frazil.commands`; a dot in
its name separates a group from the command, as in `import.kafka-connect`.
"""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from frazil.cli.output import DEFAULT_FILE, LogFormat, LogLevel, Output, OutputFormat, reserve_standard_output
from frazil.errors import SpecError
from frazil.plugins.extras import names_of_extras
from frazil.plugins.registration import Registered, function_of
from frazil.spec.syntax.environments import Overrides, overrides_of

Function = Callable[..., int | None]


@dataclass(frozen=True)
class Command:
    """One command."""

    #: As typed; two words for a command of a group.
    name: str
    #: The implementation, as `module:function`.
    target: str
    #: The line in the list of commands.
    summary: str

    def load(self) -> Function:
        """Returns the function that implements the command."""
        module, _, function = self.target.partition(":")
        implementation: Function = getattr(import_to_stay(module), function)
        return implementation


def import_to_stay(module: str) -> Any:
    """Returns a module. Its objects stay, so that no garbage is collected among them: that takes a seventh of a start."""
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


COMMANDS = (
    Command("run", "frazil.cli.run:command", "Run the pipeline until it is stopped."),
    Command(
        "check",
        "frazil.cli.check:command",
        "Validate the pipeline file and check that its services are reachable; change nothing.",
    ),
    Command("plan", "frazil.cli.plan:command", "Show what `frazil run` would create or change."),
    Command("status", "frazil.cli.status:command", "Show each table's state, lag and last commit."),
    Command("maintain", "frazil.cli.maintain:command", "Run table maintenance once."),
    Command("lineage", "frazil.cli.lineage:command", "Show which fields each column comes from."),
    Command("schema", "frazil.cli.schema:command", "Print the pipeline file's JSON Schema."),
    Command("setup", "frazil.cli.machine:setup", "Fetch the jars and compile, or write an offline bundle."),
    Command("doctor", "frazil.cli.machine:doctor", "Check that this machine has everything that Frazil needs."),
    Command("dev broker", "frazil.cli.machine:broker", "Run the embedded Kafka broker in the foreground."),
)
REGISTERED: Registered[Command] = Registered(
    "frazil.commands", "command", Command, {command.name: command for command in COMMANDS}
)
"""Every command, those of installed packages included."""
SUMMARY = (
    "Kafka topics become maintained Apache Iceberg tables.\n\n"
    "`frazil demo` shows it on this machine; `frazil init` writes a first pipeline file for a cluster, `frazil check`"
    " checks it, and `frazil run` runs it."
)
PANELS = {
    "Begin": ("demo", "init", "import", "adopt", "release", "setup", "doctor"),
    "Write a pipeline": ("check", "plan", "try", "test", "size", "lineage", "schema", "topic", "dev"),
    "Run": ("run", "status", "pause", "resume", "reset", "stand-down", "maintain", "publish", "watermark"),
    "Prove and repair": ("verify", "repair", "dead-letters", "replay", "blobs"),
}
"""The commands, by the first word of their names, under the titles of `frazil --help`."""
OTHER_PANEL = "From installed packages"
GROUPS = {
    "blobs": "Verify the large objects of tables, or run a demo of them.",
    "dead-letters": "List, show, replay or remove records that could not become rows.",
    "dev": "Tools for development.",
    "topic": "Set, remove or show AutoMQ table-topic keys of topics.",
    "import": "Turn another tool's configuration into a pipeline file.",
}


@dataclass
class Settings:
    """The values of the shared options; `main` reads them after the command, also after a failed one."""

    #: Where the command writes.
    output: Output
    #: Whether stack traces are printed.
    debug: bool = False


def build_app(words: list[str], settings: Settings) -> typer.Typer:
    """Returns the command line, in which only the command that `words` call is loaded."""
    app = _group(SUMMARY, has_completion=True, kind=_Root)
    app.callback(help=SUMMARY)(_before_commands)
    groups = {name: _group(summary) for name, summary in GROUPS.items()}
    for name, group in groups.items():
        app.add_typer(group, name=name, rich_help_panel=_panel_of(name))
    for command in (*COMMANDS, *_packaged(words)):
        first, _, second = command.name.partition(" ")
        is_called = words[: len(command.name.split())] == command.name.split()
        function = with_shared_options(command.load(), settings) if is_called else _not_called
        owner = groups.get(first, app) if second else app
        help_text = _unwrapped(function.__doc__) if is_called and function.__doc__ else command.summary
        panel = None if second else _panel_of(first)
        owner.command(
            second or first, cls=_OneCommand, help=help_text, short_help=command.summary, rich_help_panel=panel
        )(function)
    return app


def _panel_of(name: str) -> str:
    """Returns the title under which `frazil --help` lists a command or group."""
    return next((title for title, names in PANELS.items() if name in names), OTHER_PANEL)


def packaged_names() -> list[str]:
    """Returns the names of the commands of packages, installed or extras, as typed. Imports nothing of them."""
    names = {*REGISTERED.added(), *names_of_extras(REGISTERED.group)}
    return sorted(name.replace(".", " ") for name in names)


def every_command() -> tuple[Command, ...]:
    """Returns the core's commands, and those of packages."""
    return (*COMMANDS, *_packaged([]))


def _packaged(words: list[str]) -> Iterator[Command]:
    """Yields the commands of packages; none where `words` call one of the core. Only the called one must be usable."""
    if any(words[: len(command.name.split())] == command.name.split() for command in COMMANDS):
        return
    for name in packaged_names():
        first, _, second = name.partition(" ")
        if bool(second) != (first in GROUPS):
            continue
        try:
            yield replace(REGISTERED.get(name.replace(" ", ".")), name=name)
        except SpecError as error:
            if words[: len(name.split())] == name.split():
                raise
            # Rich would take what is in brackets, such as an extra's name, for markup.
            yield Command(name, "", f"{error.message}: {error.remedy}".replace("[", r"\["))


def with_shared_options(function: Function, settings: Settings) -> Function:
    """Returns `function` without its `Output` parameter and with the options that every command has."""
    hints = get_type_hints(function, include_extras=True)
    first, *further_parameters = inspect.signature(function).parameters.values()
    if hints.get(first.name) is not Output:
        raise TypeError(f"the first parameter of {function.__qualname__} is not an Output")

    @functools.wraps(function)
    def call(output: OutputFormat, debug: bool, log_format: LogFormat, log_level: LogLevel, **values: Any) -> int:
        settings.debug = debug
        results = reserve_standard_output() if output is OutputFormat.json else None
        settings.output = Output(output, results=results)
        # Imported here, as help needs no log.
        start_logging = function_of("frazil.cli.logging:configure_logging")
        logger = start_logging(log_format, log_level, settings.output.redaction, settings.output.make_room)
        settings.output.log = logger if log_format is LogFormat.json else None
        settings.output.begin_progress()
        try:
            return function(settings.output, **values) or 0
        finally:
            settings.output.end_progress()

    shared = inspect.signature(_shared_options, eval_str=True).parameters.values()
    own_parameters = [
        parameter.replace(annotation=hints[parameter.name], kind=_KEYWORD) for parameter in further_parameters
    ]
    parameters = [*own_parameters, *shared]
    vars(call)["__signature__"] = inspect.Signature(parameters)
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del vars(call)["__wrapped__"]
    return call


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _shared_options(
    *,
    output: Annotated[OutputFormat, typer.Option(help="Print results as text or as JSON.")] = OutputFormat.text,
    debug: Annotated[bool, typer.Option("--debug", help="Print the stack trace of an error.")] = False,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            help="Log lines as sentences on a terminal and key=value elsewhere (auto), as key=value (text), or as JSON."
        ),
    ] = LogFormat.auto,
    log_level: Annotated[LogLevel, typer.Option(help="The lowest level that is logged.")] = LogLevel.info,
) -> None:
    """Declares the options; `with_shared_options` reads its signature."""


def _unwrapped(text: str) -> str:
    """Returns the paragraphs without the line breaks of the source: terminals have other widths."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))


def _group(summary: str, has_completion: bool = False, kind: type[TyperGroup] | None = None) -> typer.Typer:
    return typer.Typer(cls=kind or _Group, help=summary, add_completion=has_completion, pretty_exceptions_enable=False)


SHARED_VARIABLES = ("FILE", "OUTPUT", "DEBUG", "LOG_FORMAT", "LOG_LEVEL")
"""The variables that are for every command, without the prefix of all variables."""
_PREFIX = "FRAZIL"


class _OneCommand(TyperCommand):
    """A command whose help shows switches without a value, whose options have variables of their own names, and whose tables
    a shell completes.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        parameters = _without_values(super().get_params(ctx))
        for parameter in parameters:
            if parameter.name != "help":
                _name_variables(parameter, ctx.auto_envvar_prefix)
            if parameter.metavar == "TABLE":
                parameter._custom_shell_complete = _complete_table
        return parameters

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See click. It names the variables once, and not with each option."""
        own = next((p for p in self.params if p.opts[0].startswith("--") and p.name not in _SHARED), None)
        if ctx.auto_envvar_prefix and own is not None:
            shared = ", ".join(f"{_PREFIX}_{name}" for name in SHARED_VARIABLES)
            example = f"{ctx.auto_envvar_prefix}_{variable_part(own)} for {own.opts[0]}"
            self.epilog = f"Each option can be set by a variable: {example}. {shared} are for every command."
        super().format_help(ctx, formatter)


def _name_variables(parameter: Any, prefix: str | None) -> None:
    """Names the variables that set an option: that of its command, or else that of every command. Typer would call one as
    the function's parameter, such as `begin` for `--from`.
    """
    if prefix is None:
        return
    part = variable_part(parameter)
    parameter.envvar = [f"{prefix}_{part}", *([f"{_PREFIX}_{part}"] if part in SHARED_VARIABLES else [])]
    parameter.show_envvar = parameter.allow_from_autoenv = False


def _complete_table(ctx: Any, _parameter: Any, incomplete: str) -> list[str]:
    # Imports what reads pipeline files, which no other completion needs.
    names: list[str] = importlib.import_module("frazil.cli.completion").complete_table(
        Path(ctx.params.get("file") or DEFAULT_FILE), incomplete
    )
    return names


class _Group(TyperGroup):
    """A group of commands whose help shows switches without a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_values(super().get_params(ctx))


class _Root(_Group):
    """The command line itself. Its help has the commands under their titles, and the options that may precede a command,
    which `command_line` has moved behind it by then.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        options = super().get_params(ctx)
        for option in options:  # Images set a variable that is named as `--version` would be.
            option.allow_from_autoenv = False
        return options

    def list_commands(self, ctx: Any) -> list[str]:
        titles = [*PANELS, OTHER_PANEL]
        places = {name: place for names in PANELS.values() for place, name in enumerate(names)}
        return sorted(
            super().list_commands(ctx), key=lambda name: (titles.index(_panel_of(name)), places.get(name, 0), name)
        )


def variable_part(option: Any) -> str:
    """Returns what the name of an option's environment variable ends with: `LOG_FORMAT` of `--log-format`."""
    name: str = option.opts[0]
    return name.strip("-").replace("-", "_").upper()


def _without_values(options: list[Any]) -> list[Any]:
    """Returns the options. Typer names the type of a switch, `--debug <bool>`, as if it took a value."""
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options


_SHARED = frozenset(("output", "debug", "log_format", "log_level", "file", "help"))
"""The parameters of every command."""


def shared_last(words: list[str]) -> list[str]:
    """Returns a command line with the options that every command has behind the command, where it has them before it."""
    names: list[str] = []
    moved: list[str] = []
    rest = list(words)
    while rest:
        option, equals, _ = rest[0].partition("=")
        if option in _VALUED or rest[0] == "--debug":
            taken = 2 if option in _VALUED and not equals else 1
            moved, rest = [*moved, *rest[:taken]], rest[taken:]
        elif not rest[0].startswith("-") and (not names or (names == [names[0]] and names[0] in GROUPS)):
            names, rest = [*names, rest[0]], rest[1:]
        else:
            break
    return [*names, *moved, *rest]


_VALUED = ("--output", "--log-format", "--log-level")


def _before_commands(
    _environment: Environment = "",
    _values: Values = [],  # noqa: B006  (as Typer declares options)
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    _output: Annotated[
        OutputFormat, typer.Option("--output", help="Print results as text or as JSON; before or after a command.")
    ] = OutputFormat.text,
) -> None:
    """Declares options of the command line for its help; `command_line` and `take_overrides` read them.

    Raises: SpecError for `--version` with a command.
    """
    if version:
        raise SpecError("`--version` cannot be combined with a command", remedy="run `frazil --version` alone")


def _not_called() -> None:
    """Stands for a command that is listed but not called."""


_ENV, _SET, _END = "--env", "--set", "--"
Environment = Annotated[
    str,
    typer.Option(_ENV, metavar="NAME", help="The environment of the pipeline file, by its name under `environments`."),
]
Values = Annotated[
    list[str],
    typer.Option(_SET, metavar="KEY=VALUE", help="A value in place of one in the pipeline file; may be repeated."),
]


def take_overrides(words: Sequence[str]) -> tuple[list[str], Overrides]:
    """Returns the words without the two options, and what these and the variable FRAZIL_ENV choose. An option without its
    value stays, for the message of the command line. They are taken before a command is chosen, so that no command has them
    among its own options.
    """
    left: list[str] = []
    overrides = overrides_of(os.environ)
    rest = iter(words)
    for word in rest:
        option, sign, value = word.partition("=")
        if word == _END:
            left += [word, *rest]
        elif option not in (_ENV, _SET) or (not sign and (value := next(rest, "")) == ""):
            left.append(word)
        elif option == _ENV:
            overrides = replace(overrides, environment=value, is_by_variable=False)
        else:
            overrides = replace(overrides, values=(*overrides.values, value))
    return left, overrides
