"""A pipeline file in the making: every setting of the other tool ends in it, or in the report of what was not carried over.

What becomes of each setting is a table per tool, which feeds both its import and its page in the docs. Secrets are handled
in one place, when the file is finished: references to config providers become those of the pipeline file, and a literal
secret becomes a reference to an environment variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import yaml

from frazil.errors import SpecError
from frazil.files import temporary_folder
from frazil.secrets import secrets_of
from frazil.spec import load_spec

_PROVIDER = re.compile(r"\$\{([A-Za-z][\w-]*):([^}]*)\}")
_MORE = re.compile(r" \(and \d+ more problems? in this file\)")
_SALT = re.compile(r"(with\.salt\.).*")
_LOCAL_BROKER = "localhost:9092"
_LOCAL_REGISTRY = "http://localhost:8081"
_REGISTRY_FORMATS = {"avro", "protobuf", "json_schema"}
_SECTIONS = ("pipeline", "kafka", "registry", "catalog", "spark", "commit", "defaults", "tables", "routes")
_UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1000}
_SET = "set the environment variable {} before starting Frazil"
_NOTHING: tuple[object, ...] = (None, "", {}, [])
FLAGS: Mapping[str, bool] = {"true": True, "false": False}
"""What Java reads as true or false."""
_NOT_PRINTED = "the value is a secret, and is not printed"


class Answer(StrEnum):
    """What becomes of a setting."""

    CARRIED = "carried over"
    UNNEEDED = "not needed"
    UNSUPPORTED = "not supported"


@dataclass(frozen=True)
class PeerKey:
    """A setting of another tool."""

    #: As the tool spells it; `*` for any text.
    name: str
    answer: Answer
    #: Where it goes, why it is not needed, or why it is not supported.
    note: str
    #: Of a setting that is not supported: what to do.
    instead: str = ""
    #: Values with which a setting that is not supported changes nothing.
    harmless: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Tool:
    """Another tool that writes topics to Iceberg tables."""

    #: As in the name of the command.
    name: str
    #: As its makers spell it.
    title: str
    #: Every known setting, the first that matches decides.
    keys: tuple[PeerKey, ...]

    def find(self, key: str) -> PeerKey | None:
        """Returns the answer for a setting; None for an unknown one."""
        return next((setting for setting in self.keys if fnmatchcase(key, setting.name)), None)

    def meant(self, key: str) -> str | None:
        """Returns the setting whose name is almost that of another one, which the tool would not read; None without one."""
        names = [setting.name for setting in self.keys if "*" not in setting.name]
        return None if key in names else next((name for name in names if _is_almost(key.lower(), name.lower())), None)


def _is_almost(name: str, other: str) -> bool:
    """Whether names differ in one character, or in two that have changed places."""
    start = 0
    while name[start : start + 1] == other[start : start + 1] != "":
        start += 1
    left, right = name[start:], other[start:]
    is_longer, is_shorter = left[1:] == right, left == right[1:]
    return is_longer or is_shorter or left[1:] == right[1:] or left[:2][::-1] + left[2:] == right


def carried(to: str, *names: str) -> Iterable[PeerKey]:
    """Yields settings that are carried over. to: where, in the pipeline file's words."""
    return (PeerKey(name, Answer.CARRIED, to) for name in names)


def unneeded(why: str, *names: str) -> Iterable[PeerKey]:
    """Yields settings that are not needed."""
    return (PeerKey(name, Answer.UNNEEDED, why) for name in names)


def unsupported(why: str, instead: str, *names: str, harmless: Iterable[str] = ()) -> Iterable[PeerKey]:
    """Yields settings that are not supported. instead: what to do."""
    return (PeerKey(name, Answer.UNSUPPORTED, why, instead, frozenset(harmless)) for name in names)


@dataclass(frozen=True)
class Loss:
    """A setting of the other tool that was not carried over."""

    key: str
    reason: str
    #: What to do.
    remedy: str


@dataclass(frozen=True)
class Imported:
    """A finished import."""

    #: The pipeline file.
    text: str
    #: Settings that are carried over as they were.
    carried: tuple[str, ...]
    losses: tuple[Loss, ...]
    #: Settings that are not needed, with the reason.
    unneeded: Mapping[str, str]
    #: What else the reader should know.
    notes: tuple[str, ...]


