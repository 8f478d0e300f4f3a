"""Going on with what a file has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import subclass_aot as sa
from subclass_aot.files.compiled.restore import NoFunction


def chosen(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x * 3


def test_what_stands_for_no_function_says_so() -> None:
    with pytest.raises(sa.SubclassAotError, match="loaded from a file without its function"):
        NoFunction(1)


def test_one_signature_for_several_values(tmp_path: Path) -> None:
    compiled = sa.aot_compile(chosen)
    calls = torch.ones(2), -torch.ones(2)
    expected = [compiled(x) for x in calls]
    compiled.save(tmp_path / "x.sa")
    loaded = sa.load_compiled(tmp_path / "x.sa", trust=True)
    assert all(loaded(x).equal(y) for x, y in zip(calls * 2, expected * 2, strict=True))


def test_lists_that_change_are_told_apart(tmp_path: Path) -> None:
    compiled = sa.aot_compile(lambda one, other: one.append(other[0]))
    one, other = [torch.ones(1)], [torch.ones(1)]
    compiled(one, other)
    compiled.save(tmp_path / "x.sa")
    loaded = sa.load_compiled(tmp_path / "x.sa", trust=True)
    one.pop()
    loaded(one, other)
    assert len(one) == 2
    with pytest.raises(sa.CompiledFileError, match="the lists and dicts that are passed twice"):
        loaded(other, other)


def test_explain_says_where_it_comes_from(tmp_path: Path) -> None:
    compiled = sa.aot_compile(chosen)
    compiled(torch.ones(2))
    compiled.save(tmp_path / "x.sa")
    loaded = sa.load_compiled(tmp_path / "x.sa", chosen, trust=True)
    loaded(torch.ones(2))
    assert f"loaded from {tmp_path / 'x.sa'}" in loaded.explain() and "def call(" in loaded.source


def test_what_was_dropped_is_read_again(tmp_path: Path) -> None:
    compiled = sa.aot_compile(chosen, cache_limit=1, dynamic=False)
    calls = torch.ones(2), torch.ones(3)
    compiled(calls[0])
    compiled.save(tmp_path / "x.sa")
    loaded = sa.load_compiled(tmp_path / "x.sa", chosen, trust=True)
    assert all(loaded(x).equal(x * 2) for x in calls * 2)
    assert loaded.recompiles[0].startswith("nothing in the file fits: args[0]: tensor: ")


def test_other_values_are_named(tmp_path: Path) -> None:
    compiled = sa.aot_compile(chosen)
    compiled(torch.ones(2))
    compiled.save(tmp_path / "x.sa")
    with pytest.raises(sa.CompiledFileError, match="values of tensors that the program reads"):
        sa.load_compiled(tmp_path / "x.sa", trust=True)(-torch.ones(2))


def failing(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> None:
    """A compiler that takes nothing."""
    raise ZeroDivisionError("of the compiler")


def test_errors_of_a_compiler_are_its_own(tmp_path: Path) -> None:
    compiled = sa.aot_compile(torch.sin)
    compiled(torch.ones(2))
    compiled.save(tmp_path / "x.sa")
    with pytest.raises(ZeroDivisionError, match="of the compiler"):
        sa.load_compiled(tmp_path / "x.sa", fw_compiler=failing, trust=True)(torch.ones(2))
