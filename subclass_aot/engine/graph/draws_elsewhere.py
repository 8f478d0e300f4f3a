"""Random numbers of Python and numpy in a trace: operators that draw from generators of these.

Note [Draws elsewhere]
~~~~~~~~~~~~~~~~~~~~~~
`random.random()` and `numpy.random.rand(3)` are operators in a graph as `torch.rand(3)` is: they draw when the graph
runs, in its order. A number that they give is a read of a value. One with a fraction is a symbol from the beginning, so
arithmetic with it serves all values; what steers the program (`if random.random() < p`) is compared at each call.

>>> import random
>>> import torch
>>> import subclass_aot as sa
>>> compiled = sa.aot_compile(lambda x: x * random.random())
>>> print(compiled.stages(torch.ones(3)).recorded)
def forward(self, primals_1: "f32[3]"):
    ...
    draw_elsewhere: "f64[]" = torch.ops.subclass_aot.draw_elsewhere.default('random.random', '((), {})', [], ...
    ...

What is drawn in another way, from a generator that the program holds say, is found by the state that the generator has
afterwards. Then the function itself runs.
"""

from __future__ import annotations

import ast
import functools
import random
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base.generators_elsewhere import OF_PYTHON
from subclass_aot.errors import OnlyInEagerModeError
from subclass_aot.meta import register_meta

_ANEW = """{call} makes a generator of random numbers from a seed that nobody has given.
  Your line:  {line}
  Instead: give it a seed, or make it outside the function"""

_STATE = """{call} reads or sets the state of a generator of random numbers that is not torch's.
  Your line:  {line}
  Instead: call it outside the function, or set a seed there"""

_FLOATS = """random uniform triangular gauss normalvariate lognormvariate expovariate vonmisesvariate gammavariate
    betavariate paretovariate weibullvariate""".split()
_INTEGERS = ("getrandbits", "randrange", "randint")
_OTHERS = ("choice", "choices", "sample", "shuffle")
"""Methods that draw by others of these, and give objects of the program."""

_OF_NUMPY = """beta binomial bytes chisquare choice dirichlet exponential f gamma geometric gumbel hypergeometric
    laplace logistic lognormal logseries multinomial multivariate_normal negative_binomial noncentral_chisquare
    noncentral_f normal pareto permutation poisson power rand randint randn random random_integers random_sample
    ranf rayleigh sample seed standard_cauchy standard_exponential standard_gamma standard_normal standard_t triangular
    uniform vonmises wald weibull zipf""".split()

