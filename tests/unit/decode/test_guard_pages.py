"""Damaged records between pages that nobody may touch, next to a reading by other code: a slice of seeds in the suite, a
quarter of a million records of each format as soak (`make soak-guard`). FRAZIL_RECORDS chooses another number.
"""

from __future__ import annotations

import logging
import multiprocessing
import os

import pytest

from tests.fixtures.chance import Chance
from tests.unit.decode.guard_pages import CASES, FORMATS, REFUSED, guarded_array, strike

_LOT = 16
_RECORDS = int(os.environ.get("FRAZIL_RECORDS", "250000"))


def _strike(name: str, first_seed: int, records: int) -> tuple[int, int]:
    one = FORMATS[name]()
    lots = -(-records // _LOT)
    return lots * _LOT, sum(strike(one, Chance(first_seed + lot), _LOT) for lot in range(lots))


@pytest.mark.parametrize("name", CASES)
def test_good_records_are_rows_as_other_code_reads_them(name: str) -> None:
    one = FORMATS[name]()
    found = one.read(one.values)
    assert found == [one.reference(value) for value in one.values]
    assert REFUSED not in found or name == "json"


@pytest.mark.parametrize("name", CASES)
def test_damaged_records_are_read_within_their_bytes_as_other_code_reads_them(name: str) -> None:
    count, rows = _strike(name, 0, 640)
    assert 0 < rows < count


def test_the_page_behind_records_kills() -> None:
    process = multiprocessing.get_context("fork").Process(target=_read_too_far)
    process.start()
    process.join()
    assert process.exitcode == -11


def _read_too_far() -> None:
    array, memory = guarded_array([b"abc"])
    _ = int(memory.buffer[memory.ends[0]]) + len(array)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", CASES)
def test_damaged_records_read_no_foreign_memory_in_a_quarter_of_a_million(name: str) -> None:
    count, rows = _strike(name, 1_000_000, _RECORDS)
    logging.getLogger(__name__).warning("%s: %d records, %d rows, 0 differences", name, count, rows)
    assert 0 < rows < count
