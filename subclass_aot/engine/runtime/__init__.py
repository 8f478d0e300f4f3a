"""Generates what runs at a call."""

from subclass_aot.engine.runtime.dense_program import write_dense_program as write_dense_program
from subclass_aot.engine.runtime.entry import CompiledGraphs as CompiledGraphs
from subclass_aot.engine.runtime.entry import Entry as Entry
from subclass_aot.engine.runtime.entry import make_entry as make_entry
from subclass_aot.engine.runtime.graphs import Graphs as Graphs
from subclass_aot.engine.runtime.graphs import PartitionFn as PartitionFn
from subclass_aot.engine.runtime.graphs import backward_inputs as backward_inputs
from subclass_aot.engine.runtime.graphs import split as split
from subclass_aot.engine.runtime.lazy import LazyFunction as LazyFunction
from subclass_aot.engine.runtime.structure import Structure as Structure
from subclass_aot.engine.runtime.unexpected_tangents import UnexpectedTangents as UnexpectedTangents
from subclass_aot.engine.runtime.value_checks import OtherValue as OtherValue
from subclass_aot.engine.runtime.value_checks import compiled_forward as compiled_forward
from subclass_aot.engine.runtime.value_history import ValueHistory as ValueHistory
