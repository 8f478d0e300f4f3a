"""What a class statement declares, and what is said when it is wrong."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
import torch

from subclass_aot.errors import DefinitionError
from subclass_aot.wrapper import WrapperTensor

TensorAlias = torch.Tensor


def define(annotations: dict[str, object], namespace: dict[str, object] | None = None, **keywords: object) -> type:
    return type("Wrong", (WrapperTensor,), {"__annotations__": annotations, **(namespace or {})}, **keywords)


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (torch.Tensor, "tensor"),
        ("TensorAlias", "tensor"),
        (torch.nn.Parameter, "tensor"),
        (typing.Annotated[torch.Tensor, "codes"], "tensor"),
        (torch.Tensor | None, "optional"),
        (typing.Optional[torch.Tensor], "optional"),  # noqa: UP045
        (list[torch.Tensor], "sequence"),
        (tuple[torch.Tensor, ...], "sequence"),
        (Sequence[torch.Tensor], "sequence"),
        (dict[str, torch.Tensor], "mapping"),
        (Mapping[str, torch.Tensor], "mapping"),
        (int, "context"),
        (tuple[int, ...], "context"),
        (torch.dtype | None, "context"),
        ("NameForTypeCheckersOnly", "context"),
    ],
)
def test_the_annotation_decides_the_kind(annotation: object, kind: str) -> None:
    cls = define({"payload": torch.Tensor, "other": annotation})
    assert cls.__wrapper_declaration__.fields["other"].kind == kind


def test_string_annotations_see_the_names_of_the_enclosing_function() -> None:
    class Local(torch.Tensor):
        pass

    class Holder(WrapperTensor):
        held: Local
        constant: typing.ClassVar[int] = 3

    assert {name: field.kind for name, field in Holder.__wrapper_declaration__.fields.items()} == {"held": "tensor"}


def test_fields_are_inherited_in_order() -> None:
    class Base(WrapperTensor):
        codes: torch.Tensor

    class Derived(Base):
        zero: torch.Tensor | None = None
        bits: int = 8

    class Most(Derived):
        bits: int = 4

    assert list(Most.__wrapper_declaration__.fields) == ["codes", "zero", "bits"]
    assert Most(torch.zeros(2)).bits == 4
    assert Derived(torch.zeros(2)).bits == 8


def assert_message(error: pytest.ExceptionInfo[DefinitionError], *parts: str) -> None:
    text = str(error.value)
    for part in parts:
        assert part in text, text


@dataclass
class Unhashable:
    bits: int


@pytest.mark.parametrize(
    ("annotations", "namespace", "parts"),
    [
        ({}, {}, ["declares no tensor field", "# right", "Fields are read from annotations"]),
        ({"bits": int}, {}, ["declares no tensor field"]),
        ({"shape": torch.Tensor}, {}, ["Wrong.shape", "belongs to torch.Tensor", "inner_shape"]),
        ({"implements": torch.Tensor}, {}, ["Wrong.implements", "WrapperTensor"]),
        ({"to_plain": torch.Tensor}, {}, ["Wrong.to_plain"]),
        ({"codes": torch.Tensor}, {"codes": torch.zeros(2)}, ["Wrong.codes", "| None = None"]),
        ({"codes": torch.Tensor | None}, {"codes": torch.zeros(2)}, ["Wrong.codes", "A default is made once"]),
        ({"codes": torch.Tensor, "pair": tuple[int, torch.Tensor]}, {}, ["Wrong.pair", "list[torch.Tensor]"]),
        ({"codes": torch.Tensor, "table": dict[int, torch.Tensor]}, {}, ["Wrong.table", "dict[str, torch.Tensor]"]),
        ({"codes": torch.Tensor, "fixed": int}, {"fixed": torch.zeros(1)}, ["Wrong.fixed", "a tensor as default"]),
        ({"codes": torch.Tensor, "sizes": list[int]}, {}, ["Wrong.sizes", "changed in place", "tuple[int, ...]"]),
        ({"codes": torch.Tensor, "sizes": object}, {"sizes": [1]}, ["Wrong.sizes", "changed in place", "[1]"]),
        ({"codes": torch.Tensor, "config": Unhashable}, {"config": Unhashable(1)}, ["Wrong.config", "frozen=True"]),
        ({"bits": int, "codes": torch.Tensor}, {"bits": 8}, ["Wrong.codes has no default but follows bits"]),
        ({"parts": list[torch.Tensor], "parts_0": int}, {}, ["Wrong.parts_0", "an element of Wrong.parts"]),
        ({"codes": "torch.Tensr"}, {}, ["Wrong.codes", "cannot be evaluated", "torch.Tensr"]),
        ({"codes": torch.Tensor}, {"outer": torch.float16}, ["Wrong.outer must be a method", "torch.float16"]),
    ],
)
def test_wrong_declarations(annotations: dict[str, object], namespace: dict[str, object], parts: list[str]) -> None:
    with pytest.raises(DefinitionError) as error:
        define(annotations, namespace)
    assert_message(error, *parts)


def test_the_base_class_cannot_be_instantiated() -> None:
    with pytest.raises(TypeError, match="base class"):
        WrapperTensor(torch.zeros(2))


def test_definition_errors_are_type_errors() -> None:
    with pytest.raises(TypeError):
        define({})
