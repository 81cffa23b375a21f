"""What the commands find out and decide, without printing: checks, plans, status, lineage and maintenance."""
