"""The device of tests that can run on another than the CPU, as by `SUBCLASS_AOT_TEST_DEVICE=cuda make test-device`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import optree
import torch

DEVICE = os.environ.get("SUBCLASS_AOT_TEST_DEVICE", "cpu")


def put(tree: Any) -> Any:
    """Returns a tree with its tensors on the device."""
    return optree.tree_map(lambda x: x.to(DEVICE) if isinstance(x, torch.Tensor) else x, tree, none_is_leaf=True)


def there(inputs: Callable[[int], dict[str, Any]]) -> Callable[[int], dict[str, Any]]:
    """Returns a function that makes inputs on the device, from one that makes them on the CPU."""
    return lambda batch: put(inputs(batch))  # type: ignore[no-any-return]
