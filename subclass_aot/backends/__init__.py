"""Compilers of dense graphs."""

from subclass_aot.backends.fakes import Fakes as Fakes
from subclass_aot.backends.fakes import fake_of as fake_of
from subclass_aot.backends.fakes import solver_of as solver_of
from subclass_aot.backends.registry import BACKENDS as BACKENDS
from subclass_aot.backends.registry import Artifacts as Artifacts
from subclass_aot.backends.registry import Backend as Backend
from subclass_aot.backends.registry import BoxedFunction as BoxedFunction
from subclass_aot.backends.registry import Compiler as Compiler
from subclass_aot.backends.registry import compiled as compiled
from subclass_aot.backends.registry import example_inputs as example_inputs
from subclass_aot.backends.registry import inductor as inductor
from subclass_aot.backends.registry import resolve as resolve
from subclass_aot.backends.registry import without_autocast as without_autocast
