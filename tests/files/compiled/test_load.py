"""Loading a file: with the function and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_without_the_function_other_calls_are_errors(tmp_path: Path) -> None:
    compiled = sa.aot_compile(doubled)
    compiled(torch.rand(3))
    compiled.save(tmp_path / "x.sa")
    loaded = sa.load_compiled(tmp_path / "x.sa", trust=True)
    assert loaded(torch.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(sa.CompiledFileError, match=r"args\[0\]: tensor: .*\[3\].* in the file, .*\[4\].* now"):
        loaded(torch.ones(4))
    with pytest.raises(sa.CompiledFileError, match="structure of the arguments: "):
        loaded([torch.ones(3)])


def test_without_the_function_nothing_that_it_holds_is_there(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    compiled = sa.aot_compile(layer)
    x = torch.rand(1, 2)
    expected = compiled(x)
    compiled.save(tmp_path / "x.sa")
    assert sa.load_compiled(tmp_path / "x.sa", layer, trust=True)(x).equal(expected)
    with pytest.raises(
        sa.CompiledFileError, match=r"it reads or changes self.weight, which only the function or module"
    ):
        sa.load_compiled(tmp_path / "x.sa", trust=True)(x)


def test_other_weights_of_the_same_look_fit(tmp_path: Path) -> None:
    compiled = sa.aot_compile(nn.Linear(2, 2))
    compiled(torch.rand(1, 2))
    compiled.save(tmp_path / "x.sa")
    other, x = nn.Linear(2, 2), torch.rand(1, 2)
    assert sa.load_compiled(tmp_path / "x.sa", other, trust=True)(x).equal(other(x))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sa.load_compiled(tmp_path / "none.sa", trust=True)


def test_the_function_is_not_there_for_transforms(tmp_path: Path) -> None:
    compiled = sa.aot_compile(doubled)
    compiled(torch.rand(3))
    compiled.save(tmp_path / "x.sa")
    with pytest.raises(sa.SubclassAotError, match="nothing can be traced, exported or"), pytest.warns(UserWarning):
        torch.func.vmap(sa.load_compiled(tmp_path / "x.sa", trust=True))(torch.rand(3))


def test_another_kind_of_gradient_is_an_error_by_name(tmp_path: Path) -> None:
    compiled = sa.aot_compile(doubled)
    x = torch.rand(3, requires_grad=True)
    compiled(x)
    compiled.save(tmp_path / "x.sa")
    result: Any = sa.load_compiled(tmp_path / "x.sa", trust=True)(x)
    with pytest.raises(sa.SubclassAotError, match="it was loaded from a file, and a gradient of another kind"):
        result.backward(sa.TwoTensor(torch.rand(3), torch.rand(3)))


def _noting(names: list[str], name: str) -> Any:
    def compiler(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        names.append(name)
        return graph

    return compiler


@pytest.mark.parametrize("written", [None, "eager", "inductor"])
def test_the_compiler_of_inference(written: str | None, tmp_path: Path) -> None:
    compiled, x = sa.aot_compile(doubled, inference_compiler=written), torch.ones(3)
    compiled(x), compiled(x.clone().requires_grad_()).sum().backward()
    compiled.save(tmp_path / "x.sa")
    assert sa.load_compiled(tmp_path / "x.sa", trust=True)(x).tolist() == [2, 2, 2]
    names: list[str] = []
    compiler = _noting(names, "inference")
    loaded = sa.load_compiled(tmp_path / "x.sa", doubled, trust=True, inference_compiler=compiler)
    assert loaded(x).tolist() == [2, 2, 2] and names == ["inference"]
    loaded(x.clone().requires_grad_()).sum().backward()
    loaded(torch.ones(4)), loaded(torch.ones(5, requires_grad=True)).sum().backward()
    assert names == ["inference"] * 2
