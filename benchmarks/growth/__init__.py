"""How costs grow: rows of the main table, and `python -m benchmarks.growth`, a table of exponents."""

from benchmarks.growth.rows import run as run
