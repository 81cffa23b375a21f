"""What the commands find out and decide, without printing: checks, plans, status, maintenance and dead letters."""
