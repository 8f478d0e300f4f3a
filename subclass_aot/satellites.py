"""Which satellite defines what the layers below use: it is imported at the first use. See `later.py`."""

from subclass_aot.compilers import BACKENDS, of_callable
from subclass_aot.wrapper import SERVED, gather

_BACKENDS, _RANKS = "subclass_aot.backends", "subclass_aot.ranks"

for _name in ("eager", "inductor"):
    BACKENDS.promise(_name, _BACKENDS)
of_callable.promise(_BACKENDS)

for _namespace in ("c10d", "_c10d_functional", "fsdp"):
    SERVED.promise(_namespace, _RANKS)
gather.before.promise(_RANKS)
gather.after.promise(_RANKS)
