"""Values that a program reads: what the trace gets of a call, and the checks at later ones. Numbers of data, too."""

import subclass_aot.subjects.value_reads.checks  # noqa: F401  # which fills the places
from subclass_aot.engine.graph import LISTENERS
from subclass_aot.subjects.value_reads.listener import DataDependent

LISTENERS["data_dependent"] = DataDependent
