"""A steady feed beside a running subject: how many cores the subject used while the measured records arrived."""

from __future__ import annotations

from bench.machine import CLOCK
from bench.place import Surroundings
from bench.running import Running
from bench.topics import Fed, Feed, Feeder


def feed_steadily(running: Running, feed: Feed, around: Surroundings) -> tuple[Fed, float]:
    """Feeds to the end; what was fed, and the cores that the subject used after the warm-up."""
    feeder = Feeder(feed)
    try:
        feeder.wait_until_measuring()
        around.start()
        began_cpu, began_s = running.sampler.sample(), CLOCK.monotonic_s()
        while not feeder.is_done(0.5):
            running.check()
        used = running.sampler.sample() - began_cpu
        wall = CLOCK.monotonic_s() - began_s
    except BaseException:
        feeder.kill()
        raise
    return feeder.finish(), round(used / wall, 3)
