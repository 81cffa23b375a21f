"""What a pipeline file is in one environment: an overlay of it, single values of the command line, and variables.

Later ones win: the file, the chosen environment, the values of `--set`. Mappings are merged key by key, everything else is
replaced, and `null` removes a key. Each node keeps the line that it comes from, so that every error has it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from frazil.errors import SpecError
from frazil.secrets import SECRET_KEYS, Secrets
from frazil.spec.syntax.document import HIDDEN, Items, Node, Scalar, Section, filled, parse_value
from frazil.spec.syntax.problems import LABEL, OptionLine, Problems, advice, nearest, place

ENVIRONMENTS = "environments"
VARIABLE = "FRAZIL_ENV"
"""The environment variable that names the environment where no option does."""
SECRET_SECTIONS = frozenset(("kafka", "registry", "catalog", "spark", "http", "telemetry", "ha"))
"""Sections at the top of the file in which every text may be a secret: there the models replace references."""
_FREE_SECTIONS = frozenset(("kafka", "properties", "conf"))
"""Mappings whose keys are names with dots, of a client or of a library."""
_PART = re.compile(r'"([^"]+)"|([^."]+)')


@dataclass(frozen=True)
class Overrides:
    """What changes the file as it is written."""

    #: The chosen environment; empty for none.
    environment: str = ""
    #: The values of `--set`, each as KEY=VALUE.
    values: tuple[str, ...] = ()
    #: Whether a variable has chosen the environment: a file without environments ignores it.
    is_by_variable: bool = False

    def replaced(self, environment: str, values: Mapping[str, object]) -> Overrides:
        """Returns these with another environment, unless that is empty, and with further values, which win. values: by the
        path to each; texts are read as YAML, as on a command line.
        """
        more = tuple(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items())
        chosen = environment or self.environment
        return Overrides(chosen, (*self.values, *more), self.is_by_variable and not environment)


def overrides_of_process() -> Overrides:
    """Returns what the command line chooses, or else the process's variables."""
    return CHOSEN.get() or overrides_of(os.environ)


def overrides_of(environment: Mapping[str, str]) -> Overrides:
    """Returns what the process's variables choose."""
    return Overrides(environment.get(VARIABLE, ""), is_by_variable=True)


CHOSEN: ContextVar[Overrides | None] = ContextVar("overrides", default=None)
"""What the command line that runs has chosen; None outside of a command."""


@dataclass(frozen=True)
class Overridden:
    """The document of a pipeline file with its overrides."""

    document: Section
    #: The lines of the file that the chosen environment has.
    lines: frozenset[int] = field(default=frozenset())


def overridden(document: Section, overrides: Overrides, path: Path) -> Overridden:
    """Returns the document with the chosen environment and the values of the command line.

    Raises: SpecError for an environment that the file does not have, and for a value whose key has no place in the file.
    """
    overlay = _chosen(document, overrides, path)
    if overlay is not None:
        if ENVIRONMENTS in overlay:
            where = place(path, overlay.lines[ENVIRONMENTS])
            raise SpecError("an environment has no `environments` of its own", remedy="remove them", where=where)
        document = _merged(document, overlay, path)
    for number, text in enumerate(overrides.values, start=1):
        document = _with_value(document, text, number, path)
    return Overridden(document, frozenset() if overlay is None else frozenset(_lines(overlay)))


def _chosen(document: Section, overrides: Overrides, path: Path) -> Section | None:
    name, environments = overrides.environment, document.get(ENVIRONMENTS)
    if not name or (environments is None and overrides.is_by_variable):
        return None
    known = [*environments] if isinstance(environments, Section) else []
    if isinstance(environments, Section) and name in environments:
        overlay = environments[name]
        return overlay if isinstance(overlay, Section) else None  # The model refuses another value.
    by = f"{VARIABLE}={name}" if overrides.is_by_variable else f"--env {name}"
    line = document.lines.get(ENVIRONMENTS, document.line)
    message = f"the file has no environment `{name}`, which {by} chooses"
    remedy = (
        advice(name, known) if known else f"write it under `{ENVIRONMENTS}`, such as `{name}: {{…}}`, or choose none"
    )
    raise SpecError(message, remedy=remedy, where=place(path, line))


def _lines(node: Node) -> Iterator[int]:
    """Yields the lines of all values, and of the keys that have them."""
    if isinstance(node, Section):
        yield from node.lines.values()
    if isinstance(node, Section | Items):
        yield from chain.from_iterable(map(_lines, node.values() if isinstance(node, Section) else node))
    yield node.line


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.kind == "nothing" and node.text != ""


