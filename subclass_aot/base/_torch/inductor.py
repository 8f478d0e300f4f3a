"""Fake tensors, and inductor below AOTAutograd."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from subclass_aot.base._torch.postponed import without_slow_imports
from subclass_aot.base.put_back import PutBack, attributes_put_back

if TYPE_CHECKING:  # of which the one brings sympy
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx import Graph, GraphModule, Node


def fake_mode(solver: ShapeEnv | None = None) -> Any:
    """Returns a mode in which tensors are fake; inductor takes no other kind of example. `solver` is for symbolic
    sizes.

    Without a solver, if only one that knows no symbol, inductor does not look into its cache of compiled graphs.
    """
    return torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True, shape_env=solver)


def fake_on_cpu(meta: torch.Tensor) -> Any:
    """Returns a fake CPU tensor over a meta tensor, for shape functions that read the device.

    When it goes: no tensor.
    """
    global _mode_on_cpu
    _mode_on_cpu = _mode_on_cpu or fake_mode()
    return fake_over(_mode_on_cpu, meta, torch.device("cpu"))


def fake_over(mode: Any, meta: torch.Tensor, device: torch.device) -> Any:
    """Returns a fake tensor over a meta tensor.

    By an operator within its mode, which is public, it takes ten times as long.
    """
    return torch._subclasses.fake_tensor.FakeTensor(mode, meta, device)


_mode_on_cpu: Any = None


def convolution_backend(  # noqa: PLR0913  # the operator has as many
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: object,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> tuple[str, torch.memory_format]:
    """Returns the kernels that torch selects on CPU for a convolution of meta tensors, and the memory format that they
    work in.

    `bias` is a tensor, or its sizes. There is no public query. When it goes: `("", torch.contiguous_format)`, and a
    convolution in channels-last has wrong strides.
    """
    x, weight = fake_on_cpu(x), fake_on_cpu(weight)
    named = {"bias": fake_on_cpu(bias) if isinstance(bias, torch.Tensor) else None}
    if bias is not None and named["bias"] is None:
        named["bias_sizes"] = bias
    with _mode_on_cpu:  # in which these say that they lie on the CPU
        backend = torch._C._select_conv_backend(
            x,
            weight,
            stride=stride,
            padding=padding,
            dilation=dilation,
            transposed=transposed,
            output_padding=output_padding,
            groups=groups,
            **named,
        )
        if x.dim() == 3:  # it is an image of one row
            x, weight = x.contiguous().unsqueeze(2), weight.unsqueeze(2)
        return backend.name, torch._C._conv_determine_backend_memory_format(x, weight, backend)


def looks_channels_last(tensor: torch.Tensor) -> bool:
    """Returns whether kernels take a tensor for channels-last; `is_contiguous` does not say it where a size is one."""
    with without_slow_imports():
        return torch._prims_common.suggest_memory_format(tensor) is not torch.contiguous_format


def force_strides(graph: Graph, node: Node, strides: tuple[int, ...]) -> Any:
    """Appends what gives a tensor of a graph for inductor these strides: no public operator leaves it to the kernel."""
    from torch._inductor import inductor_prims

    return graph.call_function(inductor_prims.force_stride_order, (node, strides))


def inductor_decompositions() -> Any:
    """Returns the decompositions inductor expects to be done before it sees a graph."""
    importlib.import_module("torch._inductor.lowering")  # some use it and do not import it
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


def inductor_modes() -> Mapping[str, Mapping[str, Any]]:
    """Returns the modes that `torch.compile` has for inductor, and the switches of inductor that each of them sets."""
    from torch._inductor import list_mode_options

    return list_mode_options()


@functools.cache
def inductor_switch_names() -> tuple[str, ...]:
    """Returns the names of inductor's switches."""
    from torch._inductor import list_options

    return tuple(list_options())


def draws_as_eager() -> bool:
    """Returns whether inductor is to draw random numbers by the kernels of eager mode."""
    import torch._inductor.config

    return bool(torch._inductor.config.fallback_random)


@contextmanager
def inductor_switches(switches: Mapping[str, Any]) -> Iterator[None]:
    """Runs the block with other switches of inductor than it has."""
    import torch._inductor.config

    with torch._inductor.config.patch(dict(switches)):
        yield


class CudaGraphs:
    """Notes of inductor on a forward graph for which it makes CUDA graphs, for the backward graphs that belong to it.

    Forward notes its device, and whether it gave up making any; backward asserts that there is a device, and tells the
    owner of the memory that backward runs. A graph without a backward is marked as such, since none is waited for then.

    Args:
        is_inference: Whether forward has no backward.
    """

    def __init__(self, is_inference: bool) -> None:
        self._is_inference = is_inference
        self._notes: dict[str, Any] = {}

    def __deepcopy__(self, memo: object) -> CudaGraphs:
        return self  # which copies of a graph share

    def options(self, is_backward: bool) -> dict[str, Any]:
        """Returns the options of inductor for one graph.

        Args:
            is_backward: Whether it is a backward graph. Without a device of forward it gets no CUDA graphs: inductor
                has not compiled forward, or has made none for it.
        """
        import torch._inductor.config
        from torch._inductor.cudagraph_utils import BoxedDeviceIndex
        from torch._inductor.utils import BoxedBool

        notes = self._notes
        if is_backward and (not notes or notes[_DEVICE].value is None):
            return {"cudagraphs": BoxedBool(False)}
        if not notes:
            notes["cudagraphs"] = BoxedBool(torch._inductor.config.triton.cudagraphs)
            notes[_DEVICE] = BoxedDeviceIndex(None)
        return {**notes} if is_backward else {**notes, "is_inference": self._is_inference}


