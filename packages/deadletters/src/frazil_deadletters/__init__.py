"""Dead letters for people: listed, shown, replayed into their tables, dropped."""
