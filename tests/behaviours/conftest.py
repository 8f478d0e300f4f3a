"""What the tests of "What compiles, and how" share: kinds of wrappers, compilers, and the comparison with eager.

A test that takes `kind` runs for each of KINDS. `@pytest.mark.unfit(two="why")` leaves one out, where what the test
shows cannot be said of that class. A test that takes `agree` runs with the compiler "eager", with symbolic sizes too
("symbolic"), and with "inductor" for the kinds that `@pytest.mark.inductor("two")` names. `make test` runs each kind
with one of the first two, and each of these for two kinds; `make test-all` runs all.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import Outer, WrapperTensor, aot_compile
from subclass_aot.testing import difference, sharing

aten: Any = torch.ops.aten


class Affine(WrapperTensor, views="broadcast"):
    """Stands for `(codes * scale + shift) * gain`; what multiplies or adds numbers leaves the codes alone."""

    codes: torch.Tensor  # float32[M, N]
    scale: torch.Tensor  # float64[M, 1]
    shift: torch.Tensor | None = None  # float64[M, 1]
    gain: int = 1

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=torch.float64)

    def to_plain(self) -> torch.Tensor:
        plain = self.codes * self.scale
        return (plain if self.shift is None else plain + self.shift) * self.gain

    def from_plain(self, plain: torch.Tensor) -> Affine:
        codes = (plain / self.gain).to(torch.float32)
        shift = None if self.shift is None else torch.zeros_like(self.shift)
        return Affine(codes, torch.ones_like(self.scale), shift, self.gain)


@Affine.implements(aten.mul.Tensor)
def _(x: Any, y: Any) -> Any:
    if not isinstance(x, Affine) or isinstance(y, torch.Tensor):
        return NotImplemented
    return Affine(x.codes.clone(), x.scale * y, None if x.shift is None else x.shift * y, x.gain)


@Affine.implements(aten.mul_.Tensor)
def _(x: Any, y: Any) -> Any:
    if not isinstance(x, Affine) or isinstance(y, torch.Tensor):
        return NotImplemented
    x.scale.mul_(y)
    if x.shift is not None:
        x.shift.mul_(y)
    return x


@dataclass(frozen=True)
class Kind:
    """A class of wrappers.

    Attributes:
        name: What tests call it.
        built: Makes one of its dense leaves, in order.
        paths: Where the leaves are.
        dtypes: Their dtypes; one of float64 has a single column.
        main: The position of a leaf that `mul_` writes.
    """

    name: str
    built: Callable[..., Any]
    paths: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    main: int

    def __call__(self, *size: int, grad: bool = False, seed: int = 0) -> Any:
        """One with random values; the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        leaves = []
        for dtype in self.dtypes:
            own_size = (*size[:-1], 1) if dtype is torch.float64 else size
            leaves.append(torch.rand(own_size, generator=generator, dtype=dtype) + 0.5)
        return self.built(*leaves).requires_grad_(grad)

    def non_leaf(self, *size: int, seed: int = 0) -> Any:
        """One that is computed from its attribute `root`, a leaf of autograd's graph."""
        root = self(*size, grad=True, seed=seed)
        result = root * 1
        result.root = root
        return result

    def leaves(self, wrapper: Any) -> list[torch.Tensor]:
        """Its dense leaves."""
        return [operator.attrgetter(path)(wrapper) for path in self.paths]

    def inner(self, wrapper: Any) -> torch.Tensor:
        """The leaf `main`."""
        return self.leaves(wrapper)[self.main]

    def around(self, inner: torch.Tensor, like: Any) -> Any:
        """Another wrapper, whose leaf `main` is `inner` itself, and the others are copies of those of `like`."""
        return self.built(*[inner if i == self.main else x.clone() for i, x in enumerate(self.leaves(like))])


F32, F64 = torch.float32, torch.float64
KINDS = {
    kind.name: kind
    for kind in (
        Kind("two", TwoTensor, ("a", "b"), (F32, F32), 0),
        Kind("affine", Affine, ("codes", "scale", "shift"), (F32, F64, F64), 1),
        Kind(
            "nested",
            lambda a, b, c, d: TwoTensor(TwoTensor(a, b), TwoTensor(c, d)),
            ("a.a", "a.b", "b.a", "b.b"),
            (F32, F32, F32, F32),
            1,
        ),
        Kind(
            "pair",
            lambda a, b, c, d, e, f: TwoTensor(Affine(a, b, c), Affine(d, e, f)),
            ("a.codes", "a.scale", "a.shift", "b.codes", "b.scale", "b.shift"),
            (F32, F64, F64, F32, F64, F64),
            1,
        ),
    )
}


