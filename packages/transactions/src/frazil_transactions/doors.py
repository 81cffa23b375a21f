"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.table_keys import TableKeyKind

ATOMIC = TableKeyKind("frazil_transactions.lookahead:Boundaries")
