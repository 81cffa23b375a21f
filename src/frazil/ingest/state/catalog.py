"""What the catalog last answered about a table, besides its state. Times are of the monotonic clock, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.catalog.port import TableSize


@dataclass
class CatalogState:
    """How well the catalog's table is known."""

    is_loaded: bool = False
    #: When the table's state was last known to be true, and when the catalog was last asked for it.
    loaded_at_s: float = 0.0
    asked_at_s: float = float("-inf")
    size: TableSize | None = None
    #: Rows of the dead-letter table, as last seen.
    dead_letter_count: int = 0
