"""A timeline is data: what is held after each event follows from it."""

import torch

from subclass_aot.cost.profiling.timeline import Allocation, Timeline

CPU = torch.device("cpu")


def made(born: int, nbytes: int, device: torch.device = CPU) -> Allocation:
    return Allocation(nbytes, device, [(born, "temporary")], born)


def timeline() -> Timeline:
    found = Timeline(CPU, 512)
    found.allocations += [made(-1, 100), made(0, 30), made(1, 5, torch.device("cuda:0"))]
    found.events += [(1, 30), (2, 5), (1, -10), (1, -20)]
    found.phases += [(0, "forward"), (3, "backward")]
    return found


def test_the_curve_is_of_one_device_and_begins_with_what_is_there() -> None:
    assert timeline().curve() == [100, 130, 130, 120, 100]
    everywhere = timeline()
    everywhere.device = None
    assert everywhere.curve() == [100, 130, 135, 125, 105]


def test_what_is_held_adds_up_to_the_curve() -> None:
    found = timeline()
    for event, nbytes in enumerate(found.curve()):
        assert sum(held for _, held in found.live_at(event)) == nbytes


def test_phases_begin_and_end_at_events() -> None:
    found = timeline()
    assert [found.phase_at(event) for event in range(5)] == ["forward"] * 4 + ["backward"]
    assert (found.end_of("forward"), found.end_of("backward"), found.end_of("optimizer")) == (3, 4, None)


def test_a_phase_that_comes_again_ends_last() -> None:
    found = timeline()
    found.phases.append((4, "forward"))
    found.events.append((0, 8))
    found.phases.append((5, "backward"))
    found.events.append((0, -8))
    assert (found.end_of("forward"), found.end_of("backward")) == (3, 6)


def test_sizes_are_rounded_as_the_allocator_does() -> None:
    assert [timeline().rounded(n) for n in (0, 1, 512, 513)] == [0, 512, 512, 1024]


def test_memory_is_of_another_kind_from_an_event_on() -> None:
    allocation = made(0, 8)
    allocation.kinds.append((3, "saved"))
    assert [allocation.kind_at(event) for event in (0, 2, 3, 9)] == ["temporary", "temporary", "saved", "saved"]
