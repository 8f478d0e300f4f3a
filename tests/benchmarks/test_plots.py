"""What the plots are drawn of is in the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import plots


def test_a_call_is_read_from_the_table() -> None:
    found = plots.calls((plots.DOCS / "benchmarks" / "table.md").read_text())
    assert {*found} == {"aot_compile", "aot_function", "eager", 'torch.compile(backend="aot_eager")'}
    assert all({1, 10, 100} <= {*times} for times in found.values())


def test_tokens_are_read_from_the_table_of_decoding() -> None:
    found = plots.tokens((plots.DOCS / "benchmarks" / "quantized.md").read_text())
    assert {*plots.WEIGHTS} <= {*found}
    assert found["dense"]['"eager"'] > 0


def test_every_plot_is_there_and_is_shown() -> None:
    pages = "".join(path.read_text() for path in [*plots.DOCS.glob("*.md"), plots.DOCS.parent / "README.md"])
    for name in plots.PLOTS:
        assert (plots.DOCS / "plots" / f"{name}.svg").exists() and f"plots/{name}.svg" in pages


def test_the_same_figures_make_the_same_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need it, and nothing else does")
    for folder in ("a", "b"):
        plots.main(["call", "tokens", "--out", str(tmp_path / folder)])
    for name in ("call.svg", "tokens.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
