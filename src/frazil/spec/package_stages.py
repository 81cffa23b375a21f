"""Keys of a table that installed packages add: each holds the settings of a stage, which a model of the package checks."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from frazil.errors import SpecError
from frazil.plugins.stages import STAGES
from frazil.spec.syntax.document import Items, Node, Section
from frazil.spec.syntax.keys import Form, Key
from frazil.spec.syntax.problems import LABEL, Mistake, Mistakes


def stage_keys() -> dict[str, Key]:
    """The keys of the stages that are installed here."""
    return {
        name: Key(name=name, field="stages", form=Form({}), description="A stage of an installed package.")
        for name in STAGES.added()
    }


def hide_stages(table: Section) -> None:
    """Puts the keys of stages in a table's section together, for its field `stages`."""
    names = [key for key in table if key in STAGES.added()]
    if names:
        stages = {name: table.pop(name) for name in sorted(names, key=lambda name: table.lines.get(name, 0))}
        table.hide("stages", Section(stages, table.line, table.lines))


def read_stages(stages: Any) -> Any:
    """Returns the stages that a table names with their settings, in the order of the file.

    Raises: Mistakes where a package's model refuses its settings.
    """
    if not isinstance(stages, Section):
        return stages
    read, mistakes = [], list[Mistake]()
    for name, node in stages.items():
        try:
            read.append((name, STAGES.get(name).settings.model_validate(_plain(node) or {})))
        except SpecError as error:
            mistakes.append(Mistake(name, error.message, error.remedy))
        except ValidationError as error:
            remedy = f"write it as the stage `{name}` needs it"
            for fault in error.errors(include_url=False, include_context=False, include_input=False):
                mistakes.append(Mistake((name, *fault["loc"]), f"`{LABEL}`: {fault['msg']}", remedy))
    if mistakes:
        raise Mistakes(mistakes)
    return tuple(read)


def _plain(node: Node) -> Any:
    if isinstance(node, Section):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, Items):
        return [_plain(item) for item in node]
    return None if node.kind == "nothing" else node.text
