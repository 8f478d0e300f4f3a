"""The templates are Python, and what tells one kind from another tells it."""

from __future__ import annotations

import ast
import re

import pytest
import torch

from tests.fuzz import templates
from tests.fuzz.templates import (
    EVERY_KIND,
    IMAGES,
    INNER,
    LOOKS,
    PAIRS,
    VIEWS,
    WRITES,
    WRITES_THAT_LOOK,
    WRITTEN,
)

TEMPLATES = sorted({template for kind in EVERY_KIND for template in kind})


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_python(template: str) -> None:
    text = template.format("x0", "x1", "a")
    (statement,) = ast.parse(text).body
    assert isinstance(statement, ast.Expr) or any(template in kind for kind in WRITTEN)
    assert "x0" in text


@pytest.mark.parametrize("template", IMAGES)
def test_images_have_layers(template: str) -> None:
    image = torch.rand(3, 3, 3, 3, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    code = template.format("x0", "x1").replace("nn.", "torch.nn.functional.")
    assert isinstance(eval(code, {"torch": torch, "x0": image, "x1": image}), torch.Tensor)


@pytest.mark.parametrize("template", [*LOOKS, *WRITES_THAT_LOOK])
def test_looks_are_known(template: str) -> None:
    asks = templates.LOOKING.search(template.format("x0", "x1"))
    assert asks or "equal" in template


@pytest.mark.parametrize("template", [*VIEWS, *WRITES, *PAIRS])
def test_nothing_else_looks(template: str) -> None:
    assert not templates.LOOKING.search(template.format("x0", "x1"))


def test_what_changes_the_size_in_place() -> None:
    found = {template for template in TEMPLATES if templates.RESHAPES.search(template.format("x0", "x1", "a"))}
    assert found == {"{0}.t_()", "{0}.unsqueeze_(0)", "{0}.squeeze_()"}


def test_what_gives_all_elements_one_value() -> None:
    found = {template for template in TEMPLATES if templates.UNIFORM.search(template.format("x0", "x1", "a"))}
    assert found == {
        *("{0}.zero_()", "{0}.fill_(0.5)"),
        *("{0}.unfold(0, 2, 1).fill_(0.5)", "{0}.view(-1).unfold(0, 3, 2).zero_()"),
    }


def test_inner_tensors_are_those_of_the_classes() -> None:
    from tests.fuzz.trees import Parts, Scaled, Tagged

    names = {re.sub(r"\W.*", "", name) for name in INNER}
    assert names - {"a", "b"} == {"value", "extra", "codes", "scale", "parts"}
    assert names - {"a", "b"} == (
        {
            *Tagged.__wrapper_declaration__.fields,
            *Scaled.__wrapper_declaration__.fields,
            *Parts.__wrapper_declaration__.fields,
        }
        - {"tag"}
    )
