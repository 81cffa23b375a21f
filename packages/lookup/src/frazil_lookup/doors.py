"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.driver import TableKeyKind

LOOKUP = TableKeyKind("frazil_lookup.references:References", wait="frazil_lookup.waiting:open_waits")
