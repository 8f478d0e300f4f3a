"""Private names of torch, each with the reason it is needed and what to do when it goes.

No other room of this package touches a name of torch that starts with an underscore. Each file here has one subject.
"""

from subclass_aot._torch import (
    aotautograd,
    autograd,
    collectives,
    cuda,
    dispatch,
    dynamo,
    expressions,
    fake_kernels,
    generator,
    graphs,
    higher_order,
    inductor,
    logs,
    modes,
    modules,
    named_operators,
    operators,
    plain_subclasses,
    python_kernels,
    switches,
    symbolic,
    wrappers,
)

__all__ = [
    "aotautograd",
    "autograd",
    "collectives",
    "cuda",
    "dispatch",
    "dynamo",
    "expressions",
    "fake_kernels",
    "generator",
    "graphs",
    "higher_order",
    "inductor",
    "logs",
    "modes",
    "modules",
    "named_operators",
    "operators",
    "plain_subclasses",
    "python_kernels",
    "switches",
    "symbolic",
    "wrappers",
]
