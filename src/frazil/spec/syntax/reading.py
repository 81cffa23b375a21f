"""Reads the tree of a pipeline file with its models: the one validation, and what its errors mean to the user."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from frazil.secrets import Secrets
from frazil.spec.syntax.document import GROUP, HIDDEN, Items, Node, Scalar, Section
from frazil.spec.syntax.keys import Declared, Key, describe, keys_of, sections_of
from frazil.spec.syntax.problems import LABEL, NAME, Mistake, Mistakes, Problems, advice, nearest

_Spec = TypeVar("_Spec", bound=Declared)
_Loc = tuple[str | int, ...]
_EXAMPLES = {
    "catalog": "`catalog: {type: rest, uri: https://…}`, or another type, or remove it",
    "registry": "`registry: {url: https://registry:8081}`, or remove it",
    "ha": "`ha: {}`, or remove it",
    "verify": "`verify: {}`, or remove it",
    "dead_letters": "`dead_letters: {table: NAMESPACE.TABLE}`, or `dead_letters: {topic: NAME}` for a topic",
    "key": "`key: {format: json}`, or `key_columns: [NAME]` for the columns that rows are replaced by",
}
"""How sections are written, for the remedy where one is no mapping."""
_ALIKE = 0.8
"""How like a key in a section is to the unknown one: there are many sections, and a wrong guess is worse than none."""


def find_inside(model: type[Declared], key: str) -> tuple[str, ...]:
    """Returns how the keys of sections in `model` are written that `key` most probably was meant to be: those of this name,
    such as `format`, or of the section's and this name, such as `commit_interval`.
    """
    inner = [(outer, name) for outer, section in sections_of(model).items() for name in keys_of(section)]
    close = nearest(key, [name for _, name in inner], _ALIKE)
    meant = (
        [pair for pair in inner if "_".join(pair) == key]
        or [pair for pair in inner if pair[1] == key]
        or [pair for pair in inner if pair[1] == close]
    )
    return tuple(f"{outer}: {{{name}: …}}" for outer, name in meant)


class Rules(NamedTuple):
    """What one model's keys have to do with each other."""

    #: Fills in what the file leaves out.
    complete: Callable[[Any], Declared] | None = None
    #: Each yields what is wrong.
    checks: tuple[Callable[[Any], Iterable[Mistake]], ...] = ()
    #: What to do about a key that the section does not have; None where it is not known elsewhere either.
    strange: Callable[[str], str | None] = lambda _key: None
    #: The keys that installed packages add to it.
    added: Callable[[], Iterable[str]] = tuple


class Place(NamedTuple):
    """A part of the tree."""

    #: Of its key.
    line: int
    node: Node
    #: The keys to it, from `owner` on.
    names: tuple[str, ...]
    #: The table, or the file, that it is a part of.
    owner: str

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"`{'.'.join(self.names)}`" if self.names else self.owner


