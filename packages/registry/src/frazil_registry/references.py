"""Contexts of subjects, and the schemas that a schema refers to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from frazil.registry.port import UnusableSchema

_CONTEXT = re.compile(r":\.([^:]*):")
MAX_REFERENCES = 256
MAX_CHARACTERS = 4 * 1024 * 1024


def qualified(subject: str, context: str) -> str:
    """Returns the subject's name in `context`; a name with a context of its own (`:.other:name`) stays unchanged."""
    return subject if not context or _CONTEXT.match(subject) else f":.{context}:{subject}"


def context_of(subject: str, default: str = "") -> str:
    """Returns the context at the beginning of a subject's name, or the default."""
    match = _CONTEXT.match(subject)
    return match[1] if match else default


@dataclass(frozen=True)
class Reference:
    """A reference in a schema's text."""

    #: The name used in the text.
    name: str
    #: The subject that it refers to.
    subject: str
    #: The version of that subject.
    version: int


@dataclass(frozen=True)
class Version:
    """A version of a subject."""

    #: The text of the schema.
    text: str
    references: tuple[Reference, ...] = ()


class Gathering:
    """Collects referenced schemas depth first. look_up: returns a version of a subject.

    Raises: UnusableSchema for references that are missing, circular, too many, or give one name to two texts: no reader
    could choose the one that the producer meant.
    """

    def __init__(self, look_up: Callable[[str, int], Version | None]) -> None:
        #: The schemas found, by name, dependencies first.
        self.texts: dict[str, str] = {}
        self._look_up = look_up
        self._visited: dict[tuple[str, int], str] = {}
        self._open: list[tuple[str, int]] = []
        self._size = 0

    def visit(self, references: Iterable[Reference]) -> None:
        """Adds the schemas of `references`, and everything they need."""
        for reference in references:
            text = self._text((reference.subject, reference.version))
            if self.texts.setdefault(reference.name, text) != text:
                raise UnusableSchema(f"it refers to two different schemas by the name `{reference.name}`")

    def _text(self, place: tuple[str, int]) -> str:
        if place in self._open:
            circle = [subject for subject, _ in [*self._open[self._open.index(place) :], place]]
            raise UnusableSchema(f"its references are circular: {' → '.join(circle)}")
        if place not in self._visited:
            self._open.append(place)
            self._visited[place] = self._fetch(*place)
            self._open.pop()
        return self._visited[place]

    def _fetch(self, subject: str, version: int) -> str:
        if len(self._visited) + len(self._open) > MAX_REFERENCES:
            raise UnusableSchema(f"it refers to more than {MAX_REFERENCES} schemas")
        referenced = self._look_up(subject, version)
        if referenced is None:
            raise UnusableSchema(f"it refers to version {version} of subject `{subject}`, which is not in the registry")
        self._size += len(referenced.text)
        if self._size > MAX_CHARACTERS:
            raise UnusableSchema(f"the schemas that it refers to are longer than {MAX_CHARACTERS} characters")
        self.visit(referenced.references)
        return referenced.text
