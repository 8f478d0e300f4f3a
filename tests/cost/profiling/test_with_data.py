"""Real tensors in the place of such without data."""

import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.cost.profiling.with_data import with_data


def test_tensors_without_data_get_some_and_others_keep_theirs() -> None:
    with sa.meta("cuda:0"):
        model = sa.quantize_(nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6)), sa.Int8Weight)
        words, mask, turned = torch.zeros(3, dtype=torch.long), torch.ones(2).bool(), torch.ones(4, 5).t()
        waves = torch.ones(2, dtype=torch.complex64)
        part = torch.ones(6, 4)[:, 1:3]
    given = torch.randn(3, 2).t()
    tree = model, words, mask, turned, waves, part, given, given
    made, words, mask, turned, waves, part, taken, again = with_data(tree, torch.device("cpu"))
    assert type(made[0].weight) is type(model[0].weight) and made[0].weight.codes.device.type == "cpu"
    assert made[1].running_var.min() >= 0 and made[1].running_var.max() < 0.02
    assert made[1].weight.requires_grad and isinstance(made[1].weight, nn.Parameter)
    assert words.tolist() == [0, 0, 0] and mask.all() and waves.dtype is torch.complex64
    assert (turned.shape, turned.stride()) == ((5, 4), (1, 5)) and part.stride() == (4, 1)
    assert taken is again and taken is not given and torch.equal(taken, given) and taken.stride() == given.stride()
    assert torch.isfinite(made(torch.ones(3, 8))).all()


def test_gradients_and_states_of_optimizers_are_copied() -> None:
    layer = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    made, its = with_data((layer, optimizer), None)
    assert made.weight.grad is not layer.weight.grad and torch.equal(made.weight.grad, layer.weight.grad)
    assert its.param_groups[0]["params"][0] is made.weight
    assert float(its.state[made.weight]["step"]) == 1
    assert torch.equal(its.state[made.weight]["exp_avg"], optimizer.state[layer.weight]["exp_avg"])
