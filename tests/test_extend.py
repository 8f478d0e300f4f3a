"""What another package hooks in by. The programs of the page *Extending* run in the test of the documentation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot import extend
from subclass_aot.base.logs import announced_to
from subclass_aot.base.written_out import WRITTEN_OUT
from subclass_aot.engine.compilers import BACKENDS
from subclass_aot.errors import DefinitionError


def test_names_are_those_that_it_lists() -> None:
    own = {name for name, value in vars(extend).items() if not name.startswith("_") and name != "annotations"}
    registries = {
        "BACKENDS",
        "SERVED",
        "STRUCTURES",
        "WRITTEN_OUT",
        "announced_to",
        "DefinitionError",
        "Operator",
        "holders",
    }
    assert own - registries - {"Any", "Callable", "MutableMapping", "torch"} == set(extend.__all__)
    assert all(getattr(extend, name).__doc__ for name in extend.__all__ if name != "BoxedFunction")


def test_a_compiler_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BACKENDS, "_things", dict(BACKENDS._things))
    mine = extend.Backend(lambda graph, inputs, is_backward: lambda flat: graph(*flat))
    extend.register_backend("mine", mine)
    assert sa.aot_compile(lambda x: x + 1, fw_compiler="mine")(torch.ones(2)).tolist() == [2.0, 2.0]
    for name in ("mine", "inductor"):
        with pytest.raises(DefinitionError, match=f"There is a compiler named '{name}' already"):
            extend.register_backend(name, mine)


def test_an_operator_stays_whole_for_who_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.library.custom_op("test_extend::triple", mutates_args=())
    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    triple.register_fake(torch.empty_like)
    operator = torch.ops.test_extend.triple.default
    monkeypatch.delitem(WRITTEN_OUT, operator, raising=False)
    extend.register_whole(operator, lambda x: x * 3)
    targets: list[list[Any]] = []

    def compile(graph: Any, inputs: Any) -> Any:
        targets.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    for compiler in (compile, "eager"):
        compiled = sa.aot_compile(torch.ops.test_extend.triple, fw_compiler=compiler)
        assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
    assert targets == [[torch.ops.aten.mul.Tensor]] and "triple" in compiled.stages(torch.ones(2)).forward
    del WRITTEN_OUT[operator]


def test_what_is_compiled_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("subclass_aot.extend.announced_to", own := [*announced_to])
    monkeypatch.setattr("subclass_aot.engine.options.announced_to", own)
    extend.on_compile(told.append)
    sa.aot_compile(torch.sin, fw_compiler=lambda graph, inputs: graph)(torch.ones(2))
    sa.aot_compile(torch.sin)(torch.ones(2))
    assert told == ["sin: compiles the forward graph of 1 operators", ""]
