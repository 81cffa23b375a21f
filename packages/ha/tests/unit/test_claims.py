"""Claims as electors keep them: another version may have written one."""

from __future__ import annotations

import json

import pytest

from frazil_ha.elector import Claim, read_claim

_CLAIM = Claim("one", "127.0.0.1:7000", "key", 1_790_000_000_000, "start", 7, ("a.t in lake",))


def test_a_claim_is_read_as_it_was_written() -> None:
    assert read_claim(_CLAIM.text(), 7) == _CLAIM


def test_a_claim_of_a_newer_version_is_read_without_what_that_has_added() -> None:
    """Else a process of this version would take an older claim for the newest, and claim after it."""
    newer = json.dumps({**json.loads(_CLAIM.text()), "region": "north", "number": 3})
    assert read_claim(newer, 7) == _CLAIM


@pytest.mark.parametrize("text", ["", "hello", "7", "[1]", "{}", '{"name": "one"}'])
def test_another_text_is_no_claim(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_claim(text, 0)
