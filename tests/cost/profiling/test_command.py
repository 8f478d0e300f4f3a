"""The command line of profiles."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from subclass_aot.__main__ import main


class Config:
    def __init__(self, vocab_size: int = 100, width: int = 32, layers: int = 2) -> None:
        self.vocab_size, self.width, self.layers = vocab_size, width, layers


class WordsLM(nn.Module):
    """A model as those of transformers: made of a configuration."""

    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.table = nn.Embedding(config.vocab_size, config.width)
        self.layers = nn.Sequential(*[nn.Linear(config.width, config.width) for _ in range(config.layers)])

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        scores = self.layers(self.table(input_ids)) @ self.table.weight.t()
        if labels is None:
            return {"logits": scores}
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())}


def step(model: nn.Module, x: torch.Tensor) -> None:
    model(x).sum().backward()


def program() -> tuple[object, ...]:
    return step, nn.Linear(10**6, 10**6), torch.empty(10**6, 10**6)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "programs_of_mine", sys.modules[__name__])


def test_a_model_of_a_library_by_its_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "profile programs_of_mine:WordsLM -c layers=3 width=64 --tokens 16 --batch 4 --optimizer AdamW --dtype bfloat16"
    )
    assert main([*words.split(), "--device", "H100", "--json", str(tmp_path / "out.json"), "--largest"]) == 0
    printed = capsys.readouterr().out
    assert "optimizer" in printed and "H100" in printed and "largest batch" in printed and "peak = " in printed
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["parameters"] == 2 * (100 * 64 + 3 * 64 * 65) + sum(-n % 512 for n in (12800, *[8192, 128] * 3))


def test_a_program_of_ones_own_that_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("profile programs_of_mine:program --device H100 --memory 80GiB".split()) == 1
    assert "it does not fit" in capsys.readouterr().out


def test_quantized_weights_and_inference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("profile programs_of_mine:WordsLM --weights Int8Weight --inference --device cuda:0".split()) == 0
    printed = capsys.readouterr().out
    assert "layers.0.weight Int8Weight" in printed and "backward" not in printed.split("products")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("programs_of_mine:nothing", "There is no programs_of_mine:nothing"),
        ("programs_of_mine:Config", "a Config, and a program with its arguments is wanted"),
        ("torch.nn:Identity", "Nobody knows what data"),
        ("programs_of_mine:WordsLM --checkpoint", "leave --checkpoint out"),
        ("programs_of_mine:WordsLM --device H1000", "There is no device 'H1000'"),
        ("programs_of_mine:WordsLM --memory much", "much"),
    ],
)
def test_what_is_wrong_is_said(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", *words.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("torch.nn:Linear", "torch.nn:Linear cannot be made: missing a required argument: 'in_features'"),
        ("torch.nn:Linear -c width=3", "by -c, as in: -c in_features=... out_features=..."),
        ("programs_of_mine:WordsLM -c depth=3", "got an unexpected keyword argument 'depth'"),
        ("programs_of_mine:WordsLM --optimizer Adamm", "no Adamm in torch.optim; the nearest is Adam"),
        ("programs_of_mine:WordsLM --weights Int8", "there is no Int8 in subclass_aot.tensors; the nearest is Int"),
        ("programs_of_mine:WordsLM --dtype bfloat", "--dtype bfloat: there is no bfloat in torch; the nearest is"),
        ("no_such_package.models:Model", "Instead: install it, as by `pip install no_such_package`, or go to its"),
    ],
)
def test_what_is_misspelt_is_told(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", *words.split()]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and not shown.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--plot out.png --over time", "A plot over time needs a device"),
        ("--plot out.doc", "no pictures that end in '.doc'"),
    ],
)
def test_a_plot_that_cannot_be_drawn_is_told_before_anything_runs(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="plots need it, and nothing else does")
    assert main(["profile", "programs_of_mine:never", *words.split()]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and not shown.out


def test_without_matplotlib_it_is_told_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main("profile programs_of_mine:never --plot out.png".split()) == 2
    assert "pip install 'subclass-aot[demo]'" in capsys.readouterr().err


@pytest.mark.parametrize("over", ["bytes", "time"])
def test_a_plot_is_drawn_over_what_is_chosen(over: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need it, and nothing else does")
    picture = tmp_path / "out.svg"
    words = f"profile programs_of_mine:WordsLM --device H100 --plot {picture} --over {over}"
    assert main(words.split()) == 0
    assert {"bytes": "bytes allocated so far (", "time": "time at best on H100 SXM ("}[over] in picture.read_text()
