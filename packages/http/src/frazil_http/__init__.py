"""The HTTP service of `frazil run`: health, metrics and the API."""
