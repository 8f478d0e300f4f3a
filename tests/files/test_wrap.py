"""State dicts put together again."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import Int8Weight, TwoTensor, WrapperTensor
from subclass_aot.base.named import full_name
from subclass_aot.errors import StateDictError
from subclass_aot.files import unwrap_state_dict, wrap_state_dict
from tests.files.classes import FOREIGN, Everything, Mode, Pair, Recipe, assert_same, everything, state


def test_there_and_back_copies_nothing() -> None:
    entries = state()
    tensors, metadata = unwrap_state_dict(entries)
    found = wrap_state_dict(tensors, metadata, classes=FOREIGN)
    assert set(found) == set(entries)
    for name, value in entries.items():
        assert_same(found[name].resolve_conj(), value)
    assert found["two"].a is entries["two"].a and found["plain"] is entries["plain"]
    again, metadata_again = unwrap_state_dict({name: found[name] for name in entries})
    assert metadata_again == metadata and set(again) == set(tensors)


def test_through_torch_save() -> None:
    """Nothing but tensors and strings is in the file, so a reader needs no class to be allowed."""
    file = io.BytesIO()
    torch.save(unwrap_state_dict(state()), file)
    file.seek(0)
    found = wrap_state_dict(*torch.load(file, weights_only=True), classes=FOREIGN)
    for name, value in state().items():
        assert found[name].shape == value.shape and type(found[name]) is type(value.detach())


def test_on_another_device() -> None:
    tensors, metadata = unwrap_state_dict({"w": everything(), "v": Int8Weight.from_float(torch.randn(4, 3))})
    found = wrap_state_dict({name: tensor.to("meta") for name, tensor in tensors.items()}, metadata)
    assert found["w"].device.type == found["v"].codes.device.type == "meta" and found["w"].shape == (3, 2)


class OnDevice(torch.Tensor):
    """Says in its context where it is."""

    a: torch.Tensor

    @staticmethod
    def __new__(cls, a: torch.Tensor, device: torch.device) -> OnDevice:
        made: OnDevice = torch.Tensor._make_wrapper_subclass(cls, a.shape, device=device)
        made.a = a
        return made

    def __tensor_flatten__(self) -> Any:
        return ["a"], self.device

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["a"], context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(func)


def test_a_context_that_names_another_device() -> None:
    tensors, metadata = unwrap_state_dict({"w": OnDevice(torch.ones(2), torch.device("cpu"))})
    assert wrap_state_dict(tensors, metadata, classes=[OnDevice])["w"].device.type == "cpu"
    with pytest.raises(StateDictError, match="w has the device cpu .* should have meta. Read it to the device"):
        wrap_state_dict({"w.a": torch.ones(2, device="meta")}, metadata, classes=[OnDevice])
    offloaded = unwrap_state_dict({"w": OnDevice(torch.ones(2), torch.device("meta"))})
    assert wrap_state_dict(*offloaded, classes=[OnDevice])["w"].device.type == "meta"


def test_inner_tensors_on_several_devices() -> None:
    """As a scale on the CPU beside codes elsewhere. They may be read to one device."""
    mixed = TwoTensor(torch.ones(2, device="meta"), torch.ones(2))
    tensors, metadata = unwrap_state_dict({"w": mixed})
    assert wrap_state_dict(tensors, metadata)["w"].device.type == "meta"
    assert wrap_state_dict({"w.a": torch.ones(2), "w.b": torch.ones(2)}, metadata)["w"].device.type == "cpu"


def test_one_of_several_files() -> None:
    """A wrapper of which a file has nothing is in another one."""
    tensors, metadata = unwrap_state_dict({"first": Int8Weight.from_float(torch.ones(2, 2)), "second": everything()})
    first = {name: tensor for name, tensor in tensors.items() if name.startswith("first")}
    assert set(wrap_state_dict(first, metadata)) == {"first"}


def test_what_is_tied_stays_tied() -> None:
    x, weight = torch.rand(3), TwoTensor(torch.rand(3), torch.rand(3))
    transposed = torch.rand(2, 3).t()
    entries = {"a": x, "b": x, "v": weight, "w": weight, "inside": Pair(x, x), "t": transposed}
    entries["of"] = Pair(transposed, torch.ones(1))
    tensors, metadata = unwrap_state_dict(entries)
    assert set(tensors) == {"a", "v.a", "v.b", "t", "of.right"}
    copies = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    found = wrap_state_dict(copies, metadata)
    assert found["a"] is found["b"] and found["inside"].left is found["inside"].right is found["a"]
    assert found["v"] is found["w"] and found["v"].a is not found["v"].b
    assert found["t"] is found["of"].left and found["t"].stride() == transposed.stride()


def test_the_same_memory_in_two_wrappers() -> None:
    """They are two, if they are read in two ways."""
    value = everything(bits=4, table={"left": torch.ones(1)})
    other = Everything(value.codes, value.parts, dict(value.table), None, 8, value.recipe, value.modes, torch.bfloat16)
    tensors, metadata = unwrap_state_dict({"one": value, "two": other, "view": value.detach()})
    found = wrap_state_dict(tensors, metadata)
    assert found["one"].bits == 4 and found["two"].bits == 8 and found["one"].codes is found["two"].codes
    assert found["view"] is found["one"] and set(found) == {"one", "two", "view"}
    untied = {name.replace("one", "view"): tensor + 1 for name, tensor in tensors.items() if name.startswith("one")}
    found = wrap_state_dict({**tensors, **untied}, metadata)
    assert found["view"].codes.equal(value.codes + 1) and found["one"].codes.equal(value.codes)


class Earlier(WrapperTensor):
    q: torch.Tensor
    pieces: list[torch.Tensor]
    wide: Mode = Mode.ROWS


class Later(WrapperTensor, renamed={"q": "codes", "pieces": "parts", "wide": "order"}):
    codes: torch.Tensor
    parts: list[torch.Tensor]
    table: dict[str, torch.Tensor]
    zero: torch.Tensor | None = None
    order: Mode = Mode.COLUMNS
    bits: int = 4


class Lost(WrapperTensor):
    q: torch.Tensor


class Gained(WrapperTensor, renamed={"q": "codes", "pieces": "parts"}):
    codes: torch.Tensor
    parts: list[torch.Tensor]
    scale: torch.Tensor
    wide: Mode = Mode.ROWS


def test_a_class_that_has_changed() -> None:
    value = Earlier(torch.ones(2), [torch.full((1,), float(i)) for i in range(11)], Mode.ROWS)
    tensors, metadata = unwrap_state_dict({"w": value})
    found: Any = wrap_state_dict(tensors, metadata, classes={full_name(Earlier): Later})["w"]
    assert type(found) is Later and found.codes.equal(value.q) and found.order is Mode.ROWS and found.bits == 4
    assert [part.item() for part in found.parts] == list(range(11)) and found.zero is None and not found.table
    with pytest.raises(
        StateDictError, match=r"w cannot be made of what was saved: this saved Lost holds \[.*'pieces_0'"
    ):
        wrap_state_dict(tensors, metadata, classes={full_name(Earlier): Lost})
    with pytest.raises(StateDictError, match=r"this saved Gained has no scale: .*torch.Tensor \| None = None"):
        wrap_state_dict(tensors, metadata, classes={full_name(Earlier): Gained})


def test_a_class_that_writes_flatten_now() -> None:
    tensors, metadata = unwrap_state_dict({"w": TwoTensor(torch.ones(2), torch.ones(2))})
    with pytest.raises(StateDictError, match="w was written as a WrapperTensor, which TwoTensor is no more"):
        wrap_state_dict(tensors, metadata, classes={full_name(TwoTensor): ForeignTwoTensor})
    tensors, metadata = unwrap_state_dict({"w": ForeignTwoTensor(torch.ones(2), torch.ones(2))})
    with pytest.raises(StateDictError, match="w was written as a class with its own flatten"):
        wrap_state_dict(tensors, metadata, classes={full_name(ForeignTwoTensor): TwoTensor})


def test_classes_that_are_not_handed_in() -> None:
    tensors, metadata = unwrap_state_dict({"w": ForeignTwoTensor(torch.ones(2), torch.ones(2))})
    with pytest.raises(StateDictError, match=r"w is of the class torch.testing.*nobody.*(.|\n)*classes=\[TwoTensor\]"):
        wrap_state_dict(tensors, metadata)
    like = {"other": Pair(ForeignTwoTensor(torch.ones(2), torch.ones(2)), torch.ones(2))}
    assert type(wrap_state_dict(tensors, metadata, like=like)["w"]) is ForeignTwoTensor


def changed(metadata: dict[str, str], **changes: Any) -> dict[str, str]:
    said = json.loads(metadata["subclass_aot"])
    said["wrappers"]["w"].update(changes)
    return {"subclass_aot": json.dumps(said)}


def test_tensors_that_do_not_fit_the_text() -> None:
    tensors, metadata = unwrap_state_dict({"w": Int8Weight.from_float(torch.randn(4, 3))})
    cases: list[tuple[dict[str, Any], str]] = [
        ({"w.codes": tensors["w.codes"]}, r"w is a .*Int8Weight, of which w\.scale is missing"),
        (
            {**tensors, "w.codes": torch.ones(5, 3, dtype=torch.int8)},
            r"w\.codes has the size \[5, 3\], and .* \[4, 3\]",
        ),
        (
            {**tensors, "w.scale": tensors["w.scale"].half()},
            r"w\.scale has the dtype float16, and the metadata says float32",
        ),
    ]
    for given, said in cases:
        with pytest.raises(StateDictError, match=said):
            wrap_state_dict(given, metadata)
    assert set(wrap_state_dict({}, metadata)) == set()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dtype": "float16"}, r"w has the dtype float32 when it is made of what was saved, and should have float16"),
        ({"stride": ["a", 1]}, r"cannot be read: something is missing"),
        ({"stride": [1]}, r"w cannot be made of what was saved"),
        ({"inner": {"codes": {"size": [4, 3], "dtype": "int8", "stride": [3, 1]}}}, r"has no scale"),
        ({"inner": {}}, r"has no codes"),
        ({"inner": 3}, r"cannot be read: something is missing"),
        ({"fields": {"bits": 3}}, r"holds \['bits'\], which the class does not declare"),
        ({"class": "torch:Tensor"}, r"nobody has defined"),
        ({"size": None}, r"cannot be read: something is missing"),
        ({"size": [3, 4]}, r"w has the size \[4, 3\] when it is made of what was saved, and should have \[3, 4\]"),
    ],
)
def test_text_that_was_changed(changes: Any, said: str) -> None:
    tensors, metadata = unwrap_state_dict({"w": Int8Weight.from_float(torch.randn(4, 3))})
    with pytest.raises(StateDictError, match=said):
        wrap_state_dict(tensors, changed(metadata, **changes))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"version": 1}', "cannot be read"),
        ('{"version": 2, "wrappers": {}, "tied": {}}', "is of version 2, and this version of subclass_aot reads 1"),
        ('{"version": 1, "wrappers": {"w": {}}, "tied": {}}', "something is missing"),
    ],
)
def test_text_that_is_none(text: str, said: str) -> None:
    with pytest.raises(StateDictError, match=f"metadata 'subclass_aot' .*{said}"):
        wrap_state_dict({}, {"subclass_aot": text})


def test_other_text_is_passed_over() -> None:
    assert wrap_state_dict({"x": 1}, {"format": "pt"}) == {"x": 1} == wrap_state_dict({"x": 1})


def test_the_enums_of_a_class_of_others_are_handed_in() -> None:
    value = everything()
    tensors, metadata = unwrap_state_dict({"w": value})
    said = json.loads(metadata["subclass_aot"])
    assert said["wrappers"]["w"]["fields"]["recipe"]["class"] == full_name(Recipe)
    assert wrap_state_dict(tensors, metadata)["w"].recipe == value.recipe  # the annotations of Everything mention it


def test_an_optimizer_with_state_of_wrappers() -> None:
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
        layer = nn.Linear(3, 4)
        layer.weight = nn.Parameter(TwoTensor(torch.randn(4, 3), torch.randn(4, 3)))
        optimizer = torch.optim.Adam(layer.parameters())
        (layer.weight * 2).sum().backward()
        layer.bias.sum().backward()
        optimizer.step()
        return layer, optimizer

    options = StateDictOptions(flatten_optimizer_state_dict=True)
    layer, optimizer = trained()
    saved = get_optimizer_state_dict(layer, optimizer, options=options)
    tensors, metadata = unwrap_state_dict(saved)
    assert "state.weight.exp_avg.a" in tensors
    other, its_optimizer = trained()
    its_optimizer.state[other.weight]["exp_avg"].zero_()
    set_optimizer_state_dict(other, its_optimizer, wrap_state_dict(tensors, metadata), options=options)
    assert_same(its_optimizer.state[other.weight]["exp_avg"], optimizer.state[layer.weight]["exp_avg"])
