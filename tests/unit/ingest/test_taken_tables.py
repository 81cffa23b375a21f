"""Tables that a process has just taken go before its own, wait for no job that it had begun, and for no Kafka client."""

from __future__ import annotations

from pathlib import Path

from frazil.ingest.loop.service import Service
from tests.unit.ingest.leaders import Script
from tests.unit.ingest.service_scene import HandWorkers, Scene, turn_until


class Taking:
    """A process that owns `n.a`, beside one that owns `n.b`; both topics have a record that no table has."""

    def __init__(self, root: Path, *owned: str) -> None:
        self.scene, self.script = Scene(root, "a", "b"), Script()
        self._feed(1)
        self.scene.catch_up()
        self.hand = HandWorkers(self.scene.clock)
        self.script.owners = {name: "run-0002" if name in owned else "run-0009" for name in ("n.a", "n.b")}
        self.process: Service = self.scene.start(workers=self.hand, script=self.script)
        self.process.turn()
        self._feed(2)

    def _feed(self, value: int) -> None:
        for topic in self.scene.topics:
            self.scene.feed(topic, {"x": value})

    def take(self, *tables: str) -> None:
        """The other process is gone."""
        for table in tables:
            self.script.owners[table] = "run-0002"

    def waits_for(self, *work: tuple[str, tuple[str, ...]]) -> bool:
        """Whether just this work is begun within a few turns."""
        turn_until(self.process, lambda: self.hand.waiting == list(work), turns=10)
        return self.hand.waiting == list(work)


def test_tables_that_are_taken_together_are_read_in_one_job(tmp_path: Path) -> None:
    """Their commits are late already, and each job takes half a second."""
    one = Taking(tmp_path)
    assert one.waits_for(("warm-up", ("n.a",)))
    one.take("n.a", "n.b")
    assert one.waits_for(("warm-up", ("n.a",)), ("taken", ("n.a", "n.b")))


def test_tables_of_its_own_wait_for_those_that_were_just_taken(tmp_path: Path) -> None:
    """Which have had no process for a while: both together would take twice as long."""
    one = Taking(tmp_path, "n.a")
    one.take("n.b")
    assert one.waits_for(("taken", ("n.b",)))
    one.hand.do("taken", "n.b")
    assert one.waits_for(("commit", ("n.b",)))
    one.process.turn()
    assert one.hand.waiting == [("commit", ("n.b",))]
    one.hand.do("commit", "n.b")
    assert one.waits_for(("small", ("n.a",)))


def test_tables_that_were_just_taken_do_not_wait_for_a_job_that_has_begun(tmp_path: Path) -> None:
    one = Taking(tmp_path, "n.a")
    assert one.waits_for(("small", ("n.a",)))
    one.take("n.b")
    assert one.waits_for(("small", ("n.a",)), ("taken", ("n.b",)))


def test_a_taken_table_that_hangs_delays_no_other_for_long(tmp_path: Path) -> None:
    one = Taking(tmp_path, "n.a")
    one.take("n.b")
    assert one.waits_for(("taken", ("n.b",)))
    one.hand.do("taken", "n.b")
    began_s = one.scene.clock.monotonic_s()
    assert turn_until(one.process, lambda: ("small", ("n.a",)) in one.hand.waiting)
    assert one.scene.clock.monotonic_s() - began_s < 3
