"""What runs at a call: guards, generated entries, the autograd function, compilers."""

from subclass_aot.runtime.backends import BACKENDS as BACKENDS
from subclass_aot.runtime.backends import Backend as Backend
from subclass_aot.runtime.backends import Compiler as Compiler
from subclass_aot.runtime.backends import compiled as compiled
from subclass_aot.runtime.backends import example_inputs as example_inputs
from subclass_aot.runtime.backends import resolve as resolve
from subclass_aot.runtime.describe import changing_numbers as changing_numbers
from subclass_aot.runtime.describe import difference as difference
from subclass_aot.runtime.describe import facts as facts
from subclass_aot.runtime.describe import symbolic_places as symbolic_places
from subclass_aot.runtime.describe import unmet as unmet
from subclass_aot.runtime.entry import Entry as Entry
from subclass_aot.runtime.entry import make_entry as make_entry
from subclass_aot.runtime.finish import Finish as Finish
from subclass_aot.runtime.finish import write_finish as write_finish
from subclass_aot.runtime.graphs import Graphs as Graphs
from subclass_aot.runtime.graphs import PartitionFn as PartitionFn
from subclass_aot.runtime.graphs import backward_inputs as backward_inputs
from subclass_aot.runtime.graphs import split as split
from subclass_aot.runtime.guards import global_state as global_state
from subclass_aot.runtime.guards import make_guard as make_guard
from subclass_aot.runtime.guards import refusing_line as refusing_line
from subclass_aot.runtime.history import SizeHistory as SizeHistory
from subclass_aot.runtime.lazy import LazyFunction as LazyFunction
from subclass_aot.runtime.other_tangents import OtherTangents as OtherTangents
from subclass_aot.runtime.twice import Twice as Twice
