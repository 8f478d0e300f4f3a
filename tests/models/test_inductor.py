"""Models of `transformers` by inductor, by both doors: in training with dropout, and in inference, at two batch sizes.

`fallback_random` makes the draws of dropout those of eager mode, so that results can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.backends import inductor
from tests.device import DEVICE, there
from tests.models.architectures import ARCHITECTURES, make
from tests.models.checks import ROUNDING, check_inference, check_training, quantize

pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), pytest.mark.filterwarnings("ignore")]

Door = Callable[[Any], Any]

OPTIONS = {"fw_compiler": "inductor", "fallback_random": True}
DOORS: dict[str, Door] = {
    "aot_compile": lambda model: aot_compile(model, fw_compiler=inductor(fallback_random=True)),
    "torch.compile": lambda model: torch.compile(model, backend="subclass_aot", options=OPTIONS),
}

FEW = {("LlamaForCausalLM", "inference", "torch.compile")}
"""What `make test` has time for: the compiler of C++ takes a minute for each."""


def cases() -> list[Any]:
    found = []
    for name in ARCHITECTURES:
        for kind in ("training", "inference"):
            for door in DOORS:
                marks = [] if (name, kind, door) in FEW else [pytest.mark.long]
                found.append(pytest.param(name, kind, door, marks=marks))
    return found


def compiled(door: str) -> tuple[Door, list[Any]]:
    """The door, and what was compiled through it."""
    made: list[Any] = []

    def through(model: Any) -> Any:
        made.append(DOORS[door](model))
        return made[-1]

    return through, made


@pytest.mark.parametrize(("name", "kind", "door"), cases())
def test_a_model(name: str, kind: str, door: str) -> None:
    torch.manual_seed(0)
    check: Any = check_training if kind == "training" else check_inference
    through, made = compiled(door)
    check(make(name).to(DEVICE), there(ARCHITECTURES[name].inputs), through, **ROUNDING)
    if door == "aot_compile":
        reasons = [line for line in made[0].explain().splitlines() if "stay numbers" in line or "alone" in line]
        assert not reasons, reasons


@pytest.mark.long
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "BertForSequenceClassification", "T5ForConditionalGeneration"])
def test_a_quantized_model(name: str) -> None:
    torch.manual_seed(0)
    check_training(quantize(make(name).to(DEVICE)), there(ARCHITECTURES[name].inputs), DOORS["aot_compile"], **ROUNDING)
