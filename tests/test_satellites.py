"""Each promise is kept: the module that was named puts the thing there."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import subclass_aot
from subclass_aot.base.later import Later, Registry

IMPORT_ALL = """
import sys
import subclass_aot
from subclass_aot.engine.compilers import BACKENDS, of_callable
from subclass_aot.kit.wrapper import SERVED, gather
for registry in (BACKENDS, SERVED):
    for name in registry:
        assert registry[name] is not None
for place in (of_callable, gather.before, gather.after):
    try:
        place()
    except TypeError:  # it has no arguments, but it is there
        pass
"""


def test_what_was_promised_comes() -> None:
    """In a process of its own, where nothing else has imported the satellites."""
    subprocess.run([sys.executable, "-c", IMPORT_ALL], check=True)


def test_every_place_is_filled_or_promised() -> None:
    places: dict[str, Later[..., object] | Registry[object]] = {}
    for info in pkgutil.walk_packages(subclass_aot.__path__, "subclass_aot."):
        if info.name.rpartition(".")[2] in ("__main__", "rank") or "_native" in info.name:
            continue
        for name, value in vars(importlib.import_module(info.name)).items():
            if isinstance(value, Later | Registry):
                places[f"{info.name}.{name}"] = value
    assert len(places) >= 8
    assert all(place._function is not None for place in places.values() if isinstance(place, Later))
    assert all(place[name] is not None for place in places.values() if isinstance(place, Registry) for name in place)
