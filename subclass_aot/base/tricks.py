"""The places where this library reaches into the interpreter, or puts something of its own into torch's classes.

Each may break with another Python or torch, or get in the way of a tool. So all are in one list, with their reasons; a
test finds those that are not. Most can be switched off, by name, in the environment:
`SUBCLASS_AOT_WITHOUT=gc.freeze,sys.settrace`. Then results are the same, and what is lost is said here. Where one has
no switch, results would be wrong without it.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple


class Trick(NamedTuple):
    """A place where the library reaches into the interpreter.

    Attributes:
        name: What switches it off.
        where: The files that have it, in the package.
        why: What it is for.
        without: What happens when it is off; "" if it cannot be.
    """

    name: str
    where: tuple[str, ...]
    why: str
    without: str = ""


TRICKS: Final = (
    Trick(
        "bytecode",
        ("base/bytecode.py",),
        "tells what a small function reads and writes, so that it need not be called each time",
        "such functions are called each time, and arguments and lists of closures count as read",
    ),
    Trick(
        "gc.freeze",
        ("engine/outcome/older_objects.py",),
        "tells which objects are new in a trace, without a list of all objects of the process",
        "such a list is made at each trace that asks, which takes longer the more objects there are",
    ),
    Trick(
        "sys.setprofile",
        ("kit/flatten/watch.py", "engine/trace/backward_outcome.py"),
        "watches the constructor of a foreign class once, so that later ones are made without it; and hooks in a trace",
        "the constructor runs for each wrapper; hooks are watched as ever, unless a profiler is on",
    ),
    Trick(
        "sys.settrace",
        ("engine/guards/guard.py",),
        "finds the line of a guard that refuses the call it was made for, for the text of an error",
        "the error does not name the line",
    ),
    Trick(
        "weak graphs",
        ("base/_torch/graphs.py",),
        "gives a graph another class, so that it is freed with its module and not by the collector",
        "graphs are freed when the collector runs",
    ),
    Trick(
        "callable module",
        ("meta/__init__.py",),
        "lets `sa.meta` be a module and a function, by another class of the module",
        "`sa.meta.meta` is the function",
    ),
    Trick(
        "SymInt",
        ("subjects/numbers/text.py", "subjects/numbers/classes.py"),
        "gives symbolic numbers other `str`, `hash` and `__class__` in a trace: texts and branches are eager mode's",
    ),
    Trick(
        "imports",
        ("base/_torch/postponed.py", "base/_torch/dynamo.py"),
        "puts modules in the place of sympy, the solver and Dynamo while rules of torch run, which hardly need them",
    ),
    Trick(
        "math",
        ("subjects/numbers/functions.py",),
        "replaces `math.sqrt` and `math.log2` in a trace, and gives symbols `divmod`: one compilation serves all sizes",
    ),
    Trick(
        "calls of int",
        ("subjects/numbers/calls.py",),
        "gives functions that call `int`, `float` or `range` on a size other code in a trace, which takes symbols",
        "such a number is read, and each is compiled for",
    ),
    Trick(
        "symbol nodes",
        ("base/_torch/symbol_nodes.py",),
        "gives nodes behind symbolic numbers another class, which keeps what sympy has computed: torch makes them in "
        "many places, and none takes a class",
    ),
    Trick(
        "numbers",
        ("subjects/numbers/methods.py", "subjects/numbers/domains.py"),
        "gives symbols `__array__`, another `==`, `round` and `float`, and `json` its encoder in Python, in a trace: "
        "numpy, enums and texts of json get the numbers",
    ),
    Trick(
        "type",
        ("base/shown_type.py",),
        "gives modules of programs other `type`, `isinstance` and `len` in a trace: it takes eager mode's branches",
    ),
    Trick(
        "storage handles",
        ("meta/storage.py",),
        "gives the storage of a tensor without data another class: it has a size and no memory",
    ),
    Trick(
        "layers of caches",
        ("files/caches.py",),
        "gives layers of a cache of transformers another class, so that its states are quantized where they lie",
    ),
    Trick(
        "attributes of classes",
        ("engine/runtime/reads.py", "engine/tables/of_thread.py", "base/missing.py", "engine/call/undone.py"),
        "puts descriptors on classes in a trace, so that other threads find a model as it is and reads are noted; "
        "gives a module its class back where a trace fails",
    ),
    Trick(
        "functions of torch",
        ("base/_torch/generator.py", "base/_torch/dispatch.py", "base/_torch/switches.py"),
        "replaces functions of `torch.random` in a trace, and sets flags of torch, which a signal must not leave set",
    ),
    Trick(
        "frames and references",
        ("engine/outcome/leaks.py", "base/lru_caches.py", "base/left_alone.py", "base/_torch/autograd.py"),
        "counts references, and reads the variables of running functions: a traced tensor must not outlive its trace",
    ),
    Trick(
        "earlier names",
        ("base/moved.py",),
        "has imports of modules by their names in version 0.1 find the modules of today: pickles have these names",
    ),
)

_SAID: Final = os.environ.get("SUBCLASS_AOT_WITHOUT", "")

_UNKNOWN = "SUBCLASS_AOT_WITHOUT={said}: {name!r} cannot be switched off; give some of {names}, with commas between"


def _without(said: str) -> frozenset[str]:
    names = [trick.name for trick in TRICKS if trick.without]
    found = frozenset(name.strip() for name in said.split(",")) - {""}
    for name in sorted(found.difference(names)):
        raise ImportError(_UNKNOWN.format(said=said, name=name, names=", ".join(names)))
    return found


OFF: frozenset[str] = _without(_SAID)
"""Those that are switched off in this process."""


def is_on(name: str) -> bool:
    """Returns whether a trick is used in this process.

    >>> is_on("gc.freeze") or "gc.freeze" in OFF
    True
    """
    return name not in OFF
