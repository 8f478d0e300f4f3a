"""What tensors without data share is as of real ones, and listeners hear of it."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot import MetaTensor
from subclass_aot.errors import DataDependentError, MutationError
from subclass_aot.meta import Listener, Storage

Program = Callable[[Any, Any], Any]


class Memory(Listener):
    """Keeps what it hears of storages, each by the order of its birth."""

    def __init__(self) -> None:
        self.names: dict[int, int] = {}
        self.numbers = itertools.count()
        self.heard: list[tuple[Any, ...]] = []
        self.live = 0

    def _name(self, storage: Storage) -> int:
        if id(storage) not in self.names:
            self.names[id(storage)] = next(self.numbers)
        return self.names[id(storage)]

    def on_storage(self, storage: Storage) -> None:
        self.heard.append(("born", self._name(storage), storage.nbytes))
        self.live += storage.nbytes

    def on_resize(self, storage: Storage, before: int) -> None:
        self.heard.append(("resized", self._name(storage), before, storage.nbytes))
        self.live += storage.nbytes - before

    def on_release(self, storage: Storage) -> None:
        self.heard.append(("dead", self._name(storage), storage.nbytes))
        del self.names[id(storage)]
        self.live -= storage.nbytes


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


PROGRAMS: dict[str, Program] = {
    "nothing": lambda a, b: None,
    "set_": lambda a, b: a.set_(b),
    "set_ to a part": lambda a, b: a.set_(b, 2, (3,), (2,)),
    "set_ to a view": lambda a, b: a.set_(b[3:]),
    "set_ to a storage": lambda a, b: a.set_(b.untyped_storage()),
    "set_ to a part of a storage": lambda a, b: a.set_(b.untyped_storage(), 2, (3,), (2,)),
    "set_ to packed sizes": lambda a, b: a.set_(b.untyped_storage(), 2, (3, 2)),
    "set_ by name": lambda a, b: a.set_(source=b, storage_offset=1, size=(2,), stride=(1,)),
    "set_ to nothing": lambda a, b: a.set_(),
    "set_ to more than there is": lambda a, b: a.set_(b.untyped_storage(), 2, (30,), (1,)),
    "set_ both ways": lambda a, b: (a.set_(b), b.set_()),
    "data": lambda a, b: setattr(a, "data", b[2:]),
    "swapped": lambda a, b: torch.utils.swap_tensors(a, b),
    "resize_": lambda a, b: b.resize_(50),
    "resize_ of a view": lambda a, b: b[2:].resize_(50),
    "resize_ to less": lambda a, b: b.resize_(2),
    "resize_as_": lambda a, b: a.resize_as_(b),
    "resized storage": lambda a, b: b.untyped_storage().resize_(100),
    "storage resized to nothing": lambda a, b: b.untyped_storage().resize_(0),
    "storage resized to nothing and back": lambda a, b: [b.untyped_storage().resize_(n) for n in (0, 48)],
    "out": lambda a, b: torch.add(b, 1, out=a.resize_(0)),
    "in place": lambda a, b: b.mul_(2).t_(),
}


def facts(a: Any, b: Any) -> tuple[Any, ...]:
    storages = a.untyped_storage(), b.untyped_storage()
    looks = [(tuple(x.shape), x.stride(), x.storage_offset()) for x in (a, b)]
    return *looks, *[s.nbytes() for s in storages], storages[0]._cdata == storages[1]._cdata


@pytest.mark.parametrize("within", [sa.meta, nullcontext])
@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_is_as_of_real_tensors(name: str, within: Callable[[], AbstractContextManager[None]]) -> None:
    real = torch.empty(3), torch.ones(12)
    twins = MetaTensor.like(real[0]), MetaTensor.like(real[1])
    PROGRAMS[name](*real)
    with within():
        PROGRAMS[name](*twins)
    assert facts(*twins) == facts(*real)
    assert [Storage.of(x).nbytes for x in twins] == [x.untyped_storage().nbytes() for x in real]
    assert (Storage.of(twins[0]) is Storage.of(twins[1])) == (facts(*real)[-1])


def test_a_storage_says_what_it_is() -> None:
    x = MetaTensor(torch.ones(4, 3), "cuda:1")
    storage = Storage.of(x[1:])
    assert storage is Storage.of(x.detach()) and (storage.nbytes, storage.device) == (48, torch.device("cuda:1"))
    assert repr(storage) == "Storage(48 bytes, cuda:1)" and x.untyped_storage().device == storage.device
    assert repr(x.untyped_storage()) == "[subclass_aot.meta.storage.StorageHandle(device=cuda:1) of size 48]"
    assert x.untyped_storage() is x.t().untyped_storage() and len(x.untyped_storage()) == 48


def test_a_storage_lives_as_long_as_a_view_or_a_handle() -> None:
    x = MetaTensor(torch.ones(4))
    storage = weakref.ref(Storage.of(x))
    view = x[1:]
    del x
    handle = view.untyped_storage()
    assert storage() is Storage.of(view)
    del view
    assert storage() is not None and torch.empty(0) is not None and handle.nbytes() == 16
    del handle
    assert storage() is None


def test_a_real_tensor_has_a_storage_as_long_as_it_lives() -> None:
    x = torch.ones(4)
    storage = Storage.of(x)
    assert storage is Storage.of(x[1:]) and storage.nbytes == 16 and Storage.of(torch.ones(4)) is not storage
    x.resize_(8)
    assert Storage.of(x) is storage and storage.nbytes == 32
    alive = weakref.ref(storage)
    del storage
    assert alive() is not None
    del x
    assert alive() is None


@pytest.mark.parametrize("within", [sa.meta, nullcontext])
def test_births_and_deaths_are_heard_at_once(within: Callable[[], AbstractContextManager[None]]) -> None:
    with within():
        x = MetaTensor(torch.ones(2))
        with Memory() as memory:
            y = x.exp()
            z = y[1:].sin()
            y.resize_(10)
            del y
            x.untyped_storage().resize_(0)
            x.untyped_storage().resize_(8)
            x.data = z
        assert memory.heard == [
            ("born", 0, 8), ("born", 1, 4), ("resized", 0, 8, 40), ("dead", 0, 40),
            ("resized", 2, 8, 0), ("resized", 2, 0, 8), ("dead", 2, 8),
        ]  # fmt: skip
        del x, z
    assert len(memory.heard) == 7


def test_nothing_is_heard_of_views_and_writes() -> None:
    x = MetaTensor(torch.ones(2, 3))
    with Memory() as memory:
        x.mul_(2).view(-1)[1:].fill_(0).detach().unsqueeze_(0)
        x.split(1)
        x.requires_grad_().t().expand(4, 3, 2)
    assert not memory.heard


def test_a_result_that_autograd_saves_dies_with_it() -> None:
    """The saved one is no view of the result. See Note [Storages]."""
    x = MetaTensor(torch.ones(3)).requires_grad_()
    with Memory() as memory:
        for function in (torch.tanh, torch.exp, torch.relu, lambda x: x.softmax(0), lambda x: x.sigmoid() * x):
            function(x)
    assert memory.live == 0 and len(memory.heard) >= 10


def test_a_real_tensor_is_born_once_where_it_is_met() -> None:
    real = torch.ones(3)
    with sa.meta(), Memory() as memory:
        for _ in range(3):
            MetaTensor(torch.ones(3)).mul(real)
    assert [x for x in memory.heard if x[0] == "born"].count(("born", memory.names[id(Storage.of(real))], 12)) == 1
    assert memory.live == 12


def test_only_the_thread_of_a_listener_is_heard() -> None:
    thread = threading.Thread(target=lambda: MetaTensor(torch.ones(3)).sin())
    with Memory() as memory:
        thread.start()
        thread.join()
    assert not memory.heard


def released_elsewhere(held: list[Any]) -> None:
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()


@pytest.mark.parametrize("make", [lambda: MetaTensor(torch.ones(3)), lambda: torch.ones(3)])
def test_a_death_in_another_thread_is_heard_where_the_birth_was(make: Callable[[], Any]) -> None:
    """As of what threads of a process group let go: else what is next at that address would be taken for it."""
    with Memory() as memory, Memory() as another:
        held = [make()]
        Storage.of(held[0])
        released_elsewhere(held)
        assert not held
    for heard in (memory.heard, another.heard):
        assert [event[0] for event in heard] == ["born", "dead"]


def test_a_listener_that_has_ended_hears_of_no_death() -> None:
    with Memory() as memory:
        held = [MetaTensor(torch.ones(3))]
    with Memory():
        released_elsewhere(held)
    assert [event[0] for event in memory.heard] == ["born"]


def test_what_runs_unheard() -> None:
    x = MetaTensor(torch.ones(3))
    with Memory() as memory:
        with Listener.without_listeners():
            x.sin()
        x.cos()
    assert [event[0] for event in memory.heard] == ["born", "dead"]


def test_storages_do_not_tell_where_nobody_listens() -> None:
    assert not hasattr(Storage, "__del__")
    with Memory(), Memory():
        assert hasattr(Storage, "__del__")
    assert not hasattr(Storage, "__del__")


REFUSED: dict[str, Callable[[Any], Any]] = {
    "tolist": lambda s: s.tolist(),
    "__getitem__": lambda s: s[0],
    "__reduce__": pickle.dumps,
    "byteswap": lambda s: s.byteswap(torch.float32),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_reads_memory_is_refused(name: str) -> None:
    storage = MetaTensor(torch.ones(3)).untyped_storage()
    error = MutationError if name == "set_" else DataDependentError  # the function itself can do that
    with pytest.raises(error, match=rf"`untyped_storage\(\).{name}\(\)` .*Storage\(12 bytes, cpu\) has"):
        REFUSED[name](storage)


@pytest.mark.parametrize("read", [lambda s: s.fill_(1), copy.copy, lambda s: s.data_ptr()])
def test_torch_refuses_what_else_reads_memory(read: Callable[[Any], Any]) -> None:
    with pytest.raises(RuntimeError, match="invalid python storage"):
        read(MetaTensor(torch.ones(3)).untyped_storage())


IN_A_TRACE: dict[str, Callable[[Any], Any]] = {
    "resize_": lambda x: x.untyped_storage().resize_(0),
    "share_memory_": lambda x: x.detach().share_memory_(),
    "set_": lambda x: torch.empty(0).set_(x.untyped_storage()),
}


@pytest.mark.parametrize("name", IN_A_TRACE)
def test_a_trace_refuses_what_gives_other_memory(name: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        IN_A_TRACE[name](x)
        return x.sin()

    error = MutationError if name == "set_" else DataDependentError  # the function itself can do that
    with pytest.raises(error, match=rf"`untyped_storage\(\).{name}\(\)` asks for the memory"):
        sa.trace_joint(program, torch.ones(3))


def test_memory_that_is_not_there_is_shared_at_once() -> None:
    with sa.meta():
        layer = torch.nn.Linear(2, 3)
        assert layer.share_memory() is layer
