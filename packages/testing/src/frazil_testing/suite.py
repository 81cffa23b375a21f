"""Plays the cases of files, one after another, and compares them."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from frazil.clock import Clock
from frazil.errors import FrazilError
from frazil.files import temporary_folder
from frazil.ingest.tables.queries import Queries
from frazil.secrets import Secrets
from frazil.spec import PipelineSpec, load_spec
from frazil.spec.syntax.environments import overrides_of_process
from frazil_testing.answers import write_answers
from frazil_testing.case_file import Case, CaseFile, read_case_file
from frazil_testing.compare import Verdict, differences_of
from frazil_testing.play import Played, Player


@dataclass(frozen=True)
class Suite:
    """What plays cases."""

    #: The pipeline file of cases that name none.
    pipeline: Path
    #: Returns what analyses the queries of a pipeline; None where none of its tables has one.
    queries_of: Callable[[PipelineSpec], Queries | None]
    clock: Clock
    #: Parts of the names of the cases that are played; all where it is empty.
    names: Sequence[str] = ()
    #: Whether what tables have is written into the files.
    updates: bool = False

    def play(self, paths: Sequence[Path]) -> Iterator[Verdict]:
        """Yields how each case has ended.

        Raises: SpecError for a file of cases or a pipeline file that is wrong.
        """
        for path in paths:
            yield from self._play_file(read_case_file(path))

    def _play_file(self, file: CaseFile) -> Iterator[Verdict]:
        cases = [case for case in file.cases if not self.names or any(name in case.name for name in self.names)]
        if not cases:
            return
        spec = spec_of_cases(file, self.pipeline)
        player = Player(spec, file, self.queries_of(spec))
        played: dict[str, Played] = {}
        verdicts = [self._play_case(player, file, case, played) for case in cases]
        if self.updates:
            changed = {verdict.name for verdict in verdicts if verdict.differences}
            if changed:
                write_answers(file, {name: played[name] for name in changed})
            verdicts = [
                replace(verdict, differences=(), is_updated=True) if verdict.name in changed else verdict
                for verdict in verdicts
            ]
        yield from verdicts

    def _play_case(self, player: Player, file: CaseFile, case: Case, played: dict[str, Played]) -> Verdict:
        began_s = self.clock.monotonic_s()
        verdict = Verdict(str(file.path), case.name, case.line, 0.0)
        try:
            with temporary_folder("frazil-case-") as folder:
                played[case.name] = player.play(case, folder)
                verdict = replace(verdict, differences=tuple(differences_of(file, case, played[case.name])))
        except FrazilError as error:
            verdict = replace(verdict, error=error.message, remedy=error.remedy, where=error.where)
        return replace(verdict, seconds=round(self.clock.monotonic_s() - began_s, 3))


def spec_of_cases(file: CaseFile, pipeline: Path) -> PipelineSpec:
    """Returns the pipeline file of cases, with the variables that they name; placeholders replace missing secrets."""
    variables = ChainMap(dict(file.variables), dict(os.environ))
    secrets = Secrets(variables, has_placeholders=True)
    return load_spec(file.pipeline or pipeline, variables, overrides_of_process(), secrets)