class Draft:
    """The pipeline file so far, and the settings that have not been looked at."""

    def __init__(self, tool: Tool, settings: Mapping[str, str]) -> None:
        """Raises: SpecError where no setting is one of the tool's."""
        if settings and not any(tool.find(key.rpartition("/")[2]) for key in settings):
            remedy = f"give a configuration of it, in a form that `frazil import {tool.name} --help` names"
            raise SpecError(f"the configuration has no setting of {tool.title}", remedy=remedy)
        self.document: dict[str, Any] = {"pipeline": tool.name, "kafka": {}}
        self.notes: list[str] = []
        #: Columns whose values are not those of the other tool, as their conversion is not carried over.
        self.unconverted: set[str] = set()
        self._tool = tool
        self._given = dict(settings)
        self._left = dict(settings)
        self._losses: dict[Loss, None] = {}
        self._unneeded: dict[str, str] = {}
        self._variables: dict[str, str] = {}

    def peek(self, key: str) -> str | None:
        """Returns the value of a setting that is answered elsewhere."""
        return self._given.get(key)

    def take(self, key: str) -> str | None:
        """Returns the value of a setting, and counts it as carried over."""
        return self._left.pop(key, None)

    def take_flag(self, key: str, flags: Mapping[str, bool] = FLAGS) -> bool | None:
        """Takes a setting that is true or false; reports one that is neither, and returns None for it and without one.
        flags: the values that the tool reads, in lower case.
        """
        value = (self.take(key) or "").strip()
        if value and value.lower() not in flags:
            reason = f"`{value}` is neither true nor false"
            self.lose(key, f"{reason}, and its default is taken", "write true or false there, and import again")
        return flags.get(value.lower())

    def take_duration(self, key: str) -> str | None:
        """Takes a setting in milliseconds, and returns it in the pipeline file's words; reports one that is not a number."""
        value = (self.take(key) or "").strip()
        if not value or (value.isdecimal() and int(value)):
            return duration(value) if value else None
        self.lose(key, f"`{value}` is not a number of milliseconds", "write one there, such as 60000, and import again")
        return None

    def take_all(self, prefix: str) -> dict[str, str]:
        """Takes the settings with a prefix, and returns them without it."""
        return {key.removeprefix(prefix): self._left.pop(key) for key in list(self._left) if key.startswith(prefix)}

    def names(self, prefix: str = "") -> list[str]:
        """Returns the settings with a prefix that have not been taken."""
        return [key for key in self._left if key.startswith(prefix)]

    def put(self, value: object, *path: str) -> None:
        """Writes a value into the pipeline file, unless it is None or empty; so for the settings of a section."""
        if isinstance(value, dict):
            value = {key: part for key, part in value.items() if part not in _NOTHING}
        if value in _NOTHING:
            return
        section = self.document
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section[path[-1]] = value

    def put_route(self, settings: Mapping[str, Any]) -> None:
        """Adds an entry to the routes."""
        written = {key: value for key, value in settings.items() if value not in _NOTHING}
        self.document.setdefault("routes", []).append(written)

    def lose(self, key: str, reason: str, instead: str) -> None:
        """Reports a setting that is not carried over as it was. instead: what to do."""
        self._losses[Loss(_shown(key), reason, instead)] = None

    def settle(self, key: str, value: str, name_in_table: str = "") -> None:
        """Reports a setting that was not taken, by its answer. name_in_table: its name in the tool's table; unless
        given, what is behind a `topic/`.
        """
        setting = self._tool.find(name_in_table or key.rpartition("/")[2])
        if self._is_misspelt(key):
            return
        if setting is None:
            self.lose(
                key, "the setting is unknown", "see what it does, and remove it or set the pipeline file accordingly"
            )
        elif setting.answer is Answer.UNNEEDED:
            self._unneeded[_shown(key)] = setting.note
        elif setting.answer is Answer.CARRIED:
            self.lose(
                key, f"it has no effect with the other settings ({setting.note})", "remove it there, or complete it"
            )
        elif value.lower() not in setting.harmless:
            self.lose(key, setting.note, setting.instead)

    def _is_misspelt(self, key: str) -> bool:
        """Whether a setting is almost one of the tool's, which is reported."""
        meant = self._tool.meant(key.rpartition("/")[2])
        if meant is not None:
            self.lose(key, f"it is not a setting of {self._tool.title}", f"did you mean `{meant}`?")
        return meant is not None

    def name_pipeline(self, name: str | None) -> None:
        """Names the pipeline, with the characters that its name may have."""
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name or "").strip("-._")[:100]
        self.put(plain, "pipeline")

    def finish(self, brokers: str | None) -> Imported:
        """Returns the pipeline file, checked as `frazil check` reads it. brokers: those that the caller names."""
        for key, value in self._given.items():
            if key in self._left:
                self.settle(key, value)
            else:
                self._is_misspelt(key)
        kafka = self.document["kafka"]
        if brokers or "bootstrap.servers" not in kafka:
            named = {"bootstrap.servers": brokers or _LOCAL_BROKER}
            self.document["kafka"] = (
                named | kafka | named
            )  # First in the section, also where the configuration has others.
            if not brokers:
                self.notes.append(
                    f"the brokers are not known: write them in place of {_LOCAL_BROKER}, or give --bootstrap"
                )
        if "registry" not in self.document and _REGISTRY_FORMATS & set(_formats(self.document)):
            self.put(_LOCAL_REGISTRY, "registry", "url")
            self.notes.append(f"the schema registry is not known: write it in place of {_LOCAL_REGISTRY}")
        if "catalog" not in self.document and not any("`catalog`" in note for note in self.notes):
            self.notes.append("the catalog is not known: write `catalog`, unless the local one is meant")
        self.document = {name: self.document[name] for name in _SECTIONS if name in self.document}
        for name in [name for name in self.document.get("tables", {}) if "${" in name]:
            self.lose(name, "the name of a table does not come from a variable", "write the name under `tables`")
        for table in _tables(self.document):
            _take_version(table)
        terms = [term for table in _tables(self.document) for term in table.get("partition_by", ()) if "(" not in term]
        for column in [column for column in dict.fromkeys(terms) if column in self.unconverted]:
            self.lose(
                f"partition_by {column}",
                f"its conversion is not carried over: each value of `{column}` would be a partition of its own",
                f"write `day({column})` for a time, or make the converted column in a `select`",
            )
        self._replace_secrets(self.document, ())
        body = yaml.dump(self.document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
        for line, error in _problems(body):
            self.lose(line, _MORE.sub("", error.message), error.remedy)
        losses = tuple(self._losses)
        others = {*(loss.key for loss in losses), *self._unneeded, *self._left}
        taken = tuple(key for key in map(_shown, self._given) if key not in others)
        return Imported(
            "\n".join([*self._comments(losses), body]), taken, losses, self._unneeded, tuple(dict.fromkeys(self.notes))
        )

    def _comments(self, losses: Sequence[Loss]) -> Iterator[str]:
        yield f"# Made by `frazil import {self._tool.name}`."
        yield from (f"# Note: {_line(note)}" for note in dict.fromkeys(self.notes))
        if losses:
            yield "# Not carried over, and what to do:"
        yield from (f"#   {_line(f'{loss.key}: {loss.reason}; {loss.remedy}')}" for loss in losses)
        if self._unneeded:
            yield "# Not needed:"
        yield from (f"#   {_line(f'{key}: {reason}')}" for key, reason in self._unneeded.items())

    def _replace_secrets(self, section: MutableMapping[str, Any], path: tuple[str, ...]) -> None:
        for key, value in section.items():
            if isinstance(value, dict):
                self._replace_secrets(value, (*path, key))
            elif isinstance(value, list) and all(isinstance(item, str) for item in value):
                section[key] = [self._without_secrets(item, (*path, key)) for item in value]
            elif isinstance(value, list):
                for item in value:
                    self._replace_secrets(item, (*path, key))
            elif isinstance(value, str):
                section[key] = self._without_secrets(value, (*path, key))

    def _without_secrets(self, text: str, path: tuple[str, ...]) -> str:
        """Returns the text with references of the pipeline file in place of other references and of literal secrets."""
        text = _PROVIDER.sub(partial(self._reference, path), text)
        has_names_of_fields = path[0] in ("tables", "routes") and path[-2] != "properties"
        literals = {
            secret for secret in secrets_of("" if has_names_of_fields else path[-1], text) if "${" not in secret
        }
        for secret in sorted({text} if text in literals else literals, key=len, reverse=True):
            if secret in text:
                variable = self._variable(f"{path[0]}_{path[-1]}", secret)
                self.lose(self._key_of(secret, path) or ".".join(path), _NOT_PRINTED, _SET.format(variable))
                text = text.replace(secret, f"${{env:{variable}}}")
        return text

    def _reference(self, path: tuple[str, ...], match: re.Match[str]) -> str:
        """Returns the reference for one to Kafka's config providers: env, directories with a file per value, and others."""
        provider, where = match.groups()
        place, _, key = where.rpartition(":")
        if provider == "env":
            return f"${{env:{key}}}"
        if provider in ("dir", "directory") and place:
            return f"${{file:{place}/{key}}}"
        if provider == "file" and not place:
            return match[0]
        variable = self._variable(key, match[0])
        held = f"the config provider `{provider}` is Kafka Connect's own"
        self.lose(self._key_of(match[0], path) or key, held, _SET.format(variable))
        return f"${{env:{variable}}}"

    def _variable(self, name: str, content: str) -> str:
        """Returns the variable for a secret, the same for the same secret."""
        plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper() or "SECRET"
        while self._variables.setdefault(plain, content) != content:
            plain += "_2"
        return plain

    def _key_of(self, secret: str, path: tuple[str, ...]) -> str | None:
        """Returns the setting that the secret at `path` comes from; None where it comes from none. Of several settings that
        have it, that with the most words of the path.
        """
        keys = [key for key, value in self._given.items() if secret in value]
        return max(keys, key=lambda key: len(_words(key) & _words(".".join(path))), default=None)


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))