class Reading:
    """One reading of a file: what validators need beside the value, and where its problems are noted."""

    def __init__(self, path: Path, secrets: Secrets, rules: Mapping[type[Declared], Rules]) -> None:
        #: The folder of the file, whole.
        self.folder = str(path.resolve().parent)
        self.secrets = secrets
        self.problems = Problems(path)
        #: The model that has validated a value, by the value's id(), with the value itself, whose id stays its own so.
        self._models: dict[int, tuple[type[Declared], Any]] = {}
        #: What a part is called, by its id(), with the part itself, whose id stays its own so. Keys are named from there.
        self._owners: dict[int, tuple[str, Node]] = {}
        #: The lines of settings that many tables have.
        self.shared_lines: Container[int] = ()
        self._rules = rules

    def read(self, model: type[_Spec], tree: Node) -> _Spec | None:
        """Returns what the tree declares; None where something is wrong, which is noted."""
        try:
            return model.model_validate(tree, context=self, by_alias=True, by_name=False)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
        # What `defaults` has wrong is noted there first.
        errors.sort(key=lambda problem: problem["loc"][:1] in (("tables",), ("routes",)))
        meant = {(*problem["loc"][:-1], key) for problem in errors for key in self._meant(tree, problem)}
        for fault in errors:
            if not (fault["type"] == "missing" and fault["loc"] in meant):
                self._note(tree, fault)
        return None

    def own(self, part: Node, label: str) -> None:
        """Notes what messages call a part of the tree."""
        self._owners[id(part)] = label, part

    def note_model(self, value: Any, model: type[Declared]) -> None:
        """Notes which model validates a part of the tree, or what a form has made of it."""
        self._models[id(value)] = model, value

    def check(self, spec: _Spec) -> _Spec:
        """Returns a model with what the file leaves out. A model that a word stands for is returned as it is.

        Raises: Mistakes where its rules say so.
        """
        rules = self._rules.get(type(spec))
        if rules is None or id(spec) in self._models:
            return spec
        whole: Any = spec if rules.complete is None else rules.complete(spec)
        if mistakes := [mistake for check in rules.checks for mistake in check(whole)]:
            raise Mistakes(mistakes, are_rules=True)
        return whole  # type: ignore[no-any-return]

    def _note(self, tree: Node, error: ErrorDetails) -> None:
        loc = error["loc"]
        if error["type"] == "value_error":
            raised = error["ctx"]["error"]
            assert isinstance(raised, Mistakes), raised
            for mistake in raised.mistakes:
                where = (mistake.where,) if isinstance(mistake.where, str) else mistake.where
                place = self._place(tree, (*loc, *where))
                line = mistake.line or (place.line if raised.are_rules else place.node.line)
                self._add(place, line, mistake.message, mistake.remedy, is_cause=raised.is_cause)
        elif error["type"] == "extra_forbidden":
            self._note_unknown(tree, loc)
        elif error["type"] == "missing":
            place = self._place(tree, loc[:-1])
            key = self._keys(place.node)[str(loc[-1])]
            message = key.lack or f"`{'.'.join((*place.names, key.name))}` is missing"
            self._add(place, place.line, message, key.remedy)
        else:
            place = self._place(tree, loc)
            is_table = place.owner.startswith("table ") and not place.names
            self._note_shape(place, "`{topic: NAME}` there" if is_table else _EXAMPLES.get(".".join(place.names), ""))

    def _note_unknown(self, tree: Node, loc: _Loc) -> None:
        place, inner, key = self._place(tree, loc[:-1]), self._place(tree, loc), str(loc[-1])
        remedy = self._strange(place.node, key) or ""
        if remedy:
            message = f"`{'.'.join((*place.names, key))}` does not belong here"
        else:
            model = self._models[id(place.node)][0]
            rules = self._rules.get(model)
            known = (*self._keys(place.node), *(() if rules is None else rules.added()))
            inside = () if nearest(key, known) else find_inside(model, key)
            message = f"unknown key `{key}` in {place.label}"
            remedy = f"did you mean `{'` or `'.join(inside)}`?" if inside else advice(key, known)
        self._add(place, inner.line, message, remedy, is_cause=True)

    def _note_shape(self, place: Place, example: str) -> None:
        """Notes a value that is not a mapping. example: how the mapping is written."""
        node = place.node
        if isinstance(node, Scalar) and (name := node.text.partition(":")[0]) in self._keys(node):
            self._add(place, node.line, f"no space after the colon of `{name}`", f"write `{name}: value`")
            return
        message = f"{place.label} is {describe(node)} where a mapping is expected"
        self._add(place, node.line, message, f"write {example or '`key: value` pairs, or remove it'}")

    def _add(self, place: Place, line: int, message: str, remedy: str, *, is_cause: bool = False) -> None:
        label = ".".join(place.names)
        is_shared = line in self.shared_lines and place.owner.startswith(("table ", "a route"))
        note = f"{place.owner} has it from `defaults`" if is_shared else ""
        if isinstance(place.node, Scalar) and place.node.variable:
            message += f" (the value of the variable {place.node.variable})"
        for stand_in, text in ((LABEL, label), (NAME, place.names[-1] if place.names else "")):
            message, remedy = message.replace(stand_in, text), remedy.replace(stand_in, text)
        self.problems.add(line, message, remedy, is_cause=is_cause, note=note)

    def _meant(self, tree: Node, error: ErrorDetails) -> Iterator[str]:
        """The key that an unknown one stands for: it is not missing."""
        if error["type"] != "extra_forbidden":
            return
        section, key = self._place(tree, error["loc"][:-1]).node, str(error["loc"][-1])
        if self._strange(section, key) is None:
            yield nearest(key, self._keys(section)) or ""

    def _strange(self, section: Node, key: str) -> str | None:
        """What to do about a key that is known in another place."""
        rules = self._rules.get(self._models[id(section)][0])
        return None if rules is None else rules.strange(key)

    def _keys(self, section: Node) -> Mapping[str, Key]:
        return keys_of(self._models[id(section)][0])

    def _owner(self, part: Node) -> str:
        """What a part is called; "" where it has no name of its own."""
        return self._owners[id(part)][0] if id(part) in self._owners else ""

    def _place(self, tree: Node, loc: _Loc) -> Place:
        """The part of the tree at a location; a list of named parts is a mapping in the file."""
        line, node, names, owner = tree.line, tree, list[str](), self._owner(tree)
        for part in loc:
            if isinstance(part, str) and part.startswith(GROUP):
                continue
            if isinstance(node, Section):
                key = part if isinstance(part, str) else [name for name in node if not name.startswith(HIDDEN)][part]
                if key not in node:
                    return Place(line, node, (*names, key), owner)
                line, node = node.lines.get(key, node.line), node[key]
                names += [] if key.startswith(HIDDEN) else [key]
            elif isinstance(node, Items) and isinstance(part, int):
                node = node[part]
                line = node.line
            else:  # A word that stands for a section.
                break
            if label := self._owner(node):
                names, owner = [], label
        return Place(line, node, tuple(names), owner)
