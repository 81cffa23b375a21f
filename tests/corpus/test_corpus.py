"""A slice of the corpus is as it was frozen; `make corpus` compares all of it."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.corpus.answers import answer_of, difference, played, read_answers
from tests.corpus.cases import CASES, SLICE


@pytest.fixture(scope="module")
def frozen() -> dict[str, list[str]]:
    """The frozen answers."""
    return read_answers()


@pytest.mark.parametrize("case", SLICE)
def test_a_case_is_as_it_was_frozen(frozen: dict[str, list[str]], case: str) -> None:
    with capture_logs():
        present = answer_of(played(case))
    found = difference(frozen[case], present)
    assert not found, f"{case} differs; `make corpus CASES={case}` shows the rows:\n" + "\n".join(found)


def test_every_case_is_frozen_and_every_frozen_case_is_played(frozen: dict[str, list[str]]) -> None:
    assert sorted(frozen) == sorted(CASES)
