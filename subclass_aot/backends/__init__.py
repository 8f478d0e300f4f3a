"""The compilers "eager" and "inductor", and compilers as AOTAutograd has them. They register as anybody's may."""

from subclass_aot.backends import callables as callables
from subclass_aot.backends import eager as eager
from subclass_aot.backends import partitioners as partitioners
from subclass_aot.backends.by_inductor import inductor as inductor
from subclass_aot.engine.compilers import Backend as Backend
