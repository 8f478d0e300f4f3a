"""Guards: whether what was compiled fits a call."""

from subclass_aot.engine.guards.changing_numbers import ChangingNumbers as ChangingNumbers
from subclass_aot.engine.guards.guard import MISS as MISS
from subclass_aot.engine.guards.guard import GuardedFunction as GuardedFunction
from subclass_aot.engine.guards.guard import GuardOptions as GuardOptions
from subclass_aot.engine.guards.guard import Reads as Reads
from subclass_aot.engine.guards.guard import refusing_line as refusing_line
from subclass_aot.engine.guards.guard import write_guarded as write_guarded
from subclass_aot.engine.guards.static_input_cache import StaticInputCache as StaticInputCache
from subclass_aot.engine.guards.structure import is_plain as is_plain
