"""Which subject or satellite defines what the layers below use: it is imported at the first use. See `later.py`."""

import os

from subclass_aot.later import promises

_BACKENDS, _RANKS = "subclass_aot.backends", "subclass_aot.ranks"
_NUMBERS = "subclass_aot.subjects.numbers"

promises.update(
    {
        "compiler eager": _BACKENDS,
        "compiler inductor": _BACKENDS,
        "of_callable": _BACKENDS,
        "of_partitioner": _BACKENDS,
        "holder _contextvars.ContextVar": "subclass_aot.subjects.context_variables",
        "holder _thread._local": "subclass_aot.subjects.thread_locals",
        "listener assigned_data": "subclass_aot.subjects.assigned_data",
        "listener lost_gradients": "subclass_aot.subjects.lost_gradients",
        "numbers.attempt": _NUMBERS,
        "numbers.program": _NUMBERS,
        "numbers.were_met": _NUMBERS,
        "lstm layer": "subclass_aot.subjects.recurrent",
        "lstm network": "subclass_aot.subjects.recurrent",
        "second_derivatives": "subclass_aot.subjects.second_derivatives",
        "structure torch.nested._internal.nested_tensor.NestedTensor": "subclass_aot.subjects.jagged",
        "namespace c10d": _RANKS,
        "namespace _c10d_functional": _RANKS,
        "namespace fsdp": _RANKS,
        "pre_all_gather": _RANKS,
        "post_all_gather": _RANKS,
        "explain": "subclass_aot.explain",
        "write_file": "subclass_aot.saved",
    }
)

if os.environ.get("SUBCLASS_AOT_PROGRESS") == "1":
    import subclass_aot.progress  # noqa: F401  # who shows what is compiled
