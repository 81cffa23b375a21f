"""The door of `frazil verify`: chooses how tables are verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from frazil.api.results import VerifiedTable, VerifyResult
from frazil.errors import SpecError
from frazil.spec import PipelineSpec
from frazil_verify.levels import Level, Options, verify_at
from frazil_verify.whole_tables import verify_copies


def verify_foreign(spec: PipelineSpec, name: str | None, options: Options, note: Callable[[str], None]) -> VerifyResult:
    """Returns what comparing tables that another tool fills with their topics has found. spec: describes the tables as if
    Frazil filled them. Nothing is written, and no progress is taken.

    Raises: SpecError for a name that no table has.
    """
    foreign = replace(options, level=Level.INDEPENDENT, is_foreign=True)
    return VerifyResult(spec.pipeline, tuple(verify_at(spec, name, foreign, note)))


def verify_tables(
    spec: PipelineSpec,
    name: str | None,
    level: str,
    part: tuple[str, str, float],
    note: Callable[[str], None],
    keeps_all: bool = False,
) -> list[VerifiedTable]:
    """Returns what verifying each table of the pipeline, or the one named `name`, has found. level: as of `Options`. part:
    its begin, its end, and its sample. note: receives what is being done. keeps_all: whether every difference is kept, as a
    repair needs them.

    Raises: SpecError for a name that no table has, and for bounds that are not bounds.
    """
    options = Options(Level(level), *part, keeps_all)
    if options.level is not Level.COPY:
        return verify_at(spec, name, options, note)
    if options.is_bounded:
        raise SpecError(
            "a copy is made of the whole topic",
            remedy="add --independent or --rows, or leave --from, --to and --sample out",
        )
    return verify_copies(spec, name, note)
