"""What the catalog last returned about a table, besides its state. Times are of the monotonic clock, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.catalog.port import TableSize


@dataclass
class CatalogState:
    """How recent and complete the catalog's answers about a table are."""

    #: Whether the table's state may be used; otherwise it is loaded before the next batch.
    is_loaded: bool = False
    #: When the table's state was last known to be current.
    loaded_at_s: float = 0.0
    #: When the table was last requested from the catalog.
    asked_at_s: float = float("-inf")
    #: The table's size after the newest commit; None before it is known.
    size: TableSize | None = None
    #: Rows of the dead-letter table, as last counted.
    dead_letter_count: int = 0
