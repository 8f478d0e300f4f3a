"""What error messages of class statements show as wrong and right is wrong and right."""

from __future__ import annotations

import re
import string
from typing import Any

import pytest
import torch

from subclass_aot.errors import DefinitionError
from subclass_aot.kit.wrapper import Outer, WrapperTensor
from subclass_aot.kit.wrapper.declare import messages

MESSAGES = {name: text for name, text in vars(messages).items() if name.isupper()}
FIELDS = ("TENSOR_DEFAULT", "TENSOR_IN_CONTEXT", "MUTABLE_CONTEXT")
"""Messages that show declarations of one field, each in a line."""


def declare(line: str) -> type:
    namespace: dict[str, Any] = {"WrapperTensor": WrapperTensor, "torch": torch, "Outer": Outer}
    exec(f"class Cls(WrapperTensor):\n    codes: torch.Tensor\n    {line}\n", namespace)
    return namespace["Cls"]


def shown(name: str, kind: str) -> list[str]:
    text = MESSAGES[name].format(cls="Cls", name="other", annotation="", value="")
    return [line.partition("#")[0].strip() for line in text.splitlines() if re.search(rf"# {kind}\b", line)]


@pytest.mark.parametrize("name", FIELDS)
def test_what_is_shown_as_wrong_is_refused_with_this_message(name: str) -> None:
    first = MESSAGES[name].partition("{cls}.{name}: ")[2].split(" (")[0]
    assert shown(name, "wrong")
    for line in shown(name, "wrong"):
        with pytest.raises(DefinitionError, match=rf"Cls\.other: {re.escape(first)}"):
            declare(line)


@pytest.mark.parametrize("name", FIELDS)
def test_what_is_shown_as_right_is_a_declaration(name: str) -> None:
    assert shown(name, "right")
    for line in shown(name, "right"):
        assert "other" in declare(line).__wrapper_declaration__.fields


@pytest.mark.parametrize("name", MESSAGES)
def test_every_message_names_the_class_and_has_an_example(name: str) -> None:
    fields = {field for _, field, _, _ in string.Formatter().parse(MESSAGES[name]) if field}
    text = MESSAGES[name].format(**{field.split("!")[0]: "given" for field in fields})
    assert text.startswith("given") and "\n\n    " in text
    assert all(len(line) <= 120 for line in text.splitlines())
