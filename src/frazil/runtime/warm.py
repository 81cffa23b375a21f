"""`python -m frazil.runtime.warm`: fetches every jar, those of the tests too, so that nothing later needs a network."""

from __future__ import annotations

import sys

from frazil.runtime.jars import USES, jars


def fetch_all() -> None:
    """Fills the cache; says on standard error what it is at, as the first time takes a minute or two."""
    for use in USES:
        sys.stderr.write(f"jars for {use}: ")
        sys.stderr.flush()
        sys.stderr.write(f"{len(jars(use))}\n")


if __name__ == "__main__":
    fetch_all()
