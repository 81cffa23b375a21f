"""Memory that is free is given back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import numpy as np
from frazil.files import release_memory
def resident_bytes():
    with open("/proc/self/statm") as counters:
        return int(counters.read().split()[1]) * 4096
blocks = [np.ones(64_000, np.uint8) for _ in range(3000)]
last = np.ones(64_000, np.uint8)
del blocks
before = resident_bytes()
release_memory()
print(before - resident_bytes(), last.size)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a matter of glibc")
def test_what_lies_free_below_memory_that_is_in_use_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True)
    assert int(done.stdout.split()[0]) > 150_000_000
