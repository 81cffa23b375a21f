"""What records become, by plain Python rules after the documentation: a second opinion that shares no code with Frazil."""
