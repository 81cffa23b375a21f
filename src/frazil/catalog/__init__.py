"""The catalog: its ports, the tables of Iceberg behind them, and what Frazil stores in a table's metadata."""
