"""What is loaded does what was compiled, to the last bit, and nothing is traced."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.errors import CompiledFileError
from tests.files.compiled.programs import PROGRAMS

ROOT = Path(__file__).resolve().parents[3]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.state_dict().values()
    elif isinstance(value, dict):
        for x in value.values():
            yield from _tensors(x)
    elif isinstance(value, tuple | list):
        for x in value:
            yield from _tensors(x)
    elif hasattr(value, "__dict__"):
        yield from _tensors(vars(value))


def _bits(value: Any) -> list[Any]:
    """Everything that tells two results apart."""
    found: list[Any] = []
    for tensor in _tensors(value):
        found.append((type(tensor), tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad, tensor.is_leaf))
        if hasattr(tensor, "__tensor_flatten__"):
            names, context = tensor.__tensor_flatten__()
            found += [str(context), *_bits([getattr(tensor, name) for name in names])]
        else:
            found.append(tensor.detach().contiguous().view(-1).tolist())
    return found


def run(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """What a call gives, leaves behind and computes of gradients; and which versions that has."""
    torch.manual_seed(1)
    result = fn(*args, **kwargs)
    found = _bits(result) + _bits(args)
    versions = [(x._version, x._is_view()) for x in _tensors([result, args])]
    through = [x for x in _tensors(result) if x.requires_grad and x.grad_fn is not None]
    if through:
        torch.autograd.backward(through, [torch.ones_like(x) for x in through])
    return found + _bits([x.grad for x in _tensors(list(args)) if x.is_leaf]), versions


def _not_traced(*args: object, **kwargs: object) -> Any:
    raise AssertionError("this was traced")


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_loaded_does_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, make, kwargs = PROGRAMS[name]

    def called(of: Callable[[Any], Callable[..., Any]]) -> tuple[list[Any], list[Any]]:
        own = copy.deepcopy(fn) if isinstance(fn, nn.Module) else fn
        torch.manual_seed(0)
        args = make()
        found, versions = run(of(own), args, kwargs)
        return found + (_bits(own) if isinstance(own, nn.Module) else []), versions

    def compile_and_save(own: Any) -> Callable[..., Any]:
        compiled = sa.aot_compile(own)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = compiled(*args, **kwargs)
            compiled.save(tmp_path / "file.sa")
            return result

        return call

    expected = called(compile_and_save)
    assert expected[0] == called(lambda own: own)[0]
    monkeypatch.setattr("subclass_aot.engine.compile.trace_arguments", _not_traced)
    assert called(lambda own: sa.load_compiled(tmp_path / "file.sa", own, trust=True)) == expected
    if not isinstance(fn, nn.Module):
        assert called(lambda own: sa.load_compiled(tmp_path / "file.sa", trust=True)) == expected


def test_a_file_has_many_signatures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fn = PROGRAMS["dense"][0]
    calls = [(torch.rand(n), torch.rand(n, requires_grad=grad)) for n in (1, 2, 3) for grad in (False, True)]
    compiled = sa.aot_compile(fn, dynamic=False)
    expected = [compiled(*args) for args in calls]
    compiled.save(tmp_path / "file.sa")
    monkeypatch.setattr("subclass_aot.engine.compile.trace_arguments", _not_traced)
    loaded = sa.load_compiled(tmp_path / "file.sa", fn, trust=True)
    assert [_bits(loaded(*args)) for args in calls] == [_bits(result) for result in expected]
    assert [_bits(loaded(*args)) for args in calls] == [_bits(result) for result in expected]


def test_signatures_that_differ_in_where_an_input_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, memory = PROGRAMS["begins somewhere"][0], torch.rand(9)
    calls = [memory[n : n + 4] for n in (0, 1, 2)]
    compiled = sa.aot_compile(fn)
    expected = [compiled(x) for x in calls]
    compiled.save(tmp_path / "file.sa")
    monkeypatch.setattr("subclass_aot.engine.compile.trace_arguments", _not_traced)
    for loaded in (
        sa.load_compiled(tmp_path / "file.sa", fn, trust=True),
        sa.load_compiled(tmp_path / "file.sa", trust=True),
    ):
        for _ in range(2):
            assert [_bits(loaded(x)) for x in calls] == [_bits(result) for result in expected]
    with pytest.raises(CompiledFileError, match=r"args\[0\]: storage offset: \d in the file, 3 now"):
        loaded(memory[3:7])


def test_what_was_loaded_is_saved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, args = PROGRAMS["dense"][0], (torch.rand(3), torch.rand(3))
    compiled = sa.aot_compile(fn)
    compiled(*args)
    compiled.save(tmp_path / "one.sa")
    loaded = sa.load_compiled(tmp_path / "one.sa", fn, trust=True)
    loaded(*args)
    loaded.save(tmp_path / "two.sa")
    monkeypatch.setattr("subclass_aot.engine.compile.trace_arguments", _not_traced)
    assert _bits(sa.load_compiled(tmp_path / "two.sa", trust=True)(*args)) == _bits(fn(*args))


def test_a_call_that_fits_nothing_is_traced(tmp_path: Path) -> None:
    fn = PROGRAMS["dense"][0]
    compiled = sa.aot_compile(fn, dynamic=False)
    compiled(torch.rand(3), torch.rand(3))
    compiled.save(tmp_path / "file.sa")
    loaded = sa.load_compiled(tmp_path / "file.sa", fn, trust=True)
    assert _bits(loaded(*(x := (torch.rand(4), torch.rand(4))))) == _bits(fn(*x))


def test_another_process_does_the_same(tmp_path: Path) -> None:
    names = ["views of wrappers", "writes", "objects", "draws", "nested wrappers", "own class", "constants", "looks"]
    for name in names:
        fn, make, kwargs = PROGRAMS[name]
        compiled = sa.aot_compile(fn)
        torch.manual_seed(0)
        found = run(compiled, make(), kwargs)
        compiled.save(tmp_path / f"{name}.sa")
        torch.save(found, tmp_path / f"{name}.pt")
    command = [sys.executable, "-W", "ignore", "-m", "tests.files.compiled.loading", str(tmp_path), *names]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout == "all the same\n", ran.stderr
