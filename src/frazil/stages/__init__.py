"""Stages of a table: what each is asked by the driver and by tasks, and the changes that pass them."""
