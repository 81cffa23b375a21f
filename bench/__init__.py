"""Benchmarks of Frazil beside its peers, on one broker, over the same topics: `python -m bench --help`.

Not part of the package that users install. A figure is only as good as the machine was quiet, so every run records what
other processes used.
"""
