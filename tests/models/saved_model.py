"""Compiles a model and saves that, or loads it where nothing can be traced; each in a process of its own.

python -m tests.models.saved_model save|load FOLDER NAME WEIGHTS
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import subclass_aot as sa
from subclass_aot.engine import compile
from tests.models.architectures import ARCHITECTURES, make


def model_of(name: str, weights: str) -> nn.Module:
    """The same model in each process."""
    torch.manual_seed(0)
    model: nn.Module = make(name)
    if weights == "int8":
        sa.quantize_(model, sa.Int8Weight)
    else:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        model.requires_grad_(False)
        quantize_(model, Int8WeightOnlyConfig())
    return model


def run(model: Any, compiled: Any, name: str) -> list[Tensor]:
    """Inference, then a step of training where something can be trained."""
    torch.manual_seed(1)
    inputs = ARCHITECTURES[name].inputs(2)
    found = []
    model.eval()
    with torch.no_grad():
        result = compiled(**inputs)
    found += [x for x in result.to_tuple() if isinstance(x, Tensor)]
    if any(p.requires_grad for p in model.parameters()):
        model.train()
        torch.manual_seed(2)
        compiled(**inputs).loss.backward()
        found += [p.grad for p in model.parameters() if p.grad is not None]
    return found


def main(what: str, folder: str, name: str, weights: str) -> None:
    """Saves, or loads and compares to the last bit."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    model = model_of(name, weights)
    if what == "save":
        compiled: Any = sa.aot_compile(model)
        torch.save(run(model, compiled, name), f"{folder}/results.pt")
        compiled.save(f"{folder}/model.sa")
        return

    def not_traced(*args: object, **kwargs: object) -> Any:
        raise AssertionError("this was traced")

    compile.trace_arguments = not_traced
    found = run(model, sa.load_compiled(f"{folder}/model.sa", model, trust=True), name)
    expected = torch.load(f"{folder}/results.pt")
    assert len(found) == len(expected) > 0
    assert all(x.equal(y) for x, y in zip(found, expected, strict=True))
    print(f"{len(found)} tensors are the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
