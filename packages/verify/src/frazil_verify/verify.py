"""The door of `frazil verify`: chooses how tables are verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from frazil.api.results import VerifiedTable, VerifyResult
from frazil.errors import SpecError
from frazil.spec import PipelineSpec
from frazil_verify.kept import Kept
from frazil_verify.levels import verify_at
from frazil_verify.opened import Level, Options
from frazil_verify.whole_tables import verify_copies


def verify_foreign(
    spec: PipelineSpec, name: str | None, options: Options, note: Callable[[str], None], kept: list[Kept]
) -> VerifyResult:
    """Returns what comparing tables that another tool fills with their topics has found. spec: describes the tables as if
    Frazil filled them. Nothing is written, and no progress is taken. kept: see `verify_tables`.

    Raises: SpecError for a name that no table has.
    """
    foreign = replace(options, level=Level.INDEPENDENT, is_foreign=True)
    return VerifyResult(spec.pipeline, tuple(verify_at(spec, name, foreign, note, kept)))


def check_options(level: str, has_digests: bool, scratch: str) -> None:
    """Raises SpecError for options of another level."""
    if has_digests and level != Level.ROWS:
        raise SpecError("--digests compares the rows that --rows reads", remedy="add --rows, or leave --digests out")
    if scratch and level != Level.COPY:
        raise SpecError("--scratch is where a copy is made", remedy="leave --scratch out: this level makes no copy")


def verify_tables(  # noqa: PLR0913  (each parameter is an option)
    spec: PipelineSpec,
    name: str | None,
    level: str,
    part: tuple[str, str, float],
    note: Callable[[str], None],
    keeps_all: bool = False,
    has_digests: bool = False,
    scratch: str = "",
    kept: list[Kept] | None = None,
) -> list[VerifiedTable]:
    """Returns what verifying each table of the pipeline, or the one named `name`, has found. level: as of `Options`. part:
    its begin, its end, and its sample. note: receives what is being done. keeps_all, has_digests: as of `Options`. scratch:
    a folder for copies that the workers of a cluster reach. kept: receives what is kept of comparisons that are to continue
    if the call is ended, until their results are written; None: until the call returns.

    Raises: SpecError for a name that no table has, for bounds that are not bounds, and for options of another level.
    """
    check_options(level, has_digests, scratch)
    options = Options(Level(level), *part, keeps_all, has_digests=has_digests)
    if options.level is not Level.COPY:
        keeping = list[Kept]() if kept is None else kept
        tables = verify_at(spec, name, options, note, keeping)
        for comparison in keeping if kept is None else ():
            comparison.discard()
        return tables
    if options.is_bounded:
        raise SpecError(
            "a copy is made of the whole topic",
            remedy="add --independent or --rows, or leave --from, --to and --sample out",
        )
    return verify_copies(spec, name, note, scratch)