_DEVICE = "boxed_forward_device_index"


class Compilation(NamedTuple):
    """Facts that inductor needs of a graph beside the graph.

    Attributes:
        is_backward: Whether it is a backward graph.
        static: The inputs of which it is not checked at each call whether they are aligned.
        free: The outputs whose strides inductor chooses.
        is_cached: Whether inductor may take what it has made of a graph like it.
        cuda_graphs: What CUDA graphs are for.
    """

    is_backward: bool
    static: list[int]
    free: frozenset[int]
    is_cached: bool
    cuda_graphs: CudaGraphs


def compile_with_inductor(
    graph: GraphModule, fakes: list[Any], mode: FakeTensorMode, how: Compilation
) -> tuple[Any, list[Any]]:
    """Compiles a dense graph with fake values on its nodes by inductor, below AOTAutograd; there is no public door.

    Returns:
        The compiled graph, and the strides that all outputs have, as AOTAutograd gets them.
    """
    # What is free, and what is not asserted, is no part of the key under which inductor caches graphs: hence the tag.
    import torch._inductor.config
    import torch.compiler.config
    from torch._inductor.compile_fx import compile_fx_inner

    output: Any = graph.graph.output_node()
    tensors = [i for i, node in enumerate(output.args[0]) if isinstance(node, torch.fx.Node) and "spec" in node.meta]
    output.meta["user_visible_output_idxs"] = fixed = [i for i in tensors if i not in how.free]
    with ExitStack() as stack:
        stack.enter_context(_without_asserts(mode.shape_env))
        tag = f"{torch.compiler.config.cache_key_tag} subclass_aot {fixed} without asserts"
        stack.enter_context(torch.compiler.config.patch(cache_key_tag=tag))  # type: ignore[attr-defined]
        if not how.is_cached:
            stack.enter_context(torch._inductor.config.patch(fx_graph_cache=False))
        stack.enter_context(torch._guards.tracing(torch._guards.TracingContext(mode)))
        with torch._guards.TracingContext.report_output_strides() as strides:
            told = how.cuda_graphs.options(how.is_backward)
            compiled = compile_fx_inner(graph, fakes, is_backward=how.is_backward, static_input_idxs=how.static, **told)
        return compiled, list(strides or [None] * len(output.args[0]))


@contextmanager
def _without_asserts(env: Any) -> Iterator[None]:
    """Runs the block so that inductor asserts nothing of data-dependent numbers: calls of this library check them.

    It would assert what a solver assumes, and that a number is in its range.
    """
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    class Whole(ValueRanges[Any]):
        def issubset(self, other: object) -> bool:
            return True

    names = ("deferred_runtime_asserts", "_default_unspecified_value_range")
    with PutBack(attributes_put_back((env, name) for name in names)):
        env.deferred_runtime_asserts = {}
        env._default_unspecified_value_range = lambda: Whole(-int_oo, int_oo)
        yield


def draw_as_inductor(graph: GraphModule, mode: FakeTensorMode) -> None:
    """Replaces operators that draw random numbers by inductor's own: it does so to joint graphs, which it is not given.

    Args:
        graph: A graph with fake values on its nodes. It is changed.
        mode: Their mode.
    """
    from torch._inductor.fx_passes.replace_random import replace_random_passes
    from torch._inductor.virtualized import V

    with V.set_fake_mode(mode), mode:
        replace_random_passes(graph)
    graph.recompile()


def recorded_artifacts(compile: Callable[[], object]) -> dict[str, bytes]:
    """Returns what inductor has in its caches for what is compiled, so that another process can use it.

    Kernels for GPUs are in what `torch.compiler.save_cache_artifacts` gives; libraries of C++ kernels are not, so they
    are found by the table that inductor enters them into, and read from the files where it has them.

    Args:
        compile: Compiles. What was compiled before is found in inductor's cache.
    """
    from torch._inductor.codecache import CppPythonBindingsCodeCache
    from torch.compiler._cache import CacheArtifactManager

    libraries = CppPythonBindingsCodeCache.cache
    before = dict(libraries)
    with PutBack(functools.partial(libraries.update, before)), CacheArtifactManager.with_fresh_cache():
        libraries.clear()
        compile()
        saved = torch.compiler.save_cache_artifacts()
        paths = [Path(str(load().__file__)) for load in libraries.values()]
    found = {} if saved is None else {_ARTIFACTS: saved[0]}
    return found | {path.name: path.read_bytes() for path in paths}


def load_artifacts(artifacts: Mapping[str, bytes]) -> None:
    """Puts into inductor's caches what `recorded_artifacts` has given in another process.

    Libraries come into the table of those that are loaded, so that inductor does not look for a compiler.

    Raises:
        RuntimeError: Inductor cannot read them.
    """
    from torch._inductor.codecache import CppPythonBindingsCodeCache, get_path, write_atomic

    for name, data in artifacts.items():
        if name == _ARTIFACTS:
            if torch.compiler.load_cache_artifacts(data) is None:
                raise RuntimeError("inductor cannot read its artifacts")
            continue
        key = name.partition(".")[0]
        path = Path(get_path(key, "so")[1], Path(name).name)
        if not path.exists():
            write_atomic(str(path), data, make_dirs=True)
        load = functools.partial(CppPythonBindingsCodeCache._load_library, str(path), key)
        CppPythonBindingsCodeCache.cache.setdefault(key, functools.cache(load))


_ARTIFACTS = "artifacts"
