"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.driver import TableKeyKind

ATOMIC = TableKeyKind("frazil_transactions.lookahead:Boundaries")
