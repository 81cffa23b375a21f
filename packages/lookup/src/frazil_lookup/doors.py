"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.table_keys import TableKeyKind

LOOKUP = TableKeyKind("frazil_lookup.references:References", wait="frazil_lookup.waiting:open_waits")
