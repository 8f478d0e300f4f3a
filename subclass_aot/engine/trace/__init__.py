"""The joint trace of forward and backward."""

from subclass_aot.engine.trace.attempt import Attempt as Attempt
from subclass_aot.engine.trace.handlers import handlers_run as handlers_run
from subclass_aot.engine.trace.inputs import TracedInputs as TracedInputs
from subclass_aot.engine.trace.joint import JointTrace as JointTrace
from subclass_aot.engine.trace.raised import RunsItself as RunsItself
from subclass_aot.engine.trace.raised import is_of_function as is_of_function
from subclass_aot.engine.trace.threads import is_tracing as is_tracing
from subclass_aot.engine.trace.threads import one_at_a_time as one_at_a_time
from subclass_aot.engine.trace.trace import specialize as specialize
from subclass_aot.engine.trace.trace import trace_arguments as trace_arguments
