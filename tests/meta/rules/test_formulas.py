"""Formulas for results of symbolic sizes: what they say is right for other sizes, too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from subclass_aot.base import _torch
from subclass_aot.meta.by_example import infer_by_example
from subclass_aot.meta.infer import infer
from subclass_aot.meta.rules import formulas
from subclass_aot.meta.spec import Spec
from subclass_aot.meta.symbols import Symbols, is_symbolic, key_of

aten = torch.ops.aten
EXAMPLE = {"b": 3, "n": 6, "m": 5}
OTHERS = [{"b": 2, "n": 2, "m": 2}, {"b": 5, "n": 4, "m": 7}, {"b": 2, "n": 9, "m": 8}, {"b": 7, "n": 16, "m": 3}]


def packed(*size: Any, order: Sequence[int] | None = None, dtype: torch.dtype = torch.float32) -> Any:
    """Returns what makes a spec of sizes that are numbers or names, its dims in memory in some order."""

    def make(sizes: dict[str, Any]) -> Spec:
        numbers = [sizes[n] if isinstance(n, str) else n for n in size]
        stride: list[Any] = [1] * len(numbers)
        step: Any = 1
        for dim in reversed(range(len(numbers)) if order is None else order):
            stride[dim], step = step, step * numbers[dim]
        return Spec.make(tuple(numbers), tuple(stride), 0, dtype)

    return make


def part(of: Any, dim: int, begin: int, size: Any) -> Any:
    """Returns what makes a slice of a spec, whose memory has holes."""

    def make(sizes: dict[str, Any]) -> Spec:
        spec = of(sizes)
        changed = list(spec.size)
        changed[dim] = sizes[size] - 1 if isinstance(size, str) else size
        return Spec.make(tuple(changed), spec.stride, spec.offset + begin * spec.stride[dim], spec.dtype)

    return make


def size(compute: Any) -> Any:
    return lambda sizes: compute(**sizes)


X = packed("b", "n", 8)
ACROSS = packed("b", "n", 8, order=(0, 2, 1))
HEADS = packed("b", 4, "n", 8)
HEADS_ACROSS = packed("b", 4, "n", 8, order=(0, 2, 1, 3))
HALF = part(HEADS_ACROSS, 3, 4, 4)
LONG = packed("b", "n", dtype=torch.int64)
IMAGE = packed("b", 3, "n", "m")
CASES: list[tuple[Any, list[Any]]] = [
    *[(aten.add.Tensor, [a, b]) for a, b in itertools.product((X, ACROSS, packed(8), packed("n", 8)), (X, ACROSS))],
    *[(aten.mul.Tensor, [a, b]) for a, b in itertools.permutations((HEADS, HEADS_ACROSS, packed(1, 1, "n", 8)), 2)],
    *[(aten.neg.default, [x]) for x in (X, ACROSS, HEADS_ACROSS, HALF, part(X, 1, 1, "n"), packed())],
    *[(aten.clone.default, [x]) for x in (HALF, ACROSS, part(X, 1, 1, "n"))],
    (aten.mul.Tensor, [X, 2.5]), (aten.add.Tensor, [X, packed()]),
    (aten.add.Tensor, [packed("n", 1, dtype=torch.int64), X]),
    (aten.where.self, [packed("n", "n", dtype=torch.bool), packed("b", 4, "n", "n"), packed()]),
    (aten.add_.Tensor, [ACROSS, packed(8)]), (aten.copy_.default, [ACROSS, X]),
    (aten.threshold_backward.default, [X, ACROSS, 0]),
    (aten.mm.default, [packed("n", 8), packed(8, "m")]), (aten.bmm.default, [X, packed("b", 8, "m")]),
    (aten.addmm.default, [packed(4), packed("n", 8), packed(8, 4)]),
    (aten.embedding.default, [packed(9, 4), LONG]), (aten.embedding_dense_backward.default, [X, LONG, 9, -1, False]),
    (aten.cat.default, [[X, X, packed("b", "m", 8)], 1]), (aten.cat.default, [[HALF, HALF], -1]),
    (aten.stack.default, [[X, X], 1]), (aten.cat.default, [[packed(0), HEADS_ACROSS], -2]),
    (aten.index.Tensor, [packed("n", 8), [LONG]]), (aten.index.Tensor, [X, [None, LONG]]),
    (aten.index.Tensor, [packed("b", "m"), [packed("b", 1, 1, dtype=torch.int64), packed(1, 1, 8, dtype=torch.int64)]]),
    (aten.index.Tensor, [HEADS, [packed("m", dtype=torch.int32), None, packed("b", "m", dtype=torch.int32)]]),
    (aten.index.Tensor, [IMAGE, [None, None, packed(dtype=torch.int64)]]),
    (aten.index_put.default, [X, [None, packed("n", dtype=torch.int64)], packed("b", "n", 8), True]),
    *[(aten.sum.dim_IntList, [x, [1], keep]) for x in (ACROSS, HEADS_ACROSS, HALF) for keep in (False, True)],
    (aten.amax.default, [HALF, [0, 3]]), (aten.mean.dim, [packed("b", 1, "n"), [1]]),
    *[(aten._softmax.default, [x, -1, False]) for x in (X, packed("n"))],
    (aten.cumsum.default, [X, 1]),
    (aten.masked_fill.Scalar, [X, packed("n", 8, dtype=torch.bool), 0.0]),
    (aten.native_layer_norm.default, [X, [8], packed(8), packed(8), 1e-5]),
    (aten.native_layer_norm.default, [ACROSS, [8], packed(8), None, 1e-5]),
    *[(aten.native_layer_norm_backward.default,
       [X, x, [8], packed("b", "n", 1), packed("b", "n", 1), packed(8), packed(8), [True, True, False]])
      for x in (X, ACROSS)],
    (aten._native_batch_norm_legit_no_training.default, [IMAGE, packed(3), packed(3), packed(3), packed(3), 0.1, 1e-5]),
    *[(func, [IMAGE, packed(3), packed(3), packed(3), packed(3), training, 0.1, 1e-5]) for training in (True, False)
      for func in (aten.native_batch_norm.default, aten._native_batch_norm_legit.default)],
    (aten.native_batch_norm_backward.default,
     [IMAGE, IMAGE, packed(3), packed(3), packed(3), packed(3), packed(3), True, 1e-5, [True, True, True]]),
    (aten.roll.default, [X, [1, -2], [0, 1]]), (aten.roll.default, [IMAGE, [2], [3]]),
    (aten.native_group_norm.default,
     [packed("b", 8, "n"), packed(8), packed(8), size(lambda b, **_: b), 8, size(lambda n, **_: n), 2, 1e-5]),
    (aten.sum.dim_IntList, [X, [1]]), (aten.mean.dim, [X, [-1], True]), (aten.amax.default, [X, [0, 1]]),
    (aten.sum.default, [X]),
    *[(aten.transpose.int, [x, -1, 1]) for x in (X, HALF)], (aten.permute.default, [X, [2, 0, 1]]),
    (aten.t.default, [packed("n", "m")]), *[(aten.unsqueeze.default, [X, dim]) for dim in (0, 1, -1)],
    (aten.squeeze.dim, [packed("b", 1, "n"), 1]), (aten.squeeze.dim, [X, 1]),
    (aten.expand.default, [packed("b", 1, 8), [-1, size(lambda n, **_: n), 8]]),
    (aten.expand.default, [packed("n", 8), [size(lambda b, **_: b), size(lambda n, **_: n), 8]]),
    *[(aten.select.int, [X, 1, index]) for index in (0, 1, -1, -2)],
    *[(aten.slice.Tensor, [X, 1, *ends]) for ends in ((0, 2), (1, 1 << 62), (-1,), (0, -1), (1, (1 << 63) - 1))],
    *[(aten.slice.Tensor, [X, 1, begin, 1 << 62, step]) for begin, step in ((0, 2), (1, 2), (2, 3))],
    (aten.slice.Tensor, [X, 1, 0, size(lambda n, **_: n)]), (aten.slice.Tensor, [X, 1, 0, size(lambda n, **_: n - 1)]),
    (aten.view.default, [X, [size(lambda b, n, **_: b * n), 8]]), (aten.view.default, [X, [-1, 8]]),
    (aten.view.default, [X, [size(lambda b, **_: b), -1, 4, 2]]),
    (aten.view.default, [ACROSS, [size(lambda b, **_: b), size(lambda n, **_: n), 2, 4]]),
    (aten.view.default, [HALF, [size(lambda b, **_: b), 4, size(lambda n, **_: n), 4]]),
    (aten.split_with_sizes.default, [X, [2, 6], -1]), (aten.unbind.int, [X, 2]),
    (aten.constant_pad_nd.default, [X, [0, 0, 1, size(lambda m, **_: m)]]),
    (aten.convolution.default, [IMAGE, packed(4, 3, 2, 2), packed(4), [1, 1], [1, 1], [1, 1], False, [0, 0], 1]),
    (aten.convolution.default, [IMAGE, packed(3, 4, 2, 2), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 1]),
    (aten.convolution_backward.default,
     [packed("b", 4, "n", "m"), IMAGE, packed(4, 3, 3, 3), [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
      [False, True, True]]),
    (aten.arange.default, [size(lambda n, **_: n)]), (aten.arange.start, [2, size(lambda n, **_: n)]),
    (aten.zeros.default, [[size(lambda b, **_: b), size(lambda n, m, **_: n * m)]]),
    (aten.slice_backward.default, [X, [size(lambda b, **_: b), size(lambda n, **_: n * 2), 8], 1, 0, 1 << 62, 2]),
    (aten.nll_loss_forward.default, [packed("n", 8), packed("n", dtype=torch.int64), None, 1, -100]),
    (aten._scaled_dot_product_flash_attention_for_cpu.default, [HEADS_ACROSS, HEADS_ACROSS, HEADS_ACROSS]),
    *[(getattr(aten, name).default, [x]) for x in (X, HALF)
      for name in ("relu", "silu", "gelu", "softplus", "tanh", "sigmoid", "sqrt", "rsqrt", "exp", "sin", "cos")],
    *[(getattr(aten, name).default, [X, ACROSS]) for name in ("silu_backward", "gelu_backward")],
    (aten.softplus_backward.default, [X, ACROSS, 1, 20]), (aten.pow.Tensor_Scalar, [HALF, 2]),
    *[(func, [ACROSS, 3]) for func in (aten.mul.Scalar, aten.add.Scalar, aten.div.Scalar)],
    *[(func, [ACROSS, packed(8)]) for func in (aten.div.Tensor, aten.sub.Tensor)],
    *[(func, [HALF]) for func in (aten.alias.default, aten.detach.default)],
    (aten.squeeze.dims, [packed("b", 1, "n", 1), [1, 3]]), (aten._unsafe_view.default, [X, [-1, 8]]),
    (aten.select_backward.default, [packed("b", 8), [size(lambda b, **_: b), size(lambda n, **_: n), 8], 1, 0]),
]  # fmt: skip


def given(value: Any, sizes: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [given(each, sizes) for each in value]
    return value(sizes) if callable(value) else value


def specs_in(result: Any) -> Iterator[Spec]:
    for each in result if isinstance(result, tuple | list) else [result]:
        if isinstance(each, Spec):
            yield each


def name_of(case: Any) -> str:
    return str(case) if not isinstance(case, list) else ""


@pytest.mark.every_case
@pytest.mark.parametrize(("func", "args"), CASES, ids=name_of)
def test_formulas_are_right_for_other_sizes(func: Any, args: list[Any]) -> None:
    symbols = Symbols()
    sizes = {name: symbols.size(hint, f"x.size({hint})") for name, hint in EXAMPLE.items()}
    found = infer_by_example(func, tuple(given(args, sizes)), {})
    assert found is not None, "there is a formula"
    guards = [guard.expr for guard in symbols.env.guards]
    known = {key_of(sizes[name]): name for name in EXAMPLE}
    served = 0
    for other in [EXAMPLE, *OTHERS]:
        values = {symbol: other[name] for symbol, name in known.items()}
        if not all(_torch.symbolic.evaluate(guard, values) for guard in guards):
            continue
        served += 1
        expected = infer(func, tuple(given(args, other)), {})
        for ours, eager in zip(specs_in(found), specs_in(expected), strict=True):
            for numbers, others in (
                (ours.size, eager.size),
                (ours.stride, eager.stride),
                ((ours.offset,), (eager.offset,)),
            ):
                now = [_torch.symbolic.evaluate(key_of(n), values) if is_symbolic(n) else n for n in numbers]
                assert now == list(others)
            assert ours.dtype is eager.dtype
    assert served > 2, "its guards serve most sizes"


@pytest.mark.every_case
@pytest.mark.parametrize("func", sorted({*formulas.ALIKE, *formulas.ARITHMETIC}, key=str), ids=str)
def test_what_is_inferred_without_an_example_is_held_against_one_here(func: Any) -> None:
    assert any(func is tried for tried, _ in CASES)


REFUSED: list[tuple[Any, list[Any]]] = [
    (aten.permute.default, [X, [0, 0, 1]]), (aten.permute.default, [X, [0, 1]]), (aten.transpose.int, [X, 0, 3]),
    (aten.view.default, [X, [-1, -1]]), (aten.view.default, [X, [-2, size(lambda b, n, **_: -b * n * 4)]]),
    (aten.view.default, [X, [size(lambda b, n, **_: b * n), 7]]), (aten.view.default, [ACROSS, [-1, 8]]),
    (aten.expand.default, [X, [size(lambda b, **_: b), size(lambda m, **_: m), 8]]),
    (aten.expand.default, [X, [-1, 8]]),
    (aten.expand.default, [packed("n"), [-1, size(lambda n, **_: n)]]), (aten.unsqueeze.default, [X, 4]),
    (aten.squeeze.dim, [X, 3]), (aten.select.int, [X, 1, 6]), (aten.select.int, [X, 3, 0]), (aten.t.default, [X]),
    (aten.slice.Tensor, [X, 3, 0, 1]), (aten.slice.Tensor, [X, 1, 0, 4, 0]),
    (aten.add.Tensor, [X, packed("m", 8)]), (aten.mm.default, [packed("n", 8)] * 2),
    (aten.bmm.default, [X, packed("n", 8, 4)]), (aten.bmm.default, [X, packed("b", "m", 4)]),
    (aten.addmm.default, [packed(3), packed("n", 8), packed(8, 4)]), (aten.cat.default, [[X, packed("b", "n")], 0]),
    (aten.cat.default, [[X, packed("b", "n", 4)], 0]), (aten.cat.default, [[X], 3]), (aten.cat.default, [[], 0]),
    (aten.stack.default, [[X, packed("b", "m", 8)]]), (aten.sum.dim_IntList, [X, [0, 0]]), (aten.mean.dim, [X, [3]]),
    (aten.gelu_backward.default, [X, packed("b", "m", 8)]),
    (aten.mm.default, [packed("n", 8), packed(8, "n", dtype=torch.float64)]),
    (aten.mean.dim, [packed("b", "n", dtype=torch.int64), [1]]),
]  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize(("func", "args"), REFUSED, ids=name_of)
def test_what_an_operator_refuses_its_formula_refuses(func: Any, args: list[Any]) -> None:
    symbols = Symbols()
    sizes = {name: symbols.size(hint, f"x.size({hint})") for name, hint in EXAMPLE.items()}
    assert infer_by_example(func, tuple(given(args, sizes)), {}) is None
    with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)):
        infer(func, tuple(given(args, EXAMPLE)), {})


def test_other_dtypes_are_those_of_an_example() -> None:
    symbols = Symbols()
    sizes = {name: symbols.size(hint, f"x.size({hint})") for name, hint in EXAMPLE.items()}
    x, whole, double, half = (packed("b", "n", dtype=getattr(torch, name))(sizes)
                              for name in ("float32", "int64", "float64", "float16"))  # fmt: skip
    cases: list[tuple[Any, Any, dict[str, Any], torch.dtype]] = [
        (aten.add.Tensor, (x, double), {}, torch.float64), (aten.div.Tensor, (whole, whole), {}, torch.float32),
        (aten.mul.Tensor, (x, 1j), {}, torch.complex64), (aten.sum.dim_IntList, (whole, [0]), {}, torch.int64),
        (aten.sum.dim_IntList, (x, [0]), {"dtype": torch.float64}, torch.float64),
        (aten.add.Tensor, (x, whole), {"alpha": 2}, torch.float32), (aten.mul.Tensor, (half, x), {}, torch.float32),
        (aten.pow.Tensor_Scalar, (whole, 2.0), {}, torch.float32),
        (aten.cat.default, ([x, double],), {}, torch.float64),
        (aten.clone.default, (whole,), {"memory_format": torch.contiguous_format}, torch.int64),
        (aten.mul.Scalar, (x, 2.5), {}, torch.float32), (aten.exp.default, (whole,), {}, torch.float32),
    ]  # fmt: skip
    for func, args, kwargs, dtype in cases:
        found = infer_by_example(func, args, kwargs)
        assert found is None or found.dtype is dtype, func
