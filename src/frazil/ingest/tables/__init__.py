"""One table: what is known of it, what it is declared to be, and what tasks must know of it."""
