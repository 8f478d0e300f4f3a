"""Files with symbolic sizes: what is loaded does the same at other sizes, and its guards are those of the trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.base.refused import Refused
from subclass_aot.files.compiled.sizes import SavedSize, SavedSymbols, number_of, saved_symbols, symbols_of, words_of
from subclass_aot.meta.symbols import Symbols
from tests.files.compiled.sized import SIZED, halves
from tests.files.compiled.test_programs import _not_traced, run


def saved(name: str, path: Path, n: int = 4, **options: Any) -> Any:
    """The compiled function, of which a file was written."""
    fn, make = SIZED[name]
    compiled = sa.aot_compile(fn, **{"dynamic": True, **options})
    args, kwargs = make(n)
    compiled(*args, **kwargs)
    compiled.save(path)
    return compiled


def assumed(compiled: Any) -> list[str]:
    return [text for each in compiled._specializations for text, _ in each.signature.assumptions.symbols.assumptions()]


@pytest.mark.parametrize("name", SIZED)
def test_other_sizes_do_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = saved(name, tmp_path / "x.sa")
    fn, make = SIZED[name]

    def at_size(n: int, call: Callable[..., Any]) -> Any:
        torch.manual_seed(n)
        args, kwargs = make(n)
        return run(call, args, kwargs)

    monkeypatch.setattr("subclass_aot.engine.compile.trace_arguments", _not_traced)
    for function in (fn, None):
        loaded = sa.load_compiled(tmp_path / "x.sa", function, trust=True)
        for n in (6, 4, 10):
            assert at_size(n, loaded)[0] == at_size(n, fn)[0]
        assert assumed(loaded) == assumed(compiled) * len(loaded._specializations)


def test_an_assumption_that_does_not_hold_is_named(tmp_path: Path) -> None:
    saved("training", tmp_path / "x.sa")
    args = SIZED["training"][1](7)[0]
    for calls_before in (0, 1):
        loaded = sa.load_compiled(tmp_path / "x.sa", trust=True)
        for _ in range(calls_before):
            loaded(*SIZED["training"][1](6)[0])
        with pytest.raises(
            sa.CompiledFileError, match=r"\(args\[0\].size\(0\) % 2\) == 0: assumed: so in the file, not so, where args"
        ):
            loaded(*args)
    traced = sa.load_compiled(tmp_path / "x.sa", halves, trust=True)
    assert traced(*args).equal(halves(*args))
    assert "args[0].size(0) % 2" in traced.explain()


def test_sizes_that_differ_where_one_symbol_was(tmp_path: Path) -> None:
    saved("dense", tmp_path / "x.sa")
    loaded = sa.load_compiled(tmp_path / "x.sa", trust=True)
    line = r"args\[1\].size\(0\): size: args\[0\].size\(0\) in the file, that is 5, 3 now"
    with pytest.raises(sa.CompiledFileError, match=line):
        loaded(torch.rand(5), torch.rand(3))
    with pytest.raises(sa.CompiledFileError, match=r"args\[0\].size\(0\) >= 2: assumed: so in the file"):
        loaded(torch.rand(1), torch.rand(1))


def test_known_sizes_first_and_then_symbols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, make = SIZED["training"]
    compiled = sa.aot_compile(fn)
    for n in (4, 6):
        compiled(*make(n)[0])
    compiled.save(tmp_path / "x.sa")
    assert [len(each.places) > 0 for each in compiled._specializations] == [True, False]
    monkeypatch.setattr("subclass_aot.engine.compile.trace_arguments", _not_traced)
    loaded = sa.load_compiled(tmp_path / "x.sa", trust=True)
    for n in (4, 8, 4, 10):
        x, y = make(n)[0]
        assert run(loaded, (x, y), {}) == run(compiled, (x.detach().requires_grad_(), y), {})


def test_marks_are_kept(tmp_path: Path) -> None:
    x = torch.rand(4, 3)
    sa.mark_dynamic(x, 0, min=3, max=8)
    compiled = sa.aot_compile(torch.sin)
    compiled(x)
    compiled.save(tmp_path / "x.sa")
    loaded = sa.load_compiled(tmp_path / "x.sa", trust=True)
    assert loaded(torch.ones(8, 3)).equal(torch.ones(8, 3).sin())
    with pytest.raises(sa.CompiledFileError, match=r"args\[0\].size\(0\) <= 8: assumed: so in the file"):
        loaded(torch.ones(9, 3))
    with pytest.raises(sa.CompiledFileError, match=r"args\[0\]: tensor: .*'s0', 3.* in the file, .*'s0', 4.* now"):
        loaded(torch.ones(8, 4))


@pytest.mark.parametrize("name", ["training", "alike, training", "int8 weight"])
def test_what_was_loaded_is_saved_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = saved(name, tmp_path / "one.sa")
    fn, make = SIZED[name]
    loaded = sa.load_compiled(tmp_path / "one.sa", fn, trust=True)
    loaded(*make(6)[0])
    loaded.save(tmp_path / "two.sa")
    monkeypatch.setattr("subclass_aot.engine.compile.trace_arguments", _not_traced)
    again = sa.load_compiled(tmp_path / "two.sa", trust=True)
    again(*make(8)[0])
    assert assumed(again) == assumed(compiled)


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda x: torch.nonzero(x) + 1, "it assumes something of numbers that depend on data"),
        (lambda x: x.sum().item() * 2, "depends on data"),
        (lambda x: x * x.shape[0] ** 0.5, "sym_float, which is a function of Python"),
        (
            lambda x: x * 2 if x.shape[0] / 2 < 7 else x,
            "symbols: Float of sizes cannot be written. Compile",
        ),
    ],
)
def test_what_is_no_whole_number_of_sizes_is_refused(fn: Any, what: str, tmp_path: Path) -> None:
    compiled = sa.aot_compile(fn, dynamic=True)
    for n in (3, 4, 5):
        compiled(torch.ones(n, dtype=torch.long))
    with pytest.raises(sa.CompiledFileError, match=what):
        compiled.save(tmp_path / "x.sa")


def test_symbols_are_made_again() -> None:
    symbols = Symbols()
    a, b = symbols.size(8, "x.size(0)"), symbols.size(6, "x.size(1)")
    assert a % 2 == 0 and a // 2 < b and a * b != 7
    record = saved_symbols(symbols)
    again = symbols_of(record)
    assert [t for t, _ in again.assumptions()] == [t for t, _ in symbols.assumptions()]
    assert record.sizes[0] == SavedSize("x.size(0)", 8, 4, None) or record.sizes[0].hint == 8
    number = number_of(words_of((a * b + 1).node.expr, symbols), again)
    assert again.text(number) == symbols.text(a * b + 1) and number.node.hint == 49


SIZES = (SavedSize("x.size(0)", 8, 2, None), SavedSize("x.size(1)", 6, 2, None))


@pytest.mark.parametrize(
    "written", ["s2", "__import__('os')", "s0 + 1", ["Symbol", "s0"], ["Function", "s0"], ["eval", "s0"], None, 1.5, {}]
)
def test_what_is_no_size_is_refused(written: Any) -> None:
    with pytest.raises(Refused):
        number_of(written, symbols_of(SavedSymbols(SIZES, ())))


def test_what_is_true_of_any_sizes_is_no_assumption() -> None:
    symbols = symbols_of(SavedSymbols(SIZES, (["Equality", 1, 1], ["StrictLessThan", 0, "s1"])))
    assert symbols.assumptions() == [("s0 >= 2", ""), ("s1 >= 2", "")]


@pytest.mark.parametrize(
    "record",
    [
        SavedSymbols((SavedSize("x", 8, 9, None),), ()),
        SavedSymbols((SavedSize("x", 8, 2, 7),), ()),
        SavedSymbols(SIZES, (["Equality", "s0", 7],)),
    ],
)
def test_what_are_no_symbols_is_refused(record: SavedSymbols) -> None:
    with pytest.raises(Refused):
        symbols_of(record)
