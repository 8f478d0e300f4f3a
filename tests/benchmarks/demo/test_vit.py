"""The transformer of the demo has the layout it says."""

from __future__ import annotations

import torch

from benchmarks.demo.vit import ViT


def test_defaults_are_vit_b_16() -> None:
    with torch.device("meta"):
        vit = ViT()
        scores = vit(torch.empty(2, 3, 224, 224))
    assert scores.shape == (2, 1000)
    assert sum(parameter.numel() for parameter in vit.parameters()) == 86_567_656  # the published size


def test_every_parameter_gets_a_gradient() -> None:
    vit = ViT(image=8, patch=2, channels=1, layers=2, width=8, heads=2, hidden=16, classes=10)
    vit(torch.randn(3, 1, 8, 8)).square().sum().backward()
    for name, parameter in vit.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_images_of_a_batch_do_not_see_each_other() -> None:
    vit = ViT(image=8, patch=2, channels=1, layers=1, width=8, heads=2, hidden=16, classes=10)
    images = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(vit(images)[:1], vit(images[:1]))
