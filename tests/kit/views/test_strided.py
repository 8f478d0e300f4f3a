"""Views said in operators that do not ask where the base lies, against `as_strided`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from subclass_aot.kit.views import Strided, regenerated_view

Step = Callable[[torch.Tensor], torch.Tensor]

BASES: dict[str, Step] = {
    "packed": lambda x: x,
    "turned": lambda x: x.permute(2, 0, 1),
    "later in its storage": lambda x: x[1:],
    "a single element": lambda x: x[:1, :1, :1],
}
STEPS: dict[str, Step] = {
    "rows": lambda x: x[1:],
    "columns": lambda x: x[..., :-1],
    "every other": lambda x: x[::2],
    "select": lambda x: x[-1] if x.dim() and x.shape[0] else x,
    "turned": lambda x: x.transpose(0, -1) if x.dim() else x,
    "flat": lambda x: x.view(-1) if x.is_contiguous() else x,
    "diagonal": lambda x: x.diagonal() if x.dim() > 1 else x,
    "unsqueezed": lambda x: x.unsqueeze(-1),
    "expanded": lambda x: x.unsqueeze(0).expand(2, *x.shape),
    "split": lambda x: x.unflatten(0, (2, -1)) if x.dim() and x.shape[0] % 2 == 0 else x,
    "nothing": lambda x: x[:0] if x.dim() else x,
}


@given(st.sampled_from(list(BASES)), st.lists(st.sampled_from(list(STEPS)), max_size=5))
def test_same_elements(kind: str, steps: list[str]) -> None:
    base = BASES[kind](torch.arange(2 * 3 * 4).view(2, 3, 4))
    view = base
    for step in steps:
        view = STEPS[step](view) if view.dim() or step in ("unsqueezed", "expanded") else view
    again = regenerated_view(base, view.size(), view.stride(), view.storage_offset() - base.storage_offset())
    if again is None:
        assert "diagonal" in steps and base.storage_offset()
        return
    assert again.shape == view.shape and again.equal(view)
    where = (tuple(view.size()), view.stride(), int(view.storage_offset() - base.storage_offset()))
    for by_operators in (False, True):
        assert Strided(*where, by_operators)(base).equal(view)
    for length, one, other in zip(view.shape, again.stride(), view.stride(), strict=True):
        assert one == other or length <= 1 or not view.numel()
    assert not view.numel() or again.data_ptr() == view.data_ptr()


def test_windows_that_overlap_need_a_whole_storage() -> None:
    base = torch.arange(6)
    windows = base.unfold(0, 3, 1)
    again = regenerated_view(base, windows.size(), windows.stride(), 0)
    assert again is not None and again.equal(windows)
    assert regenerated_view(base[1:], (2, 3), (1, 1), 0) is None


@pytest.mark.parametrize("base", [torch.ones(4, 4)[:, :2], torch.ones(1).expand(4)])
def test_a_base_with_gaps(base: torch.Tensor) -> None:
    assert regenerated_view(base, (2,), base.stride()[:1], 0) is None