def _merged(section: Section, overlay: Section, path: Path, names: tuple[str, ...] = ()) -> Section:
    """Returns a section with what an overlay of it has. names: the keys to it."""
    merged = Section(section, section.line, dict(section.lines))
    for key, value in overlay.items():
        present = merged.get(key)
        if _is_null(value):
            _remove(merged, key, place(path, overlay.lines[key]), names)
        elif isinstance(value, Section) and isinstance(present, Section):
            merged[key] = _merged(present, value, path, (*names, key))
        else:
            merged[key], merged.lines[key] = value, overlay.lines[key]
    return merged


def _remove(section: Section, key: str, where: str, names: tuple[str, ...]) -> None:
    if key not in section:
        label, near = ".".join((*names, key)), nearest(key, section)
        remedy = f"did you mean `{near}`?" if near else "take it out: `null` removes a key"
        raise SpecError(f"there is no `{label}` that `null` could remove", remedy=remedy, where=where)
    del section[key], section.lines[key]


# ---- values of the command line


def _with_value(document: Section, text: str, number: int, path: Path) -> Section:
    """Returns the document with the value of one `--set`. number: of the option, from 1 on."""
    key, sign, written = text.partition("=")
    line = OptionLine(number, f"--set {key}")
    parts = [quoted or plain for quoted, plain in _PART.findall(key)]
    if not sign or not parts or not re.fullmatch(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*", key):
        remedy = 'write --set KEY=VALUE, such as --set commit.interval=5s; quote a name with dots: tables."shop.a".mode'
        raise SpecError("`--set` is without a key and a value", remedy=remedy, where=place(path, line))
    return _set(document, parts, parse_value(written, path, line), line, ())


def _set(section: Section, parts: list[str], value: Node, line: OptionLine, names: tuple[str, ...]) -> Section:
    """Returns a section with a value. parts: of the key, from this section on. names: the keys to the section."""
    changed = Section(section, section.line, dict(section.lines))
    known = [name for name in section if not name.startswith(HIDDEN)]
    spans = [count for count in range(len(parts), 0, -1) if ".".join(parts[:count]) in known]
    if spans:
        key, left = ".".join(parts[: spans[0]]), parts[spans[0] :]
    elif names and names[-1] in _FREE_SECTIONS:
        key, left = ".".join(parts), []
    elif names == ("tables",):
        table = ".".join(parts[:-1]) or parts[0]
        remedy = "write the table under `tables` in the file: those of `topics` have the settings of `defaults`"
        message = f"the file has no table `{table}`"
        raise SpecError(message, remedy=advice(table, known) if known else remedy, where=line.option)
    else:
        key, left = parts[0], parts[1:]
    if not left:
        if _is_null(value):
            _remove(changed, key, line.option, names)
        else:
            changed[key], changed.lines[key] = value, line
        return changed
    inner = section.get(key)
    if isinstance(inner, Items):
        changed[key] = _set_item(inner, left, value, line, (*names, key))
        return changed
    if not isinstance(inner, Section):
        inner = Section({}, line, {})
        changed.lines[key] = line
    changed[key] = _set(inner, left, value, line, (*names, key))
    return changed


def _set_item(items: Items, parts: list[str], value: Node, line: OptionLine, names: tuple[str, ...]) -> Items:
    place_of_item, left, label = parts[0], parts[1:], ".".join(names)
    if not place_of_item.isdecimal() or int(place_of_item) >= len(items):
        what = f"`{label}` is a list of {len(items)}, and `{place_of_item}` is not the place of an item in it"
        raise SpecError(
            what, remedy=f"write a number from 0 to {len(items) - 1}, or set the whole list", where=line.option
        )
    number, changed = int(place_of_item), Items(items, items.line)
    item = changed[number]
    if not left:
        changed[number] = value
    elif isinstance(item, Section):
        changed[number] = _set(item, left, value, line, (*names, place_of_item))
    else:
        raise SpecError(f"`{label}.{number}` is not a mapping", remedy="set the whole item", where=line.option)
    return changed


# ---- variables


def fill_variables(document: Section, secrets: Secrets, problems: Problems) -> None:
    """Replaces references to variables in all settings that cannot hold a secret; notes those that cannot be replaced."""
    for key, value in document.items():
        if not (key == ENVIRONMENTS or (key in SECRET_SECTIONS and isinstance(value, Section))):
            document[key] = _filled(value, (key,), secrets, problems)


def _filled(node: Node, names: tuple[str, ...], secrets: Secrets, problems: Problems) -> Node:
    if isinstance(node, Section):
        for key, value in node.items():
            if key not in SECRET_KEYS:
                node[key] = _filled(value, (*names, key), secrets, problems)
    elif isinstance(node, Items):
        node[:] = [_filled(item, names, secrets, problems) for item in node]
    else:
        try:
            return filled(node, secrets)
        except SpecError as error:
            problems.add(node.line, error.message.replace(LABEL, ".".join(names)), error.remedy, is_cause=True)
    return node
