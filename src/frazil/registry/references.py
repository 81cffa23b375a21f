"""What a schema refers to, and what that refers to: every text once, each after those that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from frazil.registry.port import UnusableSchema

MAX_REFERENCES = 256
MAX_CHARACTERS = 4 * 1024 * 1024


@dataclass(frozen=True)
class Reference:
    """What a schema's text calls `name` is a version of a subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Version:
    """A schema's text, and what it refers to."""

    text: str
    references: tuple[Reference, ...] = ()


class Gathering:
    """Visits references depth first. texts: what was found, by name, dependencies first.

    Raises UnusableSchema for references that are missing, go in a circle, are too many, or give one name to two texts:
    no reader could tell which of them the producer meant.
    """

    def __init__(self, look_up: Callable[[str, int], Version | None]) -> None:
        self.texts: dict[str, str] = {}
        self._look_up = look_up
        self._visited: dict[tuple[str, int], str] = {}
        self._open: list[tuple[str, int]] = []
        self._size = 0

    def visit(self, references: Iterable[Reference]) -> None:
        """Adds what `references` name, and all that it needs."""
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
        found = self._look_up(subject, version)
        if found is None:
            raise UnusableSchema(f"it refers to version {version} of subject `{subject}`, which is not in the registry")
        self._size += len(found.text)
        if self._size > MAX_CHARACTERS:
            raise UnusableSchema(f"the schemas that it refers to are longer than {MAX_CHARACTERS} characters")
        self.visit(found.references)
        return found.text
