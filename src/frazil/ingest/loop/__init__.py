"""The loop: one thread that decides for all tables of a process, and when they are loaded, taken over and stopped."""
