"""Inputs of a call: arguments, objects, sizes, aliasing; and what it leaves behind in objects."""

from subclass_aot.engine.call.arguments import Arguments as Arguments
from subclass_aot.engine.call.arguments import passed_twice as passed_twice
from subclass_aot.engine.call.data_access import reads_are_refused as reads_are_refused
from subclass_aot.engine.call.data_access import refuse_without_memory as refuse_without_memory
from subclass_aot.engine.call.parallel import refuse_parallel_method as refuse_parallel_method
from subclass_aot.engine.call.places import ArgumentPlace as ArgumentPlace
from subclass_aot.engine.call.places import HeldPlace as HeldPlace
from subclass_aot.engine.call.places import ModulePlace as ModulePlace
from subclass_aot.engine.call.places import Place as Place
from subclass_aot.engine.call.pytree import flatten as flatten
from subclass_aot.engine.call.recorded_call import AUTOCAST_DEVICES as AUTOCAST_DEVICES
from subclass_aot.engine.call.recorded_call import RecordedCall as RecordedCall
from subclass_aot.engine.call.static_inputs import mark_static_address as mark_static_address
from subclass_aot.engine.call.static_inputs import static_values as static_values
