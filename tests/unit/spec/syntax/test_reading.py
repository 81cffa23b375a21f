"""What messages call the parts of the pipeline file."""

from __future__ import annotations

import weakref
from pathlib import Path

from frazil.secrets import Secrets
from frazil.spec.syntax.document import Section
from frazil.spec.syntax.reading import Reading


class _Watched(Section):
    """A section that can be referred to weakly."""


def test_the_name_of_a_part_is_never_that_of_another_part_in_its_memory() -> None:
    reading = Reading(Path("frazil.yaml"), Secrets({}), {})
    part = _Watched({}, 1, {})
    kept = weakref.ref(part)
    reading.own(part, "table `shop.orders`")
    del part
    assert kept() is not None
