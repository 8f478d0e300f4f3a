"""What a class statement declares, and what is said when it is wrong."""

from __future__ import annotations

import copy
import pickle
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from subclass_aot import Outer, WrapperTensor, aot_compile, structure
from subclass_aot.errors import DefinitionError, InnerTensorError

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


class Columns(WrapperTensor):
    """A sparse matrix with one value in each row."""

    values: torch.Tensor
    indices: torch.Tensor = structure()
    mean: torch.Tensor | None = None
    mode: str = "sum"
    columns: int = 4

    def outer_metadata(self) -> Outer:
        return Outer.like(self.values, size=(len(self.values), self.columns))

    def to_plain(self) -> torch.Tensor:
        plain = self.values.new_zeros(len(self.values), self.columns).scatter(
            1, self.indices[:, None], self.values[:, None]
        )
        return plain if self.mean is None else plain + self.mean


class Complex(WrapperTensor):
    real: torch.Tensor
    imag: torch.Tensor | None = None

    def outer_metadata(self) -> Outer:
        return Outer.like(self.real, dtype=self.real.dtype.to_complex())

    def to_plain(self) -> torch.Tensor:
        return torch.complex(self.real, torch.zeros_like(self.real) if self.imag is None else self.imag)


@pytest.mark.parametrize("compile", [lambda f: f, aot_compile, lambda f: torch.compile(f, backend="aot_eager")])
@pytest.mark.parametrize(
    ("make", "f"),
    [
        (lambda: Columns(torch.rand(3), torch.tensor([0, 3, 1])), lambda x: torch.mean(x @ torch.ones(4, 2))),
        (lambda: Columns(torch.rand(3), torch.tensor([0, 3, 1]), torch.rand(())), lambda x: x.sin().sum()),
        (lambda: Complex(torch.rand(3), torch.rand(3)), lambda x: (x * x).abs()),
        (lambda: Complex(torch.rand(3)), lambda x: torch.real(x * 1j)),
    ],
)
def test_names_that_torch_gives_up(make: Any, f: Any, compile: Any) -> None:
    torch.compiler.reset()
    x = make()
    torch.testing.assert_close(compile(f)(x), f(x.to_plain()))
    again = pickle.loads(pickle.dumps(copy.deepcopy(x)))
    assert type(again) is type(x) and torch.equal(again.to_plain(), x.to_plain())
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(make(), requires_grad=False)
    module.load_state_dict({"weight": x})
    assert torch.equal(module.weight.to_plain(), x.to_plain())


def test_a_field_of_such_a_name_is_the_tensor_that_was_given() -> None:
    values, real = torch.rand(3), torch.rand(3)
    columns, number = Columns(values, torch.tensor([0, 3, 1])), Complex(real)
    assert columns.values is values and columns.mean is None and columns.mode == "sum"
    assert number.real is real and number.imag is None
    number.imag = real
    assert number.imag is real and number.detach().real.data_ptr() == real.data_ptr()
    with pytest.raises(InnerTensorError, match=r"Complex\.real must be a tensor, not str"):
        number.real = "three"


def test_outer_with_another_tensor_is_the_product() -> None:
    x = Complex(torch.rand(3), torch.rand(3))
    other = torch.rand(2)
    torch.testing.assert_close(x.outer(other), torch.outer(x.to_plain(), other + 0j))
    torch.testing.assert_close(x.outer(vec2=other), x.outer(other))
    assert x.outer_metadata().dtype == torch.complex64


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
        (
            {"codes": torch.Tensor},
            {"outer_metadata": torch.float16},
            ["Wrong.outer_metadata must be a method", "torch.float16"],
        ),
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
