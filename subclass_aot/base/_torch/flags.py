"""Settings of torch that a program may read, and what stands between the two while it is traced.

Readers are functions of modules, and properties of the modules in `torch.backends`, whose classes are private. When one
goes, it is read as any state of a package: at the first call.
"""

from __future__ import annotations

import ast
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from subclass_aot.base._torch.stand_ins import stands_in

_FUNCTIONS = (
    "torch.get_float32_matmul_precision", "torch.get_num_threads", "torch.get_num_interop_threads",
    "torch.get_autocast_dtype", "torch.is_autocast_cache_enabled", "torch.is_warn_always_enabled",
    "torch.__future__.get_overwrite_module_params_on_conversion",
    "torch.__future__.get_swap_module_params_on_conversion", "torch.backends.mha.get_fastpath_enabled",
    *(f"torch.backends.cuda.{name}" for name in (
        "flash_sdp_enabled", "mem_efficient_sdp_enabled", "math_sdp_enabled", "cudnn_sdp_enabled",
        "fp16_bf16_reduction_math_sdp_allowed",
    )),
)  # fmt: skip
"""Functions that return a setting. What is a mode of every call is none of them: see `facts/modes.py`."""

_WITH_ARGUMENTS = frozenset({"get_autocast_dtype"})

_MODULES = ("cuda", "cudnn", "miopen", "mkldnn", "mps", "nnpack", "opt_einsum", "quantized", "kleidiai")
"""Modules in `torch.backends` that have properties."""


def read(setting: str) -> Any:
    """Returns a setting.

    Args:
        setting: How a program reads it, as `torch.get_num_threads()` or `torch.backends.cudnn.enabled`.

    >>> read("torch.get_num_threads()") == torch.get_num_threads()
    True
    """
    path, bracket, arguments = setting.partition("(")
    found: Any = torch
    for name in path.split(".")[1:]:
        found = getattr(found, name)
    return found(*ast.literal_eval(f"[{arguments.removesuffix(')')}]")) if bracket else found


def left() -> dict[str, object]:
    """Returns settings of torch that last until they are set again, each by what sets it. Who reads them is not noted.

    Grad mode and the default dtype are none of them: each call sets what a program leaves of these.
    """
    devices = ("cpu", "cuda")
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    return {
        "torch.use_deterministic_algorithms": torch.get_deterministic_debug_mode(),
        "torch.set_float32_matmul_precision": _precision(),
        "torch.autograd.set_detect_anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "torch.set_autocast_enabled": [torch.is_autocast_enabled(device) for device in devices],
        "torch.set_autocast_dtype": [_autocast_dtype(device) for device in devices],
        "torch.set_autocast_cache_enabled": _keeps_casts(),
        "torch.set_num_threads": _threads(),
        "torch.set_default_device": list(map(id, modes)),
        "torch.backends.mkldnn.enabled": torch._C._get_mkldnn_enabled(),
        "torch.backends.cudnn": (
            torch._C._get_cudnn_enabled(), torch._C._get_cudnn_benchmark(), torch._C._get_cudnn_deterministic(),
        ),
        "torch.backends.cuda.enable_..._sdp": [is_enabled() for is_enabled in _attentions],
        "torch.utils.deterministic.fill_uninitialized_memory": torch._C._get_deterministic_fill_uninitialized_memory(),
    }  # fmt: skip


# As they are outside of traces: those that stand there in one look who calls them.
_precision_of_products, _threads = torch.get_float32_matmul_precision, torch.get_num_threads
_autocast_dtype, _keeps_casts = torch.get_autocast_dtype, torch.is_autocast_cache_enabled
_attentions = [getattr(torch.backends.cuda, f"{x}_sdp_enabled") for x in ("flash", "math", "mem_efficient", "cudnn")]


def _precision() -> str | None:
    """Returns the precision of products; None where it was set by the newer names alone, for which torch raises."""
    try:
        return _precision_of_products()
    except RuntimeError:
        return None


noted: tuple[dict[str, None], ...] = ()
"""Where it is noted what a program reads, for each trace that runs: see `settings_noted`."""


def _note(setting: str) -> None:
    for found in noted:
        found[setting] = None


def _notes(text: str) -> Callable[..., Any]:
    """Makes what notes that a program calls a function, and not torch itself.

    Args:
        text: How programs write it.
    """

    def read_setting(torchs: Callable[..., Any], *args: object) -> Any:
        if _is_of_program(sys._getframe(2)):
            _note(f"{text}({', '.join(map(repr, args))})")
        return torchs(*args)

    return read_setting


def _found() -> Iterator[tuple[Any, str, str, Any]]:
    """Yields the functions that are there: the module, the name, how programs write it, and the function itself."""
    for text in _FUNCTIONS:
        path, _, name = text.rpartition(".")
        owner = sys.modules.get(path)
        if owner is not None and name in vars(owner):
            yield owner, name, text, vars(owner)[name]


_functions = tuple(_found())
for _owner, _name, _text, _ in _functions:
    stands_in(_owner, _name)(_notes(_text))

by_function = {id(original): f"{text}()" for _, name, text, original in _functions if name not in _WITH_ARGUMENTS}
"""What the functions read that take no arguments, by their ids: a program may have one by another name."""

_generic: Any = torch.backends
_PROPERTIES: list[tuple[type, str]] = [
    *((cls, "__get__") for cls in [getattr(_generic, "ContextProp", None)] if cls is not None),
    *((cls, "__getattr__") for cls in [getattr(_generic, "_FP32Precision", None)] if cls is not None),
    *((cls, "__getattr__") for cls in [getattr(_generic.cuda, "cuBLASModule", None)] if cls is not None),
    *((type(vars(cls)["engine"]), "__get__") for cls in [type(_generic.quantized)] if "engine" in vars(cls)),
]
"""What reads a property: of each class, the method."""


@functools.cache
def _names() -> dict[int, str]:
    """Returns how programs get to properties, and to objects that have some, by their ids."""
    found = {}
    holders = [(f"torch.backends.{name}", getattr(_generic, name, None)) for name in _MODULES]
    for path, module in [("torch.backends", _generic), *holders]:
        if module is None:
            continue
        named = [(n, v) for cls in type(module).__mro__ for n, v in vars(cls).items() if not n.startswith("__")]
        named += [(n, v) for n, v in vars(getattr(module, "m", module)).items() if not n.startswith("__")]
        found.update({id(v): f"{path}.{n}" for n, v in named if any(isinstance(v, cls) for cls, _ in _PROPERTIES)})
    return found


def _read_property(torchs: Callable[..., Any], self: object, *args: object) -> Any:
    name = _names().get(id(self))
    if name is not None and _is_of_program(sys._getframe(2)):
        _note(f"{name}.{args[0]}" if isinstance(args[0], str) else name)
    return torchs(self, *args)


for _class, _name in _PROPERTIES:
    stands_in(_class, _name)(_read_property)


def _is_of_program(frame: types.FrameType) -> bool:
    """Returns whether a frame runs code that is neither torch's nor this library's."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] not in ("torch", "subclass_aot")


def onednn_takes_bfloat16() -> bool:
    """Returns whether kernels of oneDNN run in bfloat16 on this processor. When the name goes: no, and others run."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return supported is not None and bool(supported())
