"""How a process knows which tables it works on: the pipeline file's elections, made a Leadership."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from frazil.cli.wiring import declared_tables, open_leadership
from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.loop.leadership import Leadership
from frazil.spec import load_spec
from frazil_ha.electing import finding_of
from frazil_ha.memory import MemoryElector, MemoryRegister


def _opened(folder: Path, ha: str) -> Leadership:
    file = folder / "frazil.yaml"
    file.write_text(
        f"pipeline: p\nkafka: {{bootstrap.servers: '127.0.0.1:9'}}\nha: {ha}\ntables: {{n.a: {{topic: a}}}}\n"
    )
    return open_leadership(load_spec(file), "run-1234-5678", SystemClock())


def test_a_file_without_an_election_makes_the_process_work_on_every_table(tmp_path: Path) -> None:
    assert _opened(tmp_path, "{elect: none}").owns("n.a")


@pytest.mark.parametrize(
    ("ha", "elect"),
    [
        ("{mode: spread}", "kafka"),
        ("{mode: spread, elect: kubernetes}", "kubernetes"),
        ("{mode: spread, elect: postgres, uri: 'postgresql://u:p@127.0.0.1:9/d'}", "postgres"),
    ],
)
def test_a_file_with_an_election_makes_the_process_wait_for_it(tmp_path: Path, ha: str, elect: str) -> None:
    made = _opened(tmp_path, ha)
    try:
        assert not made.owns("n.a")
        assert (made.state.elect, made.state.mode) == (elect, "spread")
        assert made.state.name.endswith("-run-1234")
    finally:
        made.close()


def test_the_tables_of_a_file_are_named_with_their_catalog_and_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(
        "pipeline: p\nkafka: {bootstrap.servers: '127.0.0.1:9'}\n"
        "catalog: {type: rest, uri: 'https://u:${env:TOKEN}@c/api', warehouse: s3://lake/}\n"
        "tables: {n.a: {topic: a}}\nnamespace: m\ntopics: [b, /^c/]\n"
        "routes: [{topic: d, by: type, to: 'o.${type}', rest: o.rest}]\n"
    )
    place = "https://u:***@c/api s3://lake/"
    assert declared_tables(load_spec(file, {"TOKEN": "hush-hush"})) == [
        f"{name} in {place}" for name in ("n.a", "o.rest", "m.b", "m./^c/", "o.…")
    ]


def test_an_address_that_another_process_has_is_refused_until_another_is_written(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError, match="cannot meet at"):
            _opened(tmp_path, f"{{listen: '127.0.0.1:{port}'}}")
    _opened(tmp_path, f"{{elect: kafka, listen: '127.0.0.1:{port}'}}").close()


def test_an_election_is_well_while_its_service_answers() -> None:
    register = MemoryRegister()
    well = finding_of(MemoryElector(register, "check"))
    assert (well.name, well.is_ok, well.found) == ("election", True, "a register in memory")
    lacking = finding_of(MemoryElector(register, "check"), lambda: SpecError("no right", remedy="allow it"))
    assert (lacking.is_ok, lacking.found, lacking.remedy) == (False, "no right", "allow it")
    register.is_away = True
    away = finding_of(MemoryElector(register, "check"))
    assert (away.is_ok, away.found, bool(away.remedy)) == (False, "the register does not answer", True)
