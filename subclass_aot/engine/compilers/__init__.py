"""What compiles dense graphs: the protocol, and what compilers of others get. Compilers themselves are `backends/`."""

from subclass_aot.engine.compilers.compilers import BACKENDS as BACKENDS
from subclass_aot.engine.compilers.compilers import STRIDES as STRIDES
from subclass_aot.engine.compilers.compilers import Artifacts as Artifacts
from subclass_aot.engine.compilers.compilers import Backend as Backend
from subclass_aot.engine.compilers.compilers import BoxedFunction as BoxedFunction
from subclass_aot.engine.compilers.compilers import Compiler as Compiler
from subclass_aot.engine.compilers.compilers import compiled as compiled
from subclass_aot.engine.compilers.compilers import example_inputs as example_inputs
from subclass_aot.engine.compilers.compilers import of_callable as of_callable
from subclass_aot.engine.compilers.compilers import of_partitioner as of_partitioner
from subclass_aot.engine.compilers.compilers import resolve as resolve
from subclass_aot.engine.compilers.compilers import without_autocast as without_autocast
from subclass_aot.engine.compilers.fakes import Fakes as Fakes
from subclass_aot.engine.compilers.fakes import fake_of as fake_of
from subclass_aot.engine.compilers.fakes import solver_of as solver_of
