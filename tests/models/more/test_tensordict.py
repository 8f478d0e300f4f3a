"""Modules of `tensordict`, which read and write one dictionary of tensors."""

from __future__ import annotations

import copy
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import Tensor, nn

import subclass_aot as sa
from tests.models.checks import check_inference, check_training, same, same_tensors


def policy() -> Any:
    """Observation to hidden features to an action."""
    first = TensorDictModule(nn.Linear(3, 4), in_keys=["observation"], out_keys=["hidden"])
    second = TensorDictModule(nn.Linear(4, 2), in_keys=["hidden"], out_keys=[("next", "action")])
    return TensorDictSequential(first, second)


class Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.policy = policy()

    def forward(self, given: TensorDict) -> Tensor:
        action: Tensor = self.policy(given)["next", "action"]
        return action


def observations(batch: int) -> dict[str, Any]:
    return {"given": TensorDict({"observation": torch.randn(batch, 3)}, [batch])}


def test_training() -> None:
    check_training(Actor(), observations)


def test_inference() -> None:
    check_inference(Actor(), observations)


def test_what_is_written_is_there_afterwards() -> None:
    eager = policy()
    ours = copy.deepcopy(eager)
    compiled = sa.aot_compile(ours)
    for batch in (2, 2, 3):
        given = observations(batch)["given"]
        mine = given.clone()
        expected, got = eager(given), compiled(mine)
        assert got is mine
        assert sorted(got.keys(True, True), key=str) == sorted(expected.keys(True, True), key=str)
        for key in expected.keys(True, True):
            same(got[key], expected[key], str(key))
        expected["next", "action"].sum().backward()
        got["next", "action"].sum().backward()
        same_tensors(ours, eager, gradients=True)


def test_functions_of_several() -> None:
    def step(a: TensorDict, b: TensorDict) -> TensorDict:
        return torch.stack([a * 2, b]).apply(torch.sin).reshape(-1)[1:]

    compiled = sa.aot_compile(step)
    for batch in (2, 3):
        a, b = (TensorDict({"x": torch.randn(batch, 3), "y": {"z": torch.rand(batch)}}, [batch]) for _ in range(2))
        expected, got = step(a, b), compiled(a, b)
        assert got.batch_size == expected.batch_size
        same(got.to_dict(), expected.to_dict())