class _Dumper(yaml.SafeDumper):
    """Writes what two tables share twice, without YAML's anchors."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


class _AnyVariable(dict[str, str]):
    """An environment in which every variable is set."""

    def get(self, _key: str, _default: object = None) -> str:
        return "x" * 32


def _formats(section: object) -> Iterator[str]:
    """Yields every `format` in a part of the file."""
    if isinstance(section, dict):
        yield from ([section["format"]] if isinstance(section.get("format"), str) else [])
    for part in section.values() if isinstance(section, dict) else section if isinstance(section, list) else ():
        yield from _formats(part)


def _tables(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the settings of tables, of routes, and of all tables."""
    yield from (document.get("defaults", {}), *document.get("tables", {}).values(), *document.get("routes", ()))


def _take_version(table: dict[str, Any]) -> None:
    """Writes the format version, which is one of Iceberg's table properties, as the setting that it is here."""
    properties = dict(table.get("properties", {}))
    version = properties.pop("format-version", None)
    if version is None:
        return
    table["properties"] = properties
    if not properties:
        del table["properties"]
    table.setdefault("format_version", number(version))


def number(text: str) -> int | str:
    """Returns a whole number; a text that is none as it is, which the check of the file then reports."""
    return int(text) if text.isdecimal() else text


def duration(milliseconds: str) -> str:
    """Returns a duration in the pipeline file's words."""
    for unit, size_ms in _UNITS_MS.items():
        if milliseconds.isdecimal() and int(milliseconds) % size_ms == 0:
            return f"{int(milliseconds) // size_ms}{unit}"
    return f"{milliseconds}ms"


def _problems(text: str) -> Iterator[tuple[str, SpecError]]:
    """Yields what is wrong with a pipeline file, and in which of its lines."""
    with temporary_folder("frazil-draft-") as folder:
        path = folder / "frazil.yaml"
        path.write_text(text.replace("${file:", "${env:"), encoding="utf-8")
        try:
            load_spec(path, _AnyVariable())
        except SpecError as error:
            lines = text.splitlines()
            for problem in (error, *error.others):
                line = lines[int(problem.where.rpartition(":")[2] or 1) - 1]
                if "${" not in line:  # What a reference stands for is not known here.
                    yield line.strip().rstrip(":"), problem


def _shown(key: str) -> str:
    """Returns the name of a setting without the salt that some of Debezium's have."""
    return _SALT.sub(r"\1***", key)


def _line(text: str) -> str:
    return " ".join(text.split())
