"""How the tests write pipeline files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

from frazil.errors import SpecError
from frazil.spec import PipelineSpec, TableSpec
from frazil.spec.models import TABLE_KEYS

HEAD = 'pipeline: shop\nkafka: {bootstrap.servers: "localhost:9092"}\n'
"""Two lines that every file needs."""


class Load(Protocol):
    """Writes `pipeline.yaml` and loads it."""

    def __call__(self, text: str, environment: Mapping[str, str] = {}) -> PipelineSpec: ...


class Refuse(Protocol):
    """Writes `pipeline.yaml`, which has to be refused, and gives the error."""

    def __call__(self, text: str, environment: Mapping[str, str] = {}) -> SpecError: ...


def with_table(settings: str) -> str:
    """A file whose table `shop.x` in line 4 reads the topic `a` and has these further `settings`."""
    return f"{HEAD}tables:\n  shop.x: {{topic: a, {settings}}}\n"


def with_section(section: str) -> str:
    """A file with one table, and from line 4 on this `section`."""
    return f"{HEAD}tables: {{shop.x: {{topic: a}}}}\n{section}\n"


def setting(table: TableSpec, field: str) -> Any:
    """What a table has in a field, or a field of one of its groups."""
    paths = {key.field.rpartition(".")[2]: key.field for key in TABLE_KEYS.values()}
    return reduce(getattr, paths[field].split("."), table)


def message_of(load: Load, text: str, environment: Mapping[str, str] = {}) -> str:
    """The problems of a file, each with its line and its remedy; `taken` of a file without."""
    try:
        load(text, environment)
    except SpecError as error:
        first = error.message.partition(" (and ")[0] if error.others else error.message
        problems = [(error.where, first, error.remedy)]
        problems += [(other.where, other.message, other.remedy) for other in error.others]
        texts = (f"{where.rpartition(':')[2]}: {message}; {remedy}" for where, message, remedy in problems)
        return " | ".join(texts).replace(str(Path.cwd()), "FOLDER")
    return "taken"
