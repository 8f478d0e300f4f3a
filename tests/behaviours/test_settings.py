"""Settings of torch that a function reads: when one changes, the function is compiled again, and found again after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import get_num_threads, nn

import subclass_aot as sa
from tests.by_door import DOORS

backends: Any = torch.backends
x = torch.ones(2)


def flag(name: str, value: bool) -> None:
    """Sets one of cuDNN's, also where torch's own tests, once they are imported, want each in a block."""
    with getattr(backends, "__allow_nonbracketed_mutation")():  # noqa: B009  # which a class would mangle
        setattr(backends.cudnn, name, value)


SETTINGS: dict[str, tuple[Callable[[], Any], list[Any], Callable[[Any], Any]]] = {
    "torch.get_float32_matmul_precision()": (
        lambda: torch.get_float32_matmul_precision(), ["highest", "high"],
        lambda value: torch.set_float32_matmul_precision(value)),
    "torch.get_num_threads()": (lambda: torch.get_num_threads(), [1, 2], torch.set_num_threads),
    "torch.get_autocast_dtype('cpu')": (
        lambda: torch.get_autocast_dtype("cpu"), [torch.bfloat16, torch.float16],
        lambda value: torch.set_autocast_dtype("cpu", value)),
    "torch.is_autocast_cache_enabled()": (
        lambda: torch.is_autocast_cache_enabled(), [True, False], torch.set_autocast_cache_enabled),
    "torch.is_warn_always_enabled()": (lambda: torch.is_warn_always_enabled(), [False, True], torch.set_warn_always),
    "torch.__future__.get_swap_module_params_on_conversion()": (
        lambda: torch.__future__.get_swap_module_params_on_conversion(), [False, True],
        lambda value: torch.__future__.set_swap_module_params_on_conversion(value)),
    "torch.backends.mha.get_fastpath_enabled()": (
        lambda: torch.backends.mha.get_fastpath_enabled(), [True, False],
        lambda value: torch.backends.mha.set_fastpath_enabled(value)),
    "torch.backends.cuda.flash_sdp_enabled()": (
        lambda: torch.backends.cuda.flash_sdp_enabled(), [True, False], backends.cuda.enable_flash_sdp),
    "torch.backends.cuda.math_sdp_enabled()": (
        lambda: torch.backends.cuda.math_sdp_enabled(), [True, False], backends.cuda.enable_math_sdp),
    "torch.backends.cudnn.enabled": (
        lambda: torch.backends.cudnn.enabled, [True, False], lambda value: flag("enabled", value)),
    "torch.backends.cudnn.benchmark": (
        lambda: torch.backends.cudnn.benchmark, [False, True],
        lambda value: flag("benchmark", value)),
    "torch.backends.cudnn.allow_tf32": (
        lambda: backends.cudnn.allow_tf32, [True, False], lambda value: flag("allow_tf32", value)),
    "torch.backends.cuda.matmul.allow_tf32": (
        lambda: torch.backends.cuda.matmul.allow_tf32, [False, True],
        lambda value: setattr(backends.cuda.matmul, "allow_tf32", value)),
    "torch.backends.mkldnn.enabled": (
        lambda: backends.mkldnn.enabled, [True, False], lambda value: torch._C._set_mkldnn_enabled(value)),
    "torch.backends.quantized.engine": (
        lambda: torch.backends.quantized.engine, backends.quantized.supported_engines[-2:],
        lambda value: setattr(backends.quantized, "engine", value)),
    # modes, which each call compares
    "default dtype": (lambda: torch.get_default_dtype(), [torch.float32, torch.float64], torch.set_default_dtype),
    "grad mode": (lambda: torch.is_grad_enabled(), [True, False], torch._C._set_grad_enabled),
    "deterministic debug mode": (
        lambda: torch.are_deterministic_algorithms_enabled(), [False, True],
        lambda value: torch.use_deterministic_algorithms(value)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with ExitStack() as stack:  # all are put back, whichever fails
        for read, _, change in SETTINGS.values():
            stack.callback(change, read())
        yield


@pytest.mark.every_case
@pytest.mark.parametrize("name", SETTINGS)
def test_a_change_compiles_again(name: str) -> None:
    read, (one, other), change = SETTINGS[name]
    compiled = sa.aot_compile(lambda x: x * (2 if read() == one else 3))
    for value in (one, other, one, other):
        change(value)
        assert compiled(x).tolist() == [2.0 if value == one else 3.0] * 2
    (reason,) = compiled.recompiles
    assert name in reason


NOT_GUARDED_BY_DYNAMO = ("autocast_dtype", "_sdp_")


@pytest.mark.parametrize("name", [name for name in SETTINGS if not any(n in name for n in NOT_GUARDED_BY_DYNAMO)])
def test_by_torch_compile(name: str) -> None:
    read, (one, other), change = SETTINGS[name]
    torch._dynamo.reset()
    compiled = DOORS["torch.compile"](lambda x: x * (2 if read() == one else 3))
    for value in (one, other, one):
        change(value)
        assert compiled(x).tolist() == [2.0 if value == one else 3.0] * 2


def test_by_a_name_of_the_program_and_where_it_is_held() -> None:
    held = {"threads": torch.get_num_threads}

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(sa.TwoTensor(torch.ones(2), torch.ones(2)))
            self.read = torch.get_num_threads

        def forward(self, x: Any) -> Any:
            return self.weight * x * self.read()

    programs = [lambda x: x * get_num_threads(), lambda x: x * held["threads"](), Model()]
    for program in programs:
        compiled = sa.aot_compile(program, dynamic=True)
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            for size in (2, 3):
                found = compiled(torch.ones(2)) if program is programs[-1] else compiled(torch.ones(size))
                expected = program(torch.ones(2)) if program is programs[-1] else program(torch.ones(size))
                assert str(found) == str(expected) or torch.equal(found, expected)
        assert len(compiled.recompiles) == 1


def test_who_reads_none_compares_none() -> None:
    """What torch itself reads does not count, and what only one branch reads counts for that."""
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)
    norm = nn.BatchNorm1d(4)
    compiled = sa.aot_compile(lambda x: (layer(x), norm(x[0]), torch.einsum("abc,abc->ab", x, x)))
    given = torch.rand(2, 3, 4)
    compiled(given)
    assert "setting" not in compiled.source
    flag("enabled", False)
    compiled(given)
    assert not compiled.recompiles

    branches = sa.aot_compile(lambda x, reads: x * torch.get_num_threads() if reads else x + 1)
    for count in (1, 2):
        torch.set_num_threads(count)
        assert branches(x, False).tolist() == [2, 2] and branches(x, True).tolist() == [count] * 2
    assert len(branches.recompiles) == 2


def test_what_is_replaced_is_put_back() -> None:
    def readers() -> list[Any]:
        return [torch.get_num_threads, torch.get_autocast_dtype, vars(backends.ContextProp)["__get__"]]

    before = readers()
    sa.aot_compile(lambda x: x * 2)(x)
    with pytest.raises(ZeroDivisionError):
        sa.aot_compile(lambda x: 1 / 0)(x)
    assert all(a is b for a, b in zip(before, readers(), strict=True))


def step(x: Any) -> Any:
    return x * torch.get_num_threads()


def test_in_files(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    compiled = sa.aot_compile(step)
    compiled(x)
    compiled.save(tmp_path / "step.sa")
    for count, misses in ((1, 0), (2, 1)):
        loaded = sa.load_compiled(tmp_path / "step.sa", step, trust=True)
        torch.set_num_threads(count)
        assert loaded(x).tolist() == [count] * 2 and len(loaded.recompiles) == misses
