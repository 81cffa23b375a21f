"""`--env` and `--set`, the options of all commands that change the pipeline file as it is read.

They are taken from the words before a command is chosen, so that no command has them among its own options.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from frazil.spec.syntax.environments import Overrides, overrides_of

_ENV, _SET, _END = "--env", "--set", "--"
Environment = Annotated[
    str,
    typer.Option(_ENV, metavar="NAME", help="The environment of the pipeline file, by its name under `environments`."),
]
Values = Annotated[
    list[str],
    typer.Option(_SET, metavar="KEY=VALUE", help="A value in place of one in the pipeline file; may be repeated."),
]


def declare(env: Environment = "", set_: Values = []) -> None:  # noqa: B006  (as Typer declares options)
    """Declares the options for the help; `take_overrides` has taken them."""


def take_overrides(words: Sequence[str]) -> tuple[list[str], Overrides]:
    """Returns the words without the two options, and what these and the variable FRAZIL_ENV choose. An option without its
    value stays, for the message of the command line.
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
