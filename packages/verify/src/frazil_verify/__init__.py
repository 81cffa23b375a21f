"""Tables compared with their topics: by a command, and newest commits on a schedule."""