LONG = {("affine", "eager"), ("nested", "eager"), ("two", "symbolic"), ("pair", "symbolic")}
"""What `make test` has no time for."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "unfit(**reasons): kinds of which it cannot be said, and why")
    config.addinivalue_line("markers", "inductor(*kinds): kinds for which the compiler 'inductor' is tested too")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    markers = {name: metafunc.definition.get_closest_marker(name) for name in ("unfit", "inductor")}
    unfit = markers["unfit"].kwargs if markers["unfit"] else {}
    inductor = markers["inductor"].args if markers["inductor"] else ()
    kinds = [k for k in KINDS if k not in unfit] if "kind" in metafunc.fixturenames else [None]
    if kinds != [None]:
        cases = [(k, "eager") for k in kinds] + [(k, "inductor") for k in inductor]
    else:
        cases = [(None, "eager")] + [(None, "inductor")] * (markers["inductor"] is not None)
    if {"agree", "follow"}.intersection(metafunc.fixturenames):
        cases += [(k, "symbolic") for k, compiler in cases if compiler == "eager"]
    names = [n for n in ("kind", "compiler") if n in metafunc.fixturenames]
    if not names:
        return
    values = []
    for kind, compiler in cases:
        marks: list[pytest.MarkDecorator] = []
        if compiler == "inductor":  # warns of torch's own deprecated parts
            marks.append(pytest.mark.filterwarnings("ignore"))
        if (kind, compiler) in LONG:
            marks.append(pytest.mark.long)
        given = {"kind": KINDS.get(kind), "compiler": compiler}
        name = "-".join(x for x in (kind, compiler if compiler != "eager" else None) if x)
        values.append(pytest.param(*[given[n] for n in names], marks=marks, id=name or "eager"))
    metafunc.parametrize(names, values)


@dataclass
class Run:
    """What one call did, as seen from outside."""

    args: tuple[Any, ...]
    results: Any
    bumped: list[bool]
    identity: list[int]
    sharing: list[tuple[int, ...]]
    later: Any = None
    error: Exception | None = None


@pytest.fixture
def build(compiler: str) -> Callable[..., Any]:
    """`aot_compile` with the compiler of the test."""
    symbolic = compiler == "symbolic"
    return functools.partial(aot_compile, fw_compiler="eager" if symbolic else compiler, dynamic=symbolic)


@pytest.fixture
def agree(build: Any) -> Callable[..., Any]:
    """`agree(program, make, later)` checks that a compiled program does what it does in eager, on two calls.

    `make()` gives the arguments. `later(args, results)` is what the user does then, such as going backward. Compared
    are results, arguments and what `later` gives, down to the leaves: class, context, metadata, values, and for
    arguments and results also object identity, which storages are shared, and which version counters moved. If eager
    raises in `later`, so must the compiled program, the same kind of error. Returns the compiled program. Options are
    those of `aot_compile`.
    """

    def agree(
        program: Callable[..., Any], make: Callable[[], tuple[Any, ...]], later: Any = None, **options: Any
    ) -> Any:
        compiled = build(program, **options)
        for _ in range(2):
            compare(observe(program, make(), later), observe(compiled, make(), later))
        assert not compiled.recompiles
        return compiled

    return agree


@pytest.fixture
def follow(build: Any) -> Callable[..., Any]:
    """`follow(program, use, times)` checks that a compiled program does what it does in eager, however it is used.

    `use(function, i)` is the i-th use of the program or of the compiled one: it calls it, in whatever mode, and gives
    what is to be compared, down to the leaves. If eager raises, so must the compiled program, the same kind of error.
    Returns the compiled program.
    """

    def follow(program: Callable[..., Any], use: Callable[..., Any], times: int = 2) -> Any:
        compiled = build(program)
        for i in range(times):
            (expected, eager_error), (got, error) = outcome(use, program, i), outcome(use, compiled, i)
            if error is not None and eager_error is None:
                raise error
            assert type(error) is type(eager_error), f"eager raises {eager_error!r}, not {error!r}"
            same(expected, got, f"use {i}", strides=False)
        return compiled

    return follow


def outcome(use: Callable[..., Any], function: Callable[..., Any], i: int) -> tuple[Any, Exception | None]:
    torch.manual_seed(i)
    try:
        return use(function, i), None
    except Exception as error:
        return None, error


def observe(function: Callable[..., Any], args: tuple[Any, ...], later: Any) -> Run:
    """Calls, and looks at everything that can be seen."""
    tensors = [t for x in tensors_in(args) for t in tree(x)]
    before = [t._version for t in tensors]
    results = function(*args)
    bumped = [t._version != v for t, v in zip(tensors, before, strict=True)]
    seen = tensors_in((args, results))
    identity = [next(i for i, y in enumerate(seen) if y is x) for x in seen]
    run = Run(args, results, bumped, identity, sharing(seen))
    if later is not None:
        try:
            run.later = later(args, results)
        except Exception as error:
            run.error = error
    return run


def compare(expected: Run, got: Run) -> None:
    same(expected.results, got.results, "result")
    same(expected.args, got.args, "argument")
    assert expected.identity == got.identity, "object identity"
    assert expected.sharing == got.sharing, "shared storage"
    assert expected.bumped == got.bumped, "version counters"
    if got.error is not None and expected.error is None:
        raise got.error
    assert isinstance(got.error, type(expected.error)), f"eager raises {expected.error!r}, not {got.error!r}"
    same(expected.later, got.later, "later", strides=False)


def same(expected: Any, got: Any, where: str, strides: bool = True) -> None:
    """Equal structures of equal tensors."""
    if isinstance(expected, list | tuple):
        assert type(expected) is type(got) and len(expected) == len(got), where
        for i, (x, y) in enumerate(zip(expected, got, strict=True)):
            same(x, y, f"{where} {i}", strides)
    else:
        found = difference(expected, got, strides)
        assert not found, f"{where}: {found}"


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, list | tuple):
        return [t for x in value for t in tensors_in(x)]
    return [value] if isinstance(value, torch.Tensor) else []


def tree(tensor: Any) -> Iterator[torch.Tensor]:
    """A tensor and all tensors inside."""
    yield tensor
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from tree(getattr(tensor, name))
