"""Whether what was compiled fits a call."""

from subclass_aot.guards.guard import MISS as MISS
from subclass_aot.guards.guard import Call as Call
from subclass_aot.guards.guard import Reads as Reads
from subclass_aot.guards.guard import refusing_line as refusing_line
from subclass_aot.guards.guard import write_guarded as write_guarded
from subclass_aot.guards.modes import MODES as MODES
from subclass_aot.guards.modes import Modes as Modes
from subclass_aot.guards.modes import global_state as global_state
from subclass_aot.guards.recompile_reasons import changing_numbers as changing_numbers
from subclass_aot.guards.recompile_reasons import difference as difference
from subclass_aot.guards.recompile_reasons import facts as facts
from subclass_aot.guards.recompile_reasons import symbolic_places as symbolic_places
from subclass_aot.guards.recompile_reasons import unmet as unmet
from subclass_aot.guards.static_input_cache import StaticInputCache as StaticInputCache
