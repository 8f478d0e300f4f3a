"""Composite operators that torch has in Python, which symbolic sizes call for, do what those in C++ do."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import optree
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.base import _torch
from subclass_aot.testing import sharing

Case = tuple[Callable[..., Any], Callable[[int], list[Any]]]


def rand(*size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(1))


def scaled(mode: str, dims: int, **options: Any) -> Case:
    kept = {"align_corners": False} if "nearest" not in mode else {}
    resize = lambda x: functional.interpolate(x, scale_factor=2.0, mode=mode, **kept, **options)  # noqa: E731
    return resize, lambda n: [rand(n, 2, *[4] * dims)]


def network(cls: type[nn.Module], packed: bool = False, **options: Any) -> Case:
    torch.manual_seed(0)
    module = cls(4, 3, **options)

    def call(x: Any) -> Any:
        if packed:
            packed_x = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 2]), batch_first=True)
            out, state = module(packed_x)
            return out.data, state
        return module(x)

    return call, lambda n: [rand(2, n, 4) if packed else rand(n, 3, 4)]


def case(program: Callable[..., Any], *sizes: tuple[int | None, ...]) -> Case:
    return program, lambda n: [rand(*(n if size is None else size for size in s)) for s in sizes]


CASES: dict[str, Case] = {
    **{f"upsample_nearest{d}d": scaled("nearest", d) for d in (1, 2, 3)},
    **{f"_upsample_nearest_exact{d}d": scaled("nearest-exact", d) for d in (1, 2, 3)},
    "upsample_linear1d": scaled("linear", 1),
    "upsample_bilinear2d": scaled("bilinear", 2),
    "upsample_bicubic2d": scaled("bicubic", 2),
    "upsample_trilinear3d": scaled("trilinear", 3),
    "_upsample_bilinear2d_aa": scaled("bilinear", 2, antialias=True),
    "_upsample_bicubic2d_aa": scaled("bicubic", 2, antialias=True),
    "lstm": network(nn.LSTM, num_layers=3, dropout=0.5, bidirectional=True, batch_first=True),
    "lstm with projections": network(nn.LSTM, num_layers=2, dropout=0.5, proj_size=2),
    "lstm, packed": network(nn.LSTM, packed=True, num_layers=2, dropout=0.5),
    "lstm of one layer": network(nn.LSTM),
    "gru": network(nn.GRU, num_layers=2, dropout=0.5, bias=False),
    "gru, packed": network(nn.GRU, packed=True, num_layers=2, dropout=0.5, bidirectional=True),
    "rnn_tanh": network(nn.RNN, num_layers=2, dropout=0.5, batch_first=True),
    "rnn_tanh, packed": network(nn.RNN, packed=True, num_layers=2, dropout=0.5),
    "rnn_relu": network(nn.RNN, num_layers=3, dropout=0.5, nonlinearity="relu"),
    "rnn_relu, packed": network(nn.RNN, packed=True, num_layers=2, dropout=0.5, nonlinearity="relu"),
    "tensor_split": case(lambda x: torch.tensor_split(x, torch.tensor([1, 3])), (None, 3)),
    "stft": case(lambda x: torch.stft(x, 4, 2, window=torch.ones(4), return_complex=True).abs(), (None, 16)),
    "istft": case(lambda x: torch.istft(torch.complex(x, x), 4, 2, window=torch.ones(4)), (None, 3, 8)),
    "one_hot": case(lambda x: functional.one_hot((x > 0).long(), 3) * x[..., None], (None, 3)),
    "native_batch_norm": case(
        lambda x: torch.native_batch_norm(x, torch.ones(3), torch.ones(3), None, None, True, 0.1, 1e-5), (None, 3)
    ),
    "empty": case(lambda x: torch.empty(x.shape, out=torch.zeros(x.shape)).zero_() + x, (None, 3)),
    "matmul": case(lambda x, y: x @ y, (3, None, 2), (2, None)),
    "matmul of batches": case(lambda x, y: x @ y, (3, None, 2), (2, None)),
    "matmul of vectors": case(lambda x, y: (x @ y, y @ x.t()), (3, None), (None,)),
    "broadcast_tensors": case(lambda x, y: torch.broadcast_tensors(x, y), (None, 3), (3,)),
    "broadcast_tensors of one size": case(lambda x, y: torch.broadcast_tensors(x, y), (None, 3), (None, 3)),
    "unsafe_chunk": case(lambda x: torch.unsafe_chunk(x, 2), (None, 3)),
    "pad_sequence": case(lambda x, y: nn.utils.rnn.pad_sequence([x, y]), (None, 3), (2, 3)),
    "softshrink": case(lambda x: functional.softshrink(x), (None, 3)),
    "hardshrink": case(lambda x: functional.hardshrink(x), (None, 3)),
    "multi_margin_loss": case(
        lambda x: functional.multi_margin_loss(x, torch.zeros(x.shape[0], dtype=torch.long)), (None, 3)
    ),
    "multilabel_margin_loss_forward": case(
        lambda x: functional.multilabel_margin_loss(x, torch.zeros(x.shape, dtype=torch.long)), (None, 3)
    ),
    "dropout": case(lambda x: functional.dropout(x, 0.5), (None, 3)),
    "dropout in bfloat16": case(lambda x: functional.dropout(x.bfloat16(), 0.3), (None, 3)),
    "dropout of a view": case(lambda x: functional.dropout(x.t(), 0.3), (None, 3)),
    "dropout that is off": case(lambda x: (h := x * 2, functional.dropout(h, 0.5, training=False)), (None, 3)),
    "dropout of an argument that is off": case(lambda x: nn.Dropout().eval()(x), (None, 3)),
    "dropout of nothing": case(lambda x: functional.dropout(x, 0.0), (None, 3)),
    "dropout of all": case(lambda x: functional.dropout(x, 1.0), (None, 3)),
    "dropout in place": case(lambda x: functional.dropout(x * 2, 0.5, inplace=True), (None, 3)),
    "dropout of attention": case(
        lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3), (2, None, 4)
    ),
    "dropout of channels": case(lambda x: functional.dropout2d(x, 0.5), (None, 3, 2, 2)),
    "alpha dropout that is off": case(lambda x: functional.alpha_dropout(x, 0.5, training=False), (None, 3)),
}

ELSEWHERE = {
    "cudnn_batch_norm": "is for a device",
    "miopen_batch_norm": "is for a device",
    "_upsample_lanczos2d_aa": "is new, and no function of torch calls it",
}


def seen(function: Any, args: list[Any]) -> dict[str, Any]:
    """What is to be the same."""
    torch.manual_seed(3)
    args = [x.detach().requires_grad_() for x in args]
    made = function(*args)
    results = list(made) if isinstance(made, tuple | list) else [made]
    results = [x for result in results for x in (result if isinstance(result, tuple) else (result,))]
    tensors = [*args, *results]
    ends = [x for x in results if x.requires_grad]
    gradients = torch.autograd.grad([x.float().square().sum() for x in ends], args, allow_unused=True)
    return {
        "identity": [next(i for i, y in enumerate(tensors) if y is x) for x in tensors],
        "sharing": sharing(tensors),
        "looks": [(x.dtype, x.shape, x.stride(), x.requires_grad) for x in results],
        "draws": torch.get_rng_state().tolist(),
        "values": results,
        "gradients": gradients,
    }


def alike(expected: dict[str, Any], got: dict[str, Any]) -> None:
    for what in ("identity", "sharing", "looks", "draws"):
        assert expected[what] == got[what], what
    for what in ("values", "gradients"):
        torch.testing.assert_close(got[what], expected[what], rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    ("name", "dynamic"),
    # Without symbols the kernel of `tensor_split` reads the positions, which is refused by name.
    [(name, dynamic) for name in CASES for dynamic in (True, False) if dynamic or name != "tensor_split"],
)
def test_both_forms_do_what_eager_does(name: str, dynamic: bool) -> None:
    program, make = CASES[name]
    compiled = aot_compile(program, dynamic=dynamic)
    for size in (4, 5):
        alike(seen(program, make(size)), seen(compiled, make(size)))


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="other versions of torch have other forms in Python"
)
def test_each_form_in_python_is_among_them() -> None:
    key = torch._C.DispatchKey
    names = set()
    for name in torch._C._dispatch_get_all_op_names():
        space, packet, overload = (re.match(r"(\w+)::(\w+)\.?(\w*)", name) or [""] * 3).groups()  # type: ignore[union-attr]
        func = getattr(getattr(getattr(torch.ops, space, None), packet, None), overload or "default", None)
        kernels = getattr(func, "py_kernels", {})
        if key.CompositeImplicitAutograd in kernels or key.Autograd in kernels:
            names.add(packet)
    assert "dropout" in names and len(names) > 20
    assert names - {re.match(r"\w+", name)[0] for name in CASES} - set(ELSEWHERE) == set()  # type: ignore[index]


@pytest.mark.parametrize(
    "off", [lambda x: functional.dropout(x, 0.3, training=False), lambda x: functional.dropout(x, 0.0)]
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_write_into_what_dropout_gives_back(off: Any, wrapped: bool) -> None:
    """It gives the tensor itself, so the write reaches it. The second call has symbolic sizes."""

    def program(x: Any) -> Any:
        h = x * 2
        y = off(h)
        y += x
        return h + y

    compiled = aot_compile(program)
    for n in (3, 4, 5):
        x = TwoTensor(rand(n), rand(n)) if wrapped else rand(n)
        expected, got = program(x), compiled(x)
        pairs = zip((expected.a, expected.b), (got.a, got.b), strict=True) if wrapped else [(expected, got)]
        assert all(torch.equal(a, b) for a, b in pairs)
    assert len(compiled.recompiles) == 1


def test_dropout_is_one_operator_of_the_graph_with_symbols_and_without() -> None:
    def operators(dynamic: bool) -> list[str]:
        found: list[str] = []

        def compiler(graph: Any, inputs: Any) -> Any:
            found.extend(str(n.target) for n in graph.graph.nodes if n.op == "call_function" and "sym" not in n.name)
            return graph

        aot_compile(lambda x: functional.dropout(x, 0.3), dynamic=dynamic, fw_compiler=compiler)(rand(4, 3))
        return found

    assert operators(True) == operators(False)


def test_torchs_own_kernels_are_back_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """And another thread that asks meanwhile gets them."""
    dropout = torch.ops.aten.dropout.default
    kernels, own, asked = dropout.py_kernels, dict(dropout.py_kernels), []

    def noting(kernel: Any) -> Any:
        def noted(*args: Any) -> Any:
            asked.append(threading.current_thread())
            return kernel(*args)

        return noted

    for key, kernel in own.items():
        monkeypatch.setitem(kernels, key, noting(kernel))
    before = dict(kernels)

    def ask() -> None:
        with torch._dispatch.python.enable_python_dispatcher():
            torch.dropout(torch.ones(2), 0.5, False)

    thread = threading.Thread(target=ask)

    def program(x: Any) -> Any:
        thread.start()
        thread.join()
        return functional.dropout(x, 0.5, False) is x

    dropout._dispatch_cache.clear()
    try:
        assert aot_compile(program, dynamic=True)(rand(3)) is True
        assert asked == [thread] and kernels == before
        ask()
        assert asked == [thread, threading.current_thread()]
    finally:
        monkeypatch.undo()
        dropout._dispatch_cache.clear()


@pytest.mark.parametrize("cls", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"num_layers": 2, "dropout": 0.5}], ids=str)
def test_states_of_recurrent_layers_have_the_sizes_of_eager_mode(cls: Any, options: dict[str, Any]) -> None:
    """Torch 2.11 has a form of LSTM in Python that gives states of four dims."""
    layer, x = cls(4, 8, batch_first=True, **options), torch.rand(2, 5, 4)
    expected, got = (optree.tree_leaves(f(x)) for f in (layer, aot_compile(layer, dynamic=True)))
    assert [y.shape for y in got] == [y.shape for y in expected]


@pytest.mark.parametrize("is_in_cpp", [True, False])
@pytest.mark.parametrize(
    "shapes", [((3, 4, 5), (5, 6)), ((3, 2, 4, 5), (3, 2, 5, 6)), ((5,), (5, 6)), ((3, 1, 4, 5), (2, 5, 6))]
)
def test_products_of_any_size(shapes: Any, is_in_cpp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def takes_no_symbols(*_: object) -> Any:
        raise RuntimeError("Cannot call sizes() on tensor with symbolic sizes/strides")

    if not is_in_cpp:  # as with older torches
        monkeypatch.setattr(_torch.python_kernels, "in_cpp", lambda _: takes_no_symbols)
    compiled = aot_compile(torch.matmul, dynamic=True)
    for more in (0, 1):
        x, y = (torch.rand([n if n == 1 else n + more for n in shape]) for shape in shapes)
        assert compiled(x, y).equal(x @ y)
    assert not compiled.recompiles
