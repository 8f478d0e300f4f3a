"""Exported programs of dense tensors: names, structure, sizes, writes, what is refused, and packages on their own."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.errors import ExportError
from subclass_aot.testing import difference

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.`"),  # torch's own
    pytest.mark.filterwarnings("ignore:`torch.jit.script"),
]


def layers() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    return sa.quantize_(model, sa.Int8Weight)


def through_a_file(program: torch.export.ExportedProgram) -> Any:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file).module()


def agree(fn: Callable[..., Any], program: Any, *args: Any, **kwargs: Any) -> None:
    copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
    with torch.no_grad():
        expected, got = fn(*args, **kwargs), program(*copies, **kwargs)
    expected, structure = torch.utils._pytree.tree_flatten((expected, args))
    got, found = torch.utils._pytree.tree_flatten((got, tuple(copies)))
    assert structure == found and not list(filter(None, map(difference, expected, got)))


def test_leaves_of_weights_are_buffers() -> None:
    model, x = layers(), torch.randn(3, 8)
    program = sa.export_forward(sa.aot_compile(model), (x,))
    assert {*program.state_dict} == {
        *("0.weight.codes", "0.weight.scale", "0.bias"),
        *("2.weight.codes", "2.weight.scale", "2.bias"),
    }
    assert all(type(buffer) is torch.Tensor for buffer in program.state_dict.values())
    agree(model, program.module(), x)
    agree(model, through_a_file(program), x)


@pytest.mark.parametrize("how", ["dynamic=True", "mark_dynamic", "seen to differ"])
def test_symbols_are_dynamic_sizes(how: str) -> None:
    model, x = layers(), torch.randn(3, 8)
    compiled = sa.aot_compile(model, dynamic=True if how == "dynamic=True" else None)
    if how == "mark_dynamic":
        sa.mark_dynamic(x, 0)
    if how == "seen to differ":
        with torch.no_grad():
            compiled(x), compiled(torch.randn(5, 8))
    program = sa.export_forward(compiled, (x,))
    for rows in (2, 3, 7):
        agree(model, program.module(), torch.randn(rows, 8))
    assert len(vars(torch.randn(3, 8))) == len({name for name in vars(x) if how != "mark_dynamic"})  # nothing put on it


def test_arguments_choose_among_signatures() -> None:
    model = layers()
    compiled = sa.aot_compile(model, dynamic=False)
    for rows in (3, 5, 7):
        x = torch.randn(rows, 8)
        program = sa.export_forward(compiled, (x,))
        agree(model, program.module(), x)
        sa.export_forward(compiled, (x,))
    assert len(compiled.recompiles) == 2  # a second export of a signature compiles nothing
    with pytest.raises(AssertionError, match=r"Guard failed: input.size\(\)\[0\] == 7"):
        program.module()(torch.randn(3, 8))


@pytest.mark.parametrize("dynamic", [False, True])
def test_decompositions_that_give_other_strides_than_kernels(dynamic: bool) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
            attended = nn.functional.scaled_dot_product_attention(heads, heads, heads)
            return self.layer(attended.transpose(1, 2).reshape(x.shape)) * torch.tensor([0.5] * 8)

    model, x = sa.quantize_(Attention(), sa.Int8Weight), torch.randn(2, 6, 8)
    program = sa.export_forward(sa.aot_compile(model, dynamic=dynamic), (x,))
    agree(model, program.run_decompositions().module(), x)


def test_what_a_state_dict_leaves_out_is_left_out() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.register_buffer("steps", torch.zeros(()), persistent=False)
            self.register_buffer("absent", None, persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            return self.layer(x) + self.steps

    model, x = nn.Sequential(Positions()), torch.randn(2, 8)
    program = sa.export_forward(sa.aot_compile(model), (x,))
    assert {*program.state_dict} == {*model.state_dict()}
    assert {*program.state_dict} == {*torch.export.export(model, (x,)).state_dict}
    copied = through_a_file(program)
    agree(model, copied, x)
    assert dict(copied.named_buffers())["0.steps"] == 1


def test_structure_and_names_of_arguments() -> None:
    def f(x: Any, scale: float, *rest: Any, flag: bool = True, **more: Any) -> Any:
        total = x["q"] * scale + sum(rest)
        return {"a": total.t(), "b": (total.sin(), None, flag), "c": more["extra"] + 1}

    def arguments(columns: int) -> Any:
        args = ({"q": torch.randn(3, columns)}, 0.5, torch.randn(columns), torch.randn(columns))
        return args, {"flag": False, "extra": torch.randn(2)}

    args, kwargs = arguments(4)
    program = sa.export_forward(sa.aot_compile(f, dynamic=True), args, kwargs)
    assert [node.name for node in program.graph.find_nodes(op="placeholder")][:2] == ["x_q", "scale"]
    for columns in (4, 6):
        args, kwargs = arguments(columns)
        agree(f, program.module(), *args, **kwargs)


def test_results_that_are_arguments_and_views_of_them() -> None:
    def f(x: Any) -> Any:
        return x, x.view(-1), x.detach(), x.t()[1:], x.shape[0]

    agree(f, sa.export_forward(sa.aot_compile(f), (torch.randn(3, 4),)).module(), torch.randn(3, 4))


def test_writes_into_buffers_and_arguments() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x.sum(0))
            x.mul_(2)
            return x + self.total

    model = Counts()
    program = sa.export_forward(sa.aot_compile(model), (torch.randn(3, 4),))
    assert not model.total.any()  # nothing ran
    again = through_a_file(program)
    for _ in range(2):
        agree(model, again, torch.randn(3, 4))
    kinds = [spec.kind.name for spec in program.run_decompositions().graph_signature.output_specs]
    assert kinds == ["BUFFER_MUTATION", "USER_INPUT_MUTATION", "USER_OUTPUT"]


def test_gradients_inside_and_closures() -> None:
    weight = sa.TwoTensor(torch.randn(4), torch.randn(4))

    def f(x: Any) -> Any:
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (found,) = torch.autograd.grad((y * weight.a).sin().sum(), y)
        return found

    program = sa.export_forward(sa.aot_compile(f), (torch.randn(3, 4),))
    assert {"weight.a", "weight.b"} >= set(program.state_dict)
    agree(f, program.module(), torch.randn(3, 4))


def test_random_numbers_are_drawn_anew() -> None:
    program = sa.export_forward(sa.aot_compile(nn.Dropout()), (torch.ones(8, 8),)).module()
    torch.manual_seed(0)
    first, second = program(torch.ones(8, 8)), program(torch.ones(8, 8))
    torch.manual_seed(0)
    assert first.equal(nn.Dropout()(torch.ones(8, 8))) and not first.equal(second)


def looks(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def wide(x: Any) -> Any:
    return x[x > 0]


def keeps(x: Any) -> Any:
    KEPT["x"] = x * 2
    return x


KEPT: dict[str, Any] = {}


def two() -> sa.TwoTensor:
    return sa.TwoTensor(torch.ones(3), torch.ones(3))


def of_one(f: Callable[..., Any]) -> Any:
    x = torch.arange(6.0)
    return f(x[:3], x[2:5])


REFUSED: dict[str, tuple[Callable[..., Any], Callable[[], Any], str]] = {
    "look": (looks, lambda: (torch.ones(3),), "it reads a value"),
    "size": (wide, lambda: (torch.ones(3),), "a size depends on data"),
    "beginning": (lambda x: x + x.storage_offset(), lambda: (torch.ones(3),), r"it reads where args\[0\] begins"),
    "object": (keeps, lambda: (torch.ones(3),), "it changes KEPT"),
    "wrapper out": (lambda x: (x, sa.TwoTensor(x, x)), lambda: (torch.ones(3),), "result 1 is a wrapper"),
    "wrapper in": (lambda x, y: x.a, lambda: (two(), torch.ones(3)), r"args\[0\] is a TwoTensor"),
    "one tensor": (lambda x, y: x + y, lambda: (torch.ones(3),) * 2, r"args\[0\] and args\[1\] are one tensor"),
    "one memory": (lambda x, y: x.add_(y), lambda: of_one(lambda *a: a), "it writes into memory that several"),
    "module": (lambda m, x: m(x), lambda: (nn.Tanh(), torch.ones(3)), r"a module is among its arguments \(Tanh"),
    "sizes": (lambda x: x.t_(), lambda: (torch.ones(3, 2),), "it changes an input beside its data"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    fn, args, message = REFUSED[name]
    with pytest.raises(ExportError, match=rf"(?s)cannot be exported: {message}.*Why: .*Instead: "):
        sa.export_forward(sa.aot_compile(fn, dynamic=True if name == "size" else None), args())


@pytest.mark.parametrize("args", [torch.ones(2, 3), {"x": torch.ones(3)}, 3, "x"], ids=["tensor", "dict", "int", "str"])
def test_arguments_are_a_tuple(args: Any) -> None:
    with pytest.raises(sa.errors.ExportError, match="args must be a tuple"):
        sa.export_forward(sa.aot_compile(nn.Tanh()), args)
    assert sa.export_forward(sa.aot_compile(nn.Tanh()), [torch.ones(3)]).module()(torch.zeros(3)).equal(torch.zeros(3))


def test_only_what_was_compiled() -> None:
    with pytest.raises(ExportError, match="got a Sequential"):
        sa.export_forward(layers(), (torch.ones(2, 8),))  # type: ignore[arg-type]


def test_compiled_from_an_exported_program() -> None:
    """The constraints of the export hold in what is compiled of it."""
    model, x = layers(), torch.randn(4, 8)
    rows = torch.export.Dim("rows", min=3, max=6)
    exported = torch.export.export(model, (x,), dynamic_shapes={"input": {0: rows}})
    compiled = sa.aot_compile(exported)
    for size in (4, 3, 6):
        agree(model, compiled, torch.randn(size, 8))
    assert "Sequential" not in compiled.explain() and "weight" in compiled.explain()
    for size in (2, 7):
        with pytest.raises(AssertionError, match="Guard failed"):
            exported.module()(torch.randn(size, 8))
        with pytest.raises(AssertionError, match="Guard failed"):
            compiled(torch.randn(size, 8))
    agree(model, sa.export_forward(compiled, (x,)).module(), x)


ALONE = """
import sys, torch
model = torch._inductor.aoti_load_package(sys.argv[1])
x, expected = torch.load(sys.argv[2])
torch.testing.assert_close(model(x), expected)
torch.testing.assert_close(model(x[:3]), expected[:3])
assert not any(name.startswith("subclass_aot") for name in sys.modules)
print("alone")
"""


@pytest.mark.long
def test_package_of_aotinductor_stands_alone(tmp_path: Path) -> None:
    model, x = layers(), torch.randn(5, 8)
    program = sa.export_forward(sa.aot_compile(model, dynamic=True), (x,))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    torch.save((x, model(x).detach()), tmp_path / "expected.pt")
    script = [sys.executable, "-c", ALONE, package, str(tmp_path / "expected.pt")]
    ran = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "alone", ran.stderr
