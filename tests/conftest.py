"""What every test starts from: one thread, one seed, and the same random programs on every run."""

from __future__ import annotations

import gc
import os
import sys

os.environ.setdefault("SUBCLASS_AOT_REPLAY", "check")  # each replay is compared with what the class makes

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from zlib import crc32

import hypothesis
import pytest
import torch

from subclass_aot.base import lru_caches
from subclass_aot.engine import stages
from subclass_aot.native import accelerated, build, cache
from subclass_aot.testing import invariants
from tests import itself
from tests.native.places import run_natively
from tests.torches import FIRST_WITH_ACCELERATOR, TORCH

TESTS = Path(__file__).resolve().parent

torch.set_num_threads(int(os.environ.get("SUBCLASS_AOT_TEST_THREADS", "1")))

# "default" draws the same examples each time, so that a failure is a change of ours. "explore" looks for new ones:
# HYPOTHESIS_PROFILE=explore make test
hypothesis.settings.register_profile("default", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this project's tests."""
    parser.addoption("--all", action="store_true", help="run what is marked long, too, and try all models")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out the helpers of tests, which have no doctests.

    Collecting a module for doctests may run it a second time, under another name. One that defines operators defines
    them again then, and torch frees those of the first time, which tests go on using.
    """
    is_helper = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if is_helper and collection_path.is_relative_to(TESTS) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is marked `long`, and most cases of tests that have many, unless all is asked for.

    `make test` is to end within 15 minutes. A test that is named on the command line, as by `pytest file::test`, has
    all its cases.
    """
    if config.getoption("--all"):
        return
    named = any("::" in arg for arg in config.args)
    short = [item for item in items if not item.get_closest_marker("long")]
    left_out = [item for item in items if item.get_closest_marker("long")]
    cases = Counter(map(_function_of, short))
    seen: set[str] = set()
    kept: list[pytest.Item] = []
    for item in short:
        function = _function_of(item)
        # By a hash, since every sixteenth of a grid may be one place of an axis; the same ones in each process.
        is_drawn = function not in seen or crc32(item.nodeid.encode()) % 16 == 0
        is_sampled = cases[function] > MANY and not named and not item.get_closest_marker("every_case")
        seen.add(function)
        (kept if is_drawn or not is_sampled else left_out).append(item)
    # Nobody is told which they are: pytest would keep them, and they are more objects than torch has, through which
    # Python's collector goes again and again.
    print(f"{len(left_out)} cases of {len(items)} are left to make test-all", file=sys.stderr)
    items[:] = kept


MANY = 3
"""Of a test that has more cases, `make test` runs the first and a sixteenth of the others; `make test-all` runs all."""


def _function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test in which the function itself ran with a warning, unless `itself.txt` has the test."""
    with itself.watched() as seen:
        yield
    if seen and _function_of(item) not in itself.allowed():
        pytest.fail(f"{_function_of(item)} is not in itself.txt, and the function itself ran:\n{seen[0]}")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _invariants(request: pytest.FixtureRequest) -> Iterator[None]:
    """A sixteenth of the tests checks what must hold between stages, and all do of `make test-all`."""
    node: pytest.Item = request.node
    if not request.config.getoption("--all") and crc32(node.nodeid.encode()) % 16 != 1:
        yield
        return
    stages.checked_by.append(invariants.check)
    yield
    stages.checked_by.remove(invariants.check)


@pytest.fixture(scope="module", autouse=True)
def _small_heap(request: pytest.FixtureRequest) -> None:
    """Python's collector leaves alone what modules before have left: each collection, and each list of all, is short.

    Else a test takes several times as long at the end as at the beginning. A module in which the library searches for
    objects of the module itself has `WHOLE_HEAP`, and so has every sixteenth, since users' programs have it.
    """
    name = str(getattr(request.module, "__name__", ""))
    if getattr(request.module, "WHOLE_HEAP", False) or crc32(name.encode()) % 16 == 0:
        gc.unfreeze()
    else:
        gc.collect()
        gc.freeze()
        # A search for caches in the modules of all tests would take longer than most tests do.
        lru_caches.take_as_searched(sys.modules.keys() - {name})


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """Nothing that Dynamo compiled in one test is there in another."""
    torch.compiler.reset()
    with warnings.catch_warnings():
        # The shape inference of Dynamo reads `.grad` of what is no leaf: an error, where warnings are errors.
        warnings.simplefilter("ignore")
        yield
    torch.compiler.reset()


@pytest.fixture(scope="session")
def built() -> ModuleType:
    """The accelerator, built where it was not, whatever the environment says of it."""
    module, _ = accelerated.find()
    if module is not None:
        return module
    if TORCH < FIRST_WITH_ACCELERATOR:
        pytest.skip("the accelerator does not compile with a torch as old as this one, and Python runs")
    if build.compiler() is None:
        pytest.skip("there is no C++ compiler, and without one there is no accelerator")
    return accelerated.load(cache.build_accelerator())


@pytest.fixture(params=["Python", "C++"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test twice: on code that is generated without the accelerator, and with it. Gives which it is."""
    module = request.getfixturevalue("built") if request.param == "C++" else None
    run_natively(monkeypatch, module)
    return str(request.param)
