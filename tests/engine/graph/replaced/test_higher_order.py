"""Operators that take functions, in compiled functions: they compute, forward and backward, what the functions say."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops import InvokeQuant, associative_scan, map, scan, while_loop, while_loop_stack_output
from torch._higher_order_ops.associative_scan import wrap_combine_fn_flat
from torch._higher_order_ops.foreach_map import foreach_map
from torch.nn import functional as F
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from subclass_aot import Int8Weight, TwoTensor, aot_compile, trace_joint
from subclass_aot.errors import DataDependentError, TraceError
from tests.torches import TORCH

OPTIONS = [{}, {"dynamic": True}]


def tensors_of(result: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


def outcome(fn: Callable[..., Any], *args: torch.Tensor) -> Any:
    """Results and gradients on copies; where there is no gradient, zeros, as torch's own operators have it."""
    copies = [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
    results = tensors_of(fn(*copies))
    inputs = [x for x in copies if x.requires_grad]
    if not inputs:
        return results
    loss = sum(((x * x).sum() for x in results if x.requires_grad), 0 * sum(x.sum() for x in inputs))
    return results, torch.autograd.grad(loss, inputs, materialize_grads=True)


def assert_same(compiled: Callable[..., Any], expected: Callable[..., Any], *args: torch.Tensor) -> None:
    torch.testing.assert_close(outcome(compiled, *args), outcome(expected, *args), rtol=1e-5, atol=1e-5)


def if_positive(true_fn: Callable[..., Any], false_fn: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """A program with `torch.cond`, and with `if`."""

    def with_cond(*args: torch.Tensor) -> Any:
        return torch.cond(args[0].sum() > 0, true_fn, false_fn, args)

    def with_if(*args: torch.Tensor) -> Any:
        return true_fn(*args) if args[0].sum() > 0 else false_fn(*args)

    return with_cond, with_if


def nested(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 2, lambda x: x.exp(), lambda x: x.sin() * x[0], (x,))


def nested_if(x: torch.Tensor) -> Any:
    return x.exp() if x.sum() > 2 else x.sin() * x[0]


BRANCHES = {
    "two branches": if_positive(lambda x: x.sin(), lambda x: x * x[0]),
    "an operand": if_positive(lambda x: x.clone(), lambda x: x * 2),
    "several results": if_positive(lambda x: (x + 1, {"a": x.exp()}), lambda x: (x - 1, {"a": x.cos()})),
    "no gradient": if_positive(lambda x: x.detach() * 2, lambda x: x * 3),
    "own tensors are written": if_positive(lambda x: x.clone().mul_(2), lambda x: torch.zeros(3).add_(x)),
    "derivatives that are infinite": if_positive(lambda x: x.relu().sqrt(), lambda x: (-x).relu().sqrt().sum() * x),
}
BRANCHES["nested"] = (
    lambda x: torch.cond(x.sum() > 0, nested, lambda x: -x, (x,)),
    lambda x: nested_if(x) if x.sum() > 0 else -x,
)


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_cond(name: str, options: dict[str, Any], requires_grad: bool) -> None:
    with_cond, with_if = BRANCHES[name]
    compiled = aot_compile(with_cond, **options)
    for values in ([1.0, 2.0, 0.5], [-1.0, -2.0, -0.5], [1.0, 0.25, 0.5]):
        assert_same(compiled, with_if, torch.tensor(values, requires_grad=requires_grad))


AS_TORCH = """
import sys, torch
from tests.engine.graph.replaced.test_higher_order import BRANCHES, outcome
inputs = [torch.tensor([sign, 2 * sign], requires_grad=True) for sign in (1.0, -1.0)]
torch.save([outcome(BRANCHES["two branches"][0], x) for x in inputs], sys.argv[1])
"""


def test_cond_as_torch_computes_it(tmp_path: Path) -> None:
    """Torch compiles it with Dynamo, which is alone in a process of its own."""
    found, root = tmp_path / "found", Path(__file__).parents[4]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "ignore", "-c", AS_TORCH, str(found)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compiled = aot_compile(BRANCHES["two branches"][0])
    for sign, expected in zip((1.0, -1.0), torch.load(found), strict=True):
        got = outcome(compiled, torch.tensor([sign, 2 * sign], requires_grad=True))
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def square_root(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Closes over a tensor, computed before, of which the gradient must not be spoiled either."""
    shifted = x * scale
    root: torch.Tensor = torch.cond(x.sum() > 0, lambda: shifted.sqrt() + scale.log(), lambda: shifted * 0 + scale)
    return root + shifted


def square_root_if(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    shifted = x * scale
    return (shifted.sqrt() + scale.log() if x.sum() > 0 else shifted * 0 + scale) + shifted


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_of_the_branch_that_is_not_taken(options: dict[str, Any]) -> None:
    compiled = aot_compile(square_root, **options)
    for x, scale in ((0.0, 0.0), (-1.0, 0.0), (4.0, 2.0)):
        args = torch.full((2,), x, requires_grad=True), torch.tensor(scale, requires_grad=True)
        assert_same(compiled, square_root_if, *args)
        assert all(g.isfinite().all() for g in outcome(compiled, *args)[1])


@pytest.mark.filterwarnings("ignore:Pred is a Python constant")  # of torch 2.11
@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.cond(True, torch.sin, lambda x: x.normal_(), (x,)),
        lambda x: torch.cond(x.shape[0] > 2, torch.sin, lambda x: x.normal_(), (x,)),
        lambda x: torch.cond(torch.ones(2).sum() > 1, torch.sin, lambda x: x.normal_(), (x,)),
        lambda x: torch.cond(torch.tensor(False), lambda x: x.normal_(), torch.sin, (x,)),
    ],
)
def test_predicates_that_are_known(program: Callable[[torch.Tensor], Any]) -> None:
    """One branch is recorded, and may do what it likes."""
    graph = trace_joint(program, torch.ones(3)).graph_module.graph
    assert "aten.sin.default" in [str(node.target) for node in graph.nodes]
    assert not [node for node in graph.nodes if "where" in str(node.target)]
    assert_same(aot_compile(program), torch.sin, torch.ones(3))


def test_a_predicate_of_sizes_is_compiled_for_each_branch() -> None:
    compiled = aot_compile(lambda x: torch.cond(x.shape[0] > 3, torch.sin, torch.cos, (x,)), dynamic=True)
    for length in (2, 3, 4, 7, 8):
        assert_same(compiled, torch.sin if length > 3 else torch.cos, torch.rand(length, requires_grad=True))


def test_results_that_are_no_tensors() -> None:
    compiled = aot_compile(lambda x: torch.cond(x.sum() > 0, lambda x: (x * 2, 3, None), lambda x: (x, 3, None), (x,)))
    y, three, none = compiled(torch.ones(2))
    assert y.tolist() == [2, 2] and three == 3 and none is None


def wrapped(x: Any, weight: Any, two: Any) -> Any:
    def positive(w: Any, t: Any) -> Any:
        return F.linear(x, w) * t

    def negative(w: Any, t: Any) -> Any:
        return t * x.sum() + t.exp() + torch.zeros(2, 1)

    return torch.cond(x.sum() > 0, positive, negative, (weight, two))


def wrapped_if(x: Any, weight: Any, two: Any) -> Any:
    return F.linear(x, weight) * two if x.sum() > 0 else two * x.sum() + two.exp() + torch.zeros(2, 1)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_wrappers_in_branches(sign: float) -> None:
    def outcome_of(program: Callable[..., Any]) -> Any:
        torch.manual_seed(0)
        weight = Int8Weight.from_float(torch.randn(3, 4))
        two = TwoTensor(torch.randn(3), torch.randn(3)).requires_grad_()
        x = torch.rand(2, 4) * sign
        y = program(x, weight, two)
        (gradient,) = torch.autograd.grad((y * y).sum(), two, TwoTensor(torch.tensor(1.0), torch.tensor(2.0)))
        return y.a, y.b, gradient.a, gradient.b

    torch.testing.assert_close(outcome_of(aot_compile(wrapped)), outcome_of(wrapped_if))


LOOPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "map": (
        lambda x, y: map(lambda row, y: row.sin() * y.sum(), x, y),
        lambda x, y: torch.stack([row.sin() * y.sum() for row in x]),
    ),
    "map of several": (
        lambda x, y: map(lambda rows: (rows[0] + rows[1]["b"], rows[0].sum()), (x, {"b": x * 2})),
        lambda x, y: (torch.stack([row * 3 for row in x]), torch.stack([row.sum() for row in x])),
    ),
    "scan": (
        lambda x, y: scan(lambda c, row: (c * row, c + row), y, x),
        lambda x, y: (y * x.prod(0), torch.stack([y * x[:i].prod(0) + x[i] for i in range(4)])),
    ),
    "scan of another dimension, in reverse": (
        lambda x, y: scan(lambda c, row: (c * row, c + row), x[:, 0].clone(), x, dim=1, reverse=True),
        lambda x, y: (
            x[:, 0] * x.prod(1),
            torch.stack([x[:, 0] * x[:, i + 1 :].prod(1) + x[:, i] for i in range(3)], int(TORCH >= (2, 13))),
        ),
    ),
    "associative scan": (
        lambda x, y: associative_scan(lambda a, b: a * b, x, dim=0, combine_mode="generic"),
        lambda x, y: x.cumprod(0),
    ),
    "associative scan of several": (
        lambda x, y: associative_scan(
            lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x * 2), dim=1, reverse=True, combine_mode="generic"
        ),
        lambda x, y: (x.flip(1).cumprod(1).flip(1), recurrence(x, x * 2)),
    ),
    "pointwise associative scan": (
        lambda x, y: torch.ops.higher_order.associative_scan(lambda a, b: (a * b,), [x], ())[0],
        lambda x, y: x.cumprod(0),
    ),
    "while loop": (
        lambda x, y: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin() * y), (torch.tensor(0), x)),
        lambda x, y: (torch.tensor(3), (((x.sin() * y).sin() * y).sin() * y)),
    ),
    "while loop over a number": (
        lambda x, y: while_loop(lambda i, x: i < x.shape[0], lambda i, x: (i + 1, x * 2), (torch.tensor(1), x))[1],
        lambda x, y: x * 8,
    ),
    "while loop that is left at once": (
        lambda x, y: while_loop(lambda i, x: i < 0, lambda i, x: (i + 1, x * 2), (torch.tensor(1), x * y))[1],
        lambda x, y: x * y,
    ),
}


def recurrence(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`y = y * a + b` along the rows, from the end."""
    made = [b[:, -1]]
    for i in range(a.shape[1] - 2, -1, -1):
        made.append(made[-1] * a[:, i] + b[:, i])
    return torch.stack(made[::-1], 1)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_loops(name: str, options: dict[str, Any], requires_grad: bool) -> None:
    program, expected = LOOPS[name]
    x, y = torch.rand(4, 3, requires_grad=requires_grad), torch.rand(3, requires_grad=requires_grad)
    assert_same(aot_compile(program, **options), expected, x, y)


@pytest.mark.filterwarnings("ignore")  # of Dynamo
@pytest.mark.parametrize("name", ["map", "scan of another dimension, in reverse", "associative scan"])
def test_loops_as_torch_computes_them(name: str) -> None:
    program, _ = LOOPS[name]
    assert_same(aot_compile(program), program, torch.rand(4, 3, requires_grad=True), torch.rand(3, requires_grad=True))


def scanned(x: torch.Tensor, y: torch.Tensor) -> Any:
    sums = [x[:i].sum(0) + y for i in range(5)]
    return {"sum": sums[4], "last": (x[3],)}, [{"before": torch.stack(sums[:4])}, x.sin()]


TREES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "scan of a dict": (
        lambda x, y: scan(
            lambda c, row: ({"sum": c["sum"] + row, "last": (row.clone(),)}, [{"before": c["sum"].clone()}, row.sin()]),
            {"sum": y, "last": (y * 2,)},
            x,
        ),
        scanned,
    ),
    "scan of a dict that is filled in another order": (
        lambda x, y: scan(
            lambda c, row: ({"b": c["b"] + row, "a": c["a"] * row}, c["a"].clone()), {"a": y, "b": y * 2}, x
        ),
        lambda x, y: (
            {"a": y * x.prod(0), "b": y * 2 + x.sum(0)},
            torch.stack([y * x[:i].prod(0) for i in range(4)]),
        ),
    ),
    "scan of a tuple over a tree": (
        lambda x, y: scan(
            lambda c, rows: ((c[0] + rows["x"], c[1] * rows["y"][0]), c[1].clone()),
            (y, y * 2),
            {"x": x, "y": [x * 3]},
            reverse=True,
        ),
        lambda x, y: (
            (y + x.sum(0), y * 2 * (x * 3).prod(0)),
            torch.stack([y * 2 * (x[i + 1 :] * 3).prod(0) for i in range(4)]),
        ),
    ),
    "scan in a scan": (
        lambda x, y: scan(
            lambda c, row: (
                {"all": c["all"] + scan(lambda d, e: ([d[0] + e], e.clone()), [y.sum()], row)[0][0]},
                {"row": row * 1},
            ),
            {"all": y},
            x,
        ),
        lambda x, y: ({"all": y + (x.sum() + 4 * y.sum())}, {"row": x * 1}),
    ),
    "associative scan of a dict": (
        lambda x, y: associative_scan(
            lambda a, b: {"p": a["p"] * b["p"], "q": (a["q"][0] + b["q"][0],)},
            {"p": x, "q": (x * y,)},
            0,
            combine_mode="generic",
        ),
        lambda x, y: {"p": x.cumprod(0), "q": ((x * y).cumsum(0),)},
    ),
    "map to a dict": (
        lambda x, y: map(lambda row, more: {"a": row["x"] * more["y"], "b": [row["x"].sum()]}, {"x": x}, {"y": y}),
        lambda x, y: {"a": x * y, "b": [x.sum(1)]},
    ),
    "while loop over a dict": (
        lambda x, y: while_loop(
            lambda i, t: i < 3,
            lambda i, t: (i + 1, {"x": t["x"] * y, "y": (t["y"][0].sin(),)}),
            (torch.tensor(0), {"x": x, "y": (y,)}),
        ),
        lambda x, y: (torch.tensor(3), {"x": x * y * y * y, "y": (y.sin().sin().sin(),)}),
    ),
    "while loop over a number in a dict": (
        lambda x, y: while_loop(
            lambda t: t["i"] < 3, lambda t: [{"x": t["x"] * 2, "i": t["i"] + 1}], [{"i": 0, "x": x}]
        ),
        lambda x, y: [{"i": 3, "x": x * 8}],
    ),
    "while loop over lists by data": (
        lambda x, y: while_loop(lambda t: t[0].sum() < 30, lambda t: ([t[0] * 2, t[1] + y],), ([x + 1, y],)),
        lambda x, y: ([(x + 1) * 2, y + y],),
    ),
    "while loop over a dict that is left at once": (
        lambda x, y: while_loop(lambda t: t["x"].sum() < 0, lambda t: ({"x": t["x"] * 2},), ({"x": x * y},)),
        lambda x, y: ({"x": x * y},),
    ),
    "all that a while loop carried": (
        lambda x, y: while_loop_stack_output(
            lambda i, x, y: i < 3, lambda i, x, y: (i + 1, x * y), (torch.tensor(0), x), (y,)
        ),
        lambda x, y: (torch.tensor([1, 2, 3]), torch.stack([x * y, x * y * y, x * y * y * y])),
    ),
    "all that a while loop carried that is left at once": (
        lambda x, y: while_loop_stack_output(lambda x: x.sum() < 0, lambda x: (x * y,), (x,), ()),
        lambda x, y: (x[None],),
    ),
    "cond of dicts": (
        lambda x, y: torch.cond(
            x.sum() > 0, lambda t, u: {"o": t["x"] * u[0]}, lambda t, u: {"o": t["x"] - u[0]}, ({"x": x}, (y,))
        ),
        lambda x, y: {"o": x * y},
    ),
    "cond in a scan of a dict": (
        lambda x, y: scan(
            lambda c, row: (
                {"a": torch.cond(row.sum() > 9, lambda t: t["a"] - row, lambda t: t["a"] + row, (c,))},
                c["a"].clone(),
            ),
            {"a": y},
            x,
        )[0],
        lambda x, y: {"a": y + x.sum(0)},
    ),
    "functions for kernels of low precision": (
        lambda x, y: InvokeQuant(codegen_low_precision=False)(lambda t, y: {"o": t["x"] * y}, {"x": x}, y, scheme="a"),
        lambda x, y: {"o": x * y},
    ),
    "functions with hints": (
        lambda x, y: torch.ops.higher_order.hints_wrapper(lambda x, y: (x * y,), (x, y), {}, {"fuse": True}),
        lambda x, y: (x * y,),
    ),
    "functions without mutations": (
        lambda x, y: torch.ops.higher_order.strict_mode(lambda t: {"o": t["x"] * 2}, ({"x": x},)),
        lambda x, y: {"o": x * 2},
    ),
    "functions of each of some tensors": (
        lambda x, y: foreach_map(torch.mul, [x, y], [x, y]),
        lambda x, y: [x * x, y * y],
    ),
}


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_trees(name: str, options: dict[str, Any]) -> None:
    """What is carried, given and returned may be any tree, of which the structure comes out again."""
    program, expected = TREES[name]
    compiled = aot_compile(program, **options)
    for _ in range(2):
        x, y = torch.rand(4, 3) + 0.2, torch.rand(3) + 0.2
        results, wanted = compiled(x, y), expected(x, y)
        torch.testing.assert_close(results, wanted)
        assert torch.utils._pytree.tree_structure(results) == torch.utils._pytree.tree_structure(wanted)
        assert_same(compiled, expected, x.requires_grad_(), y.requires_grad_())


@pytest.mark.filterwarnings("ignore")  # of Dynamo
@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("name", ["scan of a dict", "while loop over a dict", "cond of dicts"])
def test_trees_as_torch_computes_them(name: str) -> None:
    """By both doors."""
    program, _ = TREES[name]
    args = torch.rand(4, 3, requires_grad=True), torch.rand(3, requires_grad=True)
    for compiled in (aot_compile(program), torch.compile(program, backend="subclass_aot")):
        assert_same(compiled, program, *args)
        structure = torch.utils._pytree.tree_structure
        assert structure(compiled(*args)) == structure(program(*args))


def test_an_associative_scan_of_a_tree_where_torch_has_a_kernel() -> None:
    """On an accelerator torch hands over the operator; here what it hands over is given to it."""
    given = partial(wrap_combine_fn_flat, combine_fn=lambda a, b: {"x": a["x"] * b["x"]}, num_leaves=1)
    given.keywords["spec"] = torch.utils._pytree.tree_structure({"x": 0})
    x = torch.rand(4, 3)
    compiled = aot_compile(lambda x: torch.ops.higher_order.associative_scan(given, [x], ()))
    torch.testing.assert_close(compiled(x), {"x": x.cumprod(0)})


def test_a_loop_that_is_left_at_once_gives_tensors_of_its_own() -> None:
    x = torch.ones(2)
    (y,) = aot_compile(lambda x: while_loop(lambda x: x.sum() < 0, lambda x: (x * 2,), (x,)))(x)
    assert torch.equal(y, x) and y.data_ptr() != x.data_ptr()


def test_another_tree_than_was_carried_is_not_compiled() -> None:
    """Eager mode takes it, and fails only if the next step reads what is not there."""
    program = lambda x: scan(lambda c, row: ({"b": c["a"] + row}, row.clone()), {"a": x[0]}, x)  # noqa: E731
    with pytest.warns(UserWarning, match="keys mismatch"):
        found = aot_compile(program)(torch.ones(2, 3))
    torch.testing.assert_close(found, program(torch.ones(2, 3)))


def test_loops_over_wrappers() -> None:
    two = TwoTensor(torch.rand(4, 3), torch.rand(4, 3))
    y, expected = aot_compile(lambda x: map(lambda row: row.sin() * row.sum(), x))(two), two.sin() * two.sum(1, True)
    torch.testing.assert_close((y.a, y.b), (expected.a, expected.b))
    weight = Int8Weight.from_float(torch.randn(5, 3))
    layer = aot_compile(lambda x, w: scan(lambda c, row: (c + 1, F.linear(row * c, w)), torch.ones(()), x)[1])
    assert_same(lambda x: layer(x, weight), lambda x: F.linear(x * torch.arange(1, 5)[:, None], weight), two.a)


def test_a_while_loop_by_data() -> None:
    program = lambda x: while_loop(lambda x: x.sum() > 1, lambda x: (x / 2,), (x,))  # noqa: E731
    compiled = aot_compile(program)
    for n in (3.0, 0.1, 5.0, 3.0):
        (x,) = compiled(torch.full((3,), n))
        expected = torch.full((3,), n)
        while expected.sum() > 1:
            expected = expected / 2
        assert torch.equal(x, expected)
    with pytest.raises(DataDependentError, match="nobody knows how often it runs") as caught:
        aot_compile(program, values="refuse")(torch.ones(3))
    assert "while_loop(lambda x: x.sum() > 1" in str(caught.value)


def attention(q: Any, k: Any, v: Any, score_mod: Any = None, mask_mod: Any = None) -> torch.Tensor:
    """Flex attention, written out."""
    k, v = k.repeat_interleave(q.shape[1] // k.shape[1], 1), v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    b, h, i, j = torch.meshgrid(*[torch.arange(n) for n in scores.shape], indexing="ij")
    scores = scores if score_mod is None else score_mod(scores, b, h, i, j)
    kept = torch.ones_like(scores, dtype=torch.bool) if mask_mod is None else mask_mod(b, h, i, j)
    weights = scores.masked_fill(~kept, -torch.inf).softmax(-1).masked_fill(~kept.any(-1, keepdim=True), 0)
    return weights @ v


DOCUMENTS = torch.arange(12) // 5


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def same_document(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i >= j) & (DOCUMENTS[i] == DOCUMENTS[j])


def rows_without_keys(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j + 3


def relative(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return score * 0.5 + (i - j) * (h + 1)


def queries(heads: int = 4, requires_grad: bool = True) -> list[torch.Tensor]:
    sizes = [(2, 4, 12, 8), (2, heads, 12, 8), (2, heads, 12, 8)]
    return [torch.randn(size, requires_grad=requires_grad) for size in sizes]


@pytest.mark.parametrize(
    ("score_mod", "mask_mod", "options"),
    [
        (None, None, {}),
        (relative, None, {"dynamic": True}),
        (None, causal, {"dynamic": True}),
        (relative, same_document, {}),
        (None, rows_without_keys, {}),
    ],
)
def test_flex_attention(score_mod: Any, mask_mod: Any, options: dict[str, Any]) -> None:
    """On a CPU, where torch has no backward."""
    mask = None if mask_mod is None else create_block_mask(mask_mod, None, None, 12, 12, device="cpu")
    compiled = aot_compile(lambda q, k, v: flex_attention(q, k, v, score_mod, mask), **options)
    assert_same(compiled, lambda q, k, v: attention(q, k, v, score_mod, mask_mod), *queries())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_as_torch_computes_it() -> None:
    mask = create_block_mask(same_document, None, None, 12, 12, device="cpu")
    program = lambda q, k, v: flex_attention(q, k, v, relative, mask)  # noqa: E731
    args = queries(requires_grad=False)
    for fn in (program, torch.compile(program, backend="eager")):
        assert_same(aot_compile(fn), program, *args)


def test_flex_attention_with_a_bias_that_is_trained() -> None:
    def program(q: Any, k: Any, v: Any, bias: Any, attend: Any = flex_attention) -> Any:
        return attend(q, k, v, lambda score, b, h, i, j: score + bias[h] * (i - j))

    args = *queries(), torch.randn(4, requires_grad=True)
    assert_same(aot_compile(program), lambda *args: program(*args, attend=attention), *args)


def test_flex_attention_with_fewer_heads_of_keys() -> None:
    compiled = aot_compile(lambda q, k, v: flex_attention(q, k, v, relative, enable_gqa=True))
    assert_same(compiled, lambda q, k, v: attention(q, k, v, relative), *queries(heads=2))


def test_flex_attention_with_the_normalizer() -> None:
    compiled = aot_compile(lambda q, k, v: flex_attention(q, k, v, return_aux=AuxRequest(lse=True))[1].lse)
    assert_same(compiled, lambda q, k, v: (q @ k.transpose(-2, -1) / math.sqrt(8)).logsumexp(-1), *queries())


def test_masks_that_are_arguments_or_made_inside() -> None:
    args = queries()
    compiled = aot_compile(lambda q, k, v, mask: flex_attention(q, k, v, block_mask=mask))
    for mask_mod in (causal, same_document, causal):
        mask = create_block_mask(mask_mod, None, None, 12, 12, device="cpu")
        torch.testing.assert_close(compiled(*args, mask), attention(*args, None, mask_mod))
    inside = aot_compile(
        lambda q, k, v: flex_attention(q, k, v, block_mask=create_block_mask(causal, None, None, 12, 12, device="cpu"))
    )
    assert_same(inside, lambda q, k, v: attention(q, k, v, None, causal), *args)


def test_flex_attention_among_wrappers() -> None:
    parts = [queries(requires_grad=False) for _ in "ab"]
    y = aot_compile(lambda q, k, v: flex_attention(q, k, v, relative))(*map_two(*parts))
    torch.testing.assert_close([y.a, y.b], [attention(*part, relative) for part in parts])


def map_two(first: list[torch.Tensor], second: list[torch.Tensor]) -> list[TwoTensor]:
    return [TwoTensor(a, b) for a, b in zip(first, second, strict=True)]


def test_torch_refuses_again_when_the_trace_is_over() -> None:
    aot_compile(lambda q, k, v: flex_attention(q, k, v))(*queries())
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention(*queries())


def flexible(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    mask = create_block_mask(rows_without_keys, None, None, 12, 12, device="cpu")
    return flex_attention(q, k, v, relative, mask)


@pytest.mark.filterwarnings("ignore")  # inductor warns of parts of torch that torch itself has deprecated
@pytest.mark.parametrize("name", ["several results", "derivatives that are infinite", "map", "scan", "flex attention"])
def test_with_inductor(name: str) -> None:
    args = torch.rand(4, 3, requires_grad=True), torch.rand(3, requires_grad=True)
    if name == "flex attention":
        program, expected, args = flexible, lambda q, k, v: attention(q, k, v, relative, rows_without_keys), queries()
    elif name in LOOPS:
        program, expected = LOOPS[name]
    else:
        (program, expected), args = BRANCHES[name], args[1:]
    assert_same(aot_compile(program, fw_compiler="inductor"), expected, *args)


def test_others_are_refused() -> None:
    with pytest.raises(TraceError, match="`out_dtype` is an operator that takes functions") as caught:
        aot_compile(lambda x: torch.ops.higher_order.out_dtype(torch.ops.aten.mm.default, torch.int32, x, x))(
            torch.ones(2, 2, dtype=torch.int8)
        )
    assert "out_dtype(" in str(caught.value)


def _written(x: Any) -> Any:
    y = x.clone()
    y.add_(1)
    return while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y * 2), (torch.tensor(0), y))[1]


FUNCTIONALIZED: dict[str, Any] = {
    "a choice": lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)),
    "a loop": lambda x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))[1],
    "a loop of as many steps as the data says": lambda x: while_loop(
        lambda y: y.sum() < 20, lambda y: (y * 2,), (x.abs() + 1,)
    )[0],
    "a loop after a write": _written,
    "a loop in a choice": lambda x: torch.cond(x.sum() > 0, _written, lambda x: x.cos(), (x,)),
}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own, of a loop
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("around", [lambda f: f, lambda f: lambda x: f(x) + 1])
@pytest.mark.parametrize("program", FUNCTIONALIZED.values(), ids=FUNCTIONALIZED)
def test_inside_of_functionalize(program: Any, around: Any, dynamic: bool | None) -> None:
    """What decides is a tensor that stands for a traced one there."""
    function = around(torch.func.functionalize(program))
    compiled = aot_compile(function, dynamic=dynamic)
    for rows, factor in ((3, 1.0), (3, -1.0), (5, 1.0)):
        found = []
        for each in (function, compiled):
            x = (torch.linspace(0.1, 1, rows) * factor).requires_grad_()
            result = each(x)
            result.sum().backward()
            found.append((result.detach(), x.grad))
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
