"""Processes of one pipeline that elect a leader by Kafka: the others are warm, and take over without a loss.

In time: the first test here has a real takeover; unit/ingest/test_standby.py has tables that are spread, and
unit/ingest/test_catching_up_beside.py a run that catches up beside a leader.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml

from docs.scan import ROOT
from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.soaking import rng
from tests.acceptance.standbys import KINDS, Doubles, Standbys, commits, warm_count
from tests.fixtures.foreign_spark import ForeignSpark
from tests.integration.servers import HOST, free_port

pytestmark = pytest.mark.timeout(900)
_DOCS = ROOT / "docs"
_LONGER_THAN_SILENCE_S = 3.0
_DAY_S = 86_400
_PER_PIPELINE = 20
"""So that a table's metadata does not grow beyond what is read in an instant."""


def test_a_standby_takes_over_from_a_leader_that_is_frozen_stands_down_or_is_killed(pipeline: Pipeline) -> None:
    pair = Standbys(pipeline)
    pair.produce()
    first = pair.start()
    pair.wait_for_commit(first, 0)
    second = pair.start()
    pair.wait_until_warm(2, first)
    assert commits(second) == 0

    with pair.load(1.0):
        with first.frozen(_LONGER_THAN_SILENCE_S):
            pair.wait_for_commit(second, 0)
        first.wait_for("tables_released")
        pair.wait_until_warm(2, second)

        before = commits(first)
        assert pipeline.command("stand-down")["leadership"]["elect"] == "kafka"
        pair.wait_for_commit(first, before)
        assert second.is_running
        pair.wait_until_warm(2, first)

        before = commits(second)
        first.kill()
        pair.wait_for_commit(second, before)
    pair.check()
    assert second.stop() == 0


@pytest.mark.slow
def test_a_run_until_caught_up_leaves_the_work_to_a_leader(pipeline: Pipeline) -> None:
    pair = Standbys(pipeline)
    pair.produce()
    leader = pair.start()
    pair.wait_for_commit(leader, 0)
    with pair.load():
        catching_up = pair.start("--until-caught-up")
        assert catching_up.wait() == 0, catching_up.tail()
        assert commits(catching_up) == 0
        assert not leader.seen("tables_released")
    pair.check()
    leader.kill()
    pair.produce()
    assert pair.start("--until-caught-up").wait() == 0
    pair.check()


@pytest.mark.slow
def test_tables_of_a_process_that_is_killed_go_to_the_two_others(pipeline: Pipeline) -> None:
    three = Standbys(pipeline, "spread", tables=6)
    three.produce()
    runs = [three.start() for _ in range(3)]
    with three.load(0.5):
        for run in runs:
            run.wait_for("batch_committed")
        victim = runs.pop()
        lost = {event["table"] for event in victim.seen("batch_committed")}
        before = {table: sum(len(run.seen("batch_committed", table=table)) for run in runs) for table in lost}
        victim.kill()
        for table in lost:
            runs[0].wait_while_running(
                lambda: sum(len(run.seen("batch_committed", table=table)) for run in runs) > before[table],  # noqa: B023
                f"{table} is committed again",
            )
        with runs[0].frozen(_LONGER_THAN_SILENCE_S):
            pass
    three.check()
    assert all(run.is_running for run in runs)


@pytest.mark.slow
def test_what_the_page_of_standbys_shows_works_as_it_is_written(pipeline: Pipeline) -> None:
    shown = (_DOCS / "operate/standby.md").read_text()
    [file], run, status, stand_down = _blocks(shown, "yaml"), *(words.split()[1:] for words in _blocks(shown, "sh"))
    assert run == ["run"]
    written = yaml.safe_load(file)
    pipeline.document |= {"ha": written["ha"], "tables": written["tables"], "http": {"listen": f"{HOST}:{free_port()}"}}
    _produce(pipeline)
    first = pipeline.run()
    first.wait_for("batch_committed")
    pipeline.document["http"] = False  # As with the default address, which the first process has.
    second = pipeline.run()
    asked = partial(_in_text, pipeline)
    first.wait_while_running(lambda: re.search(r"^standby .*, warm", asked(*status), re.MULTILINE), "a warm standby")
    pipeline.document["http"] = {"listen": first.seen("http_started")[0]["address"]}
    pipeline.command(*stand_down)
    _produce(pipeline)
    second.wait_for("batch_committed")
    first.wait_while_running(lambda: warm_count(pipeline) == 2, "the first process is warm")
    second.kill(second.pid)
    taken = len(first.seen("tables_taken"))
    _produce(pipeline)
    first.wait_for("tables_taken", count=taken + 1)
    address, pipeline.document["http"] = pipeline.document["http"], False
    again = pipeline.run()
    pipeline.document["http"] = address
    first.wait_while_running(lambda: warm_count(pipeline) == 2, "the killed process is there again")
    assert not again.seen("batch_committed")


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def _produce(pipeline: Pipeline) -> None:
    """Runs the script of the quickstart."""
    script = _blocks((_DOCS / "start/quickstart.md").read_text(), "python")[0].replace(
        "localhost:9092", pipeline.servers
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def _in_text(pipeline: Pipeline, *words: str) -> str:
    """What a command prints for people."""
    command = [sys.executable, "-m", "frazil.cli.main", *words, "-f", str(pipeline.folder / "frazil.yaml")]
    return subprocess.run(command, cwd=pipeline.folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_two_leaders_at_a_time_lose_and_double_nothing_and_do_not_take_turns(
    broker: EmbeddedBroker, spark: ForeignSpark, tmp_path: Path
) -> None:
    count, seed = int(os.environ.get("FRAZIL_DOUBLES", "200")), int(os.environ.get("FRAZIL_FIRST_SEED", "0"))
    kinds = list(KINDS)
    for first in range(0, count, _PER_PIPELINE):
        with opened(tmp_path / str(first), broker.bootstrap_servers, spark) as pipeline:
            pair = Doubles(pipeline)
            with pair.load():
                for number in range(first, min(count, first + _PER_PIPELINE)):
                    kind, of_day_s = kinds[rng(seed, number, len(kinds))], rng(seed, -number, 2 * _DAY_S) - _DAY_S
                    pair.force(kind, of_day_s)
                    sys.stderr.write(f"\n{number}: {kind}\n")
            pair.check()
            pair.check_order()
            pair.close()
