"""`frazil try --input`: records of a file, tried as `frazil try` tries those of a topic, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from frazil.errors import SpecError
from frazil.files import temporary_folder
from frazil.ingest.tables.queries import Queries
from frazil.kafka.port import ReadRecord
from frazil.spec import PipelineSpec
from frazil.spec.syntax.document import Scalar, Section
from frazil.types import OffsetRange
from frazil_testing.case_file import SUFFIXES, Case, CaseFile, CaseRecord, read_input
from frazil_testing.play import Player
from frazil_testing.trial import Trial, TriedTable


def try_input(
    spec: PipelineSpec, table: str, path: Path, queries_of: Callable[[PipelineSpec], Queries | None]
) -> TriedTable:
    """Returns what becomes of the records of a file in a table that begins empty.

    Raises: SpecError for a file that cannot be read; as `Trial.run`.
    """
    file = _input_file(path, table)
    player = Player(spec, file, queries_of(spec))
    with temporary_folder("frazil-input-") as folder:
        source, catalog, played = player.produce(file.cases[0], folder)

        def read(ranges: list[OffsetRange]) -> list[ReadRecord]:
            records = source.read(ranges, 2**62)[0]
            return sorted(records, key=lambda held: (held.timestamp_ms or 0, held.topic, held.partition, held.offset))

        trial = Trial(played, source, catalog, read, player.schemas, player.queries)
        return trial.run(table, len(file.cases[0].records), is_oldest=True)


def _input_file(path: Path, table: str) -> CaseFile:
    """Returns the records as a case: those of YAML, or the lines of another file, each a value."""
    if path.suffix in SUFFIXES:
        return read_input(path, table)
    case = Case(path.name, 1, Section({}, 1, {}), tuple(_lines(path)))
    return CaseFile(path, None, table, {}, {}, (case,))


def _lines(path: Path) -> list[CaseRecord]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        remedy = "name a file of values, one in each line, or YAML with `records`"
        raise SpecError(f"the file of records cannot be read: {reason}", remedy=remedy, where=str(path)) from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise SpecError("the file has no records", remedy="write a value into each line", where=str(path))
    return [CaseRecord(Section({"text": Scalar(line, "text", n)}, n, {"text": n}), "") for n, line in lines]