_library = torch.library.Library("subclass_aot", "FRAGMENT")
_library.define(
    "draw_elsewhere(str method, str arguments, SymInt[] size, ScalarType dtype) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)


def _draw(method: str, arguments: str, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Draws, and gives the numbers as a tensor."""
    args, kwargs = ast.literal_eval(arguments)
    drawn = _original(method)(*args, **kwargs)
    return torch.as_tensor(0 if drawn is None else drawn, dtype=dtype, device="cpu")


def _shape(method: str, arguments: str, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(size, dtype=dtype, device="meta")


_library.impl("draw_elsewhere", _draw, "BackendSelect")
DRAW_ELSEWHERE: Any = torch.ops.subclass_aot.draw_elsewhere.default
"""Calls a function of `random` or `numpy.random`, given by its name, with literals as arguments."""

register_meta(DRAW_ELSEWHERE)(_shape)
torch.library.register_fake(
    "subclass_aot::draw_elsewhere",
    lambda method, arguments, size, dtype: torch.empty(size, dtype=dtype),
    lib=_library,
)


def _original(method: str) -> Callable[..., Any]:
    """Returns a method of the generator that belongs to the process, whatever stands in its module now."""
    module, _, name = method.rpartition(".")
    if module == "random":
        return getattr(OF_PYTHON, name)  # type: ignore[no-any-return]
    if name in ("ranf", "sample"):  # these are other names of it
        name = "random_sample"
    return getattr(sys.modules["numpy.random.mtrand"]._rand, name)  # type: ignore[no-any-return]


def _sample(method: str, args: Any, kwargs: Any) -> Any:
    """Returns what a call may give, drawn elsewhere."""
    module, _, name = method.rpartition(".")
    scratch: Any = random.Random(0) if module == "random" else sys.modules["numpy.random"].RandomState(0)
    return getattr(scratch, "random_sample" if name in ("ranf", "sample") and module != "random" else name)(
        *args, **kwargs
    )


def _plain(value: Any) -> Any:
    """Returns arguments whose text says what they are. Of a symbol it is a number.

    Raises:
        TypeError: They are something else.
    """
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, torch.SymFloat):
        return float(value)
    if value is None or type(value) in (int, bool, str) or type(value) is float and abs(value) < float("inf"):
        return value
    if type(value) in (tuple, list, torch.Size):
        parts = [_plain(part) for part in value]
        return parts if type(value) is list else tuple(parts)
    if type(value) is dict:
        return {name: _plain(part) for name, part in value.items()}
    raise TypeError


def _call(method: str, *args: Any, **kwargs: Any) -> Any:
    """Stands for a function of `random` or `numpy.random`, also where a program keeps it when the trace is over."""
    if not _is_recording():
        return _call_as_it_is(method, *args, **kwargs)
    try:
        args, kwargs = _plain((args, kwargs))
    except TypeError:
        return _call_as_it_is(method, *args, **kwargs)
    with _torch.dispatch.disable_current_modes():
        found = _sample(method, args, kwargs)
        size: list[int] = []
        is_array = hasattr(found, "dtype") and hasattr(found, "tobytes") and getattr(found, "ndim", 0) > 0
        if found is None or type(found) is int and abs(found) < 1 << 62:
            dtype = torch.int64
        elif type(found) is float:
            dtype = torch.float64
        elif is_array and found.dtype.kind in "fiub":
            dtype, size = torch.from_numpy(found).dtype, list(found.shape)
        else:
            return _call_as_it_is(method, *args, **kwargs)
    drawn = DRAW_ELSEWHERE(method, repr((args, kwargs)), size, dtype)
    return None if found is None else drawn.numpy() if is_array else drawn.item()


def _call_as_it_is(method: str, *args: Any, **kwargs: Any) -> Any:
    """Stands for a function that no graph can call: draws, and notes the line."""
    trace = _torch.generator.trace_in_this_thread()
    if trace is not None:
        trace.note_line()
    return _original(method)(*args, **kwargs)


def _is_recording() -> bool:
    """Returns whether the program runs that is traced in this thread, and may read values."""
    trace = _torch.generator.trace_in_this_thread()
    return trace is not None and trace.is_recording()


def _refuse_state(method: str, original: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """Stands for a function that reads or sets the state of a generator.

    Raises:
        OnlyInEagerModeError: The program that is traced calls it.
    """
    if _is_recording():
        raise OnlyInEagerModeError(_STATE.format(call=f"{method}()", line=user_line()))
    return original(*args, **kwargs)


def _default_rng(original: Callable[..., Any], seed: Any = None) -> Any:
    """Stands for `numpy.random.default_rng`.

    Raises:
        OnlyInEagerModeError: The program that is traced calls it without a seed.
    """
    if seed is None and _is_recording():
        raise OnlyInEagerModeError(_ANEW.format(call="numpy.random.default_rng()", line=user_line()))
    return original(seed)


class _Recorded(random.Random):
    """A generator whose methods draw as those of `random` do, by way of a graph."""

    def _randbelow(self, n: int) -> Any:
        return _call("random.randrange", n)


def _method(name: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: _call(f"random.{name}", *args, **kwargs)


for _name in (*_FLOATS, *_INTEGERS, "seed"):
    setattr(_Recorded, _name, _method(_name))


def stand_ins_elsewhere() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yields what stands in `random` and `numpy.random` in a trace, by name.

    What a program has put in the place of a function stays there.
    """
    for module in filter(None, (random, sys.modules.get("numpy.random"))):
        there = vars(module)
        yield there, {name: each for name, (each, own) in _stand_ins(module).items() if there.get(name) == own}


@functools.cache
def _stand_ins(module: types.ModuleType) -> dict[str, tuple[Any, Any]]:
    """Returns what stands in a module in a trace, by name, each with what it stands for."""
    owner: Any = OF_PYTHON
    if module is random:
        stand_in = random.Random.__new__(_Recorded)
        found = {name: getattr(stand_in, name) for name in (*_FLOATS, *_INTEGERS, *_OTHERS, "seed")}
        states = "getstate", "setstate"
    else:
        found = {name: partial(_call, f"numpy.random.{name}") for name in _OF_NUMPY}
        found["shuffle"] = partial(_call_as_it_is, "numpy.random.shuffle")
        owner, states = sys.modules["numpy.random.mtrand"], ("get_state", "set_state")
    for name in states:
        found[name] = partial(_refuse_state, f"{module.__name__}.{name}", getattr(owner, name))
    pairs = {name: (each, getattr(owner, name, None)) for name, each in found.items()}
    generator = sys.modules.get("numpy.random._generator")
    if module is not random and generator is not None:
        pairs["default_rng"] = partial(_default_rng, generator.default_rng), generator.default_rng
    return pairs
