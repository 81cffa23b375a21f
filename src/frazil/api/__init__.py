"""The Python API: what `frazil.load` returns, and what the commands call. It returns values and prints nothing.

Below it, `wiring.py` connects the services of a process.
"""
