"""Values that a program reads, and numbers that depend on data."""

from subclass_aot.engine.graph import LISTENERS
from subclass_aot.subjects.value_reads.listener import DataDependent

LISTENERS["data_dependent"] = DataDependent
