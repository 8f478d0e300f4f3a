"""Which subject or satellite defines what the layers below use: it is imported at the first use. See `later.py`."""

import os

from subclass_aot.base.later import promises

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
        **dict.fromkeys(
            ("compiled_in_parts", "listener data_dependent", "put_checks"), "subclass_aot.subjects.value_reads"
        ),
        "listener own_generators": "subclass_aot.subjects.own_generators",
        "listener lost_gradients": "subclass_aot.subjects.lost_gradients",
        "numbers.attempt": _NUMBERS,
        "numbers.program": _NUMBERS,
        "numbers.were_met": _NUMBERS,
        "lstm layer": "subclass_aot.subjects.recurrent",
        "lstm network": "subclass_aot.subjects.recurrent",
        **dict.fromkeys(("pack_sequences", "pad_sequences", "recurrent_layer"), "subclass_aot.subjects.packed"),
        **dict.fromkeys(("refuse_made_elsewhere", "run_on_inputs"), "subclass_aot.subjects.other_threads"),
        **dict.fromkeys(
            ("bag_gradient", "sparse_like", "sparse_tensor", "sparse_tensor_of_program", "without_padding"),
            "subclass_aot.subjects.sparse",
        ),
        "second_derivatives": "subclass_aot.subjects.second_derivatives",
        "structure torch.nested._internal.nested_tensor.NestedTensor": "subclass_aot.subjects.jagged",
        "claims of cuda": "subclass_aot.cost.cuda",
        "gradients_without_data": "subclass_aot.cost.without_data",
        "run_without_data": "subclass_aot.cost.without_data",
        **{f"forms of {name}": _RANKS for name in ("c10d", "_c10d_functional", "_c10d_functional_autograd")},
        "namespace c10d": _RANKS,
        "namespace _c10d_functional": _RANKS,
        "namespace fsdp": _RANKS,
        "pre_all_gather": _RANKS,
        "post_all_gather": _RANKS,
        "explain": "subclass_aot.testing.explain",
        "write_file": "subclass_aot.files.compiled",
    }
)

if os.environ.get("SUBCLASS_AOT_CHECK") == "1":
    import subclass_aot.testing.invariants  # noqa: F401  # which checks each compilation
if os.environ.get("SUBCLASS_AOT_PROGRESS") == "1":
    import subclass_aot.testing.progress  # noqa: F401  # who shows what is compiled
