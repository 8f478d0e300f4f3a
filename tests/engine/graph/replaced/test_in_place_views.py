"""`t_` and its kin on dense views in a trace: whatever a program calls, autograd and the program have the new view."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.engine.graph.replaced.in_place_views import IN_PLACE_VIEWS
from subclass_aot.testing import check_compiled

_ELSEWHERE = {"as_strided_", "detach_", "resize_", "resize_as_", "set_", "rename_"}
"""Those that are refused, for views or at all, that autograd refuses for views, and that no trace has."""


def given() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(4, 2, requires_grad=True), torch.rand(2, 2, requires_grad=True)


def test_it_has_all_that_torch_has() -> None:
    names = {name for name in dir(torch.Tensor) if name.endswith("_") and not name.endswith("__")}
    packets = [getattr(torch.ops.aten, name) for name in names if hasattr(torch.ops.aten, name)]
    operators = [getattr(packet, each) for packet in packets for each in packet.overloads()]
    found = [f for f in operators if torch.Tag.inplace_view in f.tags and f._schema.name[6:] not in _ELSEWHERE]
    assert len(found) >= 6 and set(found) <= set(IN_PLACE_VIEWS)


@pytest.mark.parametrize("written", ["v.mul_(2)", "y.mul_(w[0, 0])", "v[0].mul_(w[0, 0])"])
@pytest.mark.parametrize(
    "change",
    [
        "v.t_()",
        "torch.Tensor.t_(v)",
        "torch.ops.aten.t_(v)",
        "torch.ops.aten.t_.default(v)",
        "v.transpose_(dim0=1, dim1=0)",
        "v.swapaxes_(0, 1)",
        "v.swapdims_(0, -1)",
        "v.unsqueeze_(dim=1)",
        "v.unsqueeze_(1).squeeze_((0, 1)).t_()",
        "v.unsqueeze_(0).squeeze_(0).squeeze_()",
        "with torch.no_grad(): v.t_()",
        "with torch.inference_mode(): v.t_()",
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_gradients_are_those_of_the_new_view(change: str, written: str, dynamic: bool | None) -> None:
    scope: dict[str, Any] = {"torch": torch}
    lines = "y = x * w[0]", "v = y[:2]", change, written, "return v * 3, y * w[1]"
    exec("def program(x, w):\n" + "".join(f"    {line}\n" for line in lines), scope)
    check_compiled(scope["program"], given(), tries=0, dynamic=dynamic)


def test_a_change_without_autograd_is_seen_by_it_without_a_write() -> None:
    def program(x: Any, w: Any) -> Any:
        v = (x * w[0])[:2]
        with torch.no_grad():
            v.t_()
        return v * w

    check_compiled(program, given(), tries=0)


def test_a_view_stays_the_object_that_it_is() -> None:
    def program(x: Any, w: Any) -> Any:
        y = x * w[0]
        v = y[:2]
        v.mark, before, reference = "mine", y._version, weakref.ref(v)
        assert v.t_() is v and reference() is v and v.mark == "mine"
        assert v._base is y and v._version == y._version == before + 1
        assert v.requires_grad and not v.is_leaf and v.stride() == (1, 2)
        return v * w

    check_compiled(program, given(), tries=0)


def test_autograd_refuses_what_it_refuses_in_eager_mode() -> None:
    def program(x: Any, w: Any) -> Any:
        v, _ = (x * w[0]).chunk(2)
        return v.t_()

    for function in (program, aot_compile(program)):
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            function(*given())


def test_an_inner_tensor_is_changed_below_autograd() -> None:
    """The rule of the wrapper calls `t_` there, and its inner tensors are views."""

    def program(x: Any, w: Any) -> Any:
        y = x * w[0]
        wrapper = TwoTensor(y[:2].detach(), y[2:].detach())
        wrapper.t_()
        return wrapper * 2, wrapper.a

    check_compiled(program, given(), tries=0)
