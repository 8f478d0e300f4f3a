"""Generators of random numbers that a program has of its own."""

from subclass_aot.engine.graph import LISTENERS
from subclass_aot.subjects.own_generators.listener import OwnGenerators

LISTENERS["own_generators"] = OwnGenerators
