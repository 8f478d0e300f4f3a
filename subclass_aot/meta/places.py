"""What a tensor without data meets of some programs only, and a subject or a satellite defines: see `satellites.py`."""

from __future__ import annotations

from typing import Any

from subclass_aot.base.later import Later

pack_sequences: Later[..., Any] = Later("pack_sequences")
"""Packs sequences of known lengths; None where the lengths are not known."""

pad_sequences: Later[..., Any] = Later("pad_sequences")
"""Pads what is packed."""

recurrent_layer: Later[..., Any] = Later("recurrent_layer")
"""Runs a recurrent layer of torch on packed sequences, or without cuDNN; `NotImplemented` of other calls."""

sparse_tensor: Later[..., Any] = Later("sparse_tensor")
"""Makes the sparse tensor of which autograd has indices and values."""

sparse_tensor_of_program: Later[..., Any] = Later("sparse_tensor_of_program")
"""Makes what `torch.sparse_coo_tensor` does on a device that is only claimed; `NotImplemented` of other calls."""

sparse_like: Later[..., Any] = Later("sparse_like")
"""Makes a sparse tensor without data that stands for a real one."""

without_padding: Later[..., Any] = Later("without_padding")
"""Marks the indices of padding in a sparse gradient."""

bag_gradient: Later[..., Any] = Later("bag_gradient")
"""Makes the sparse gradient of an embedding bag; `NotImplemented` of a dense one."""

run_on_inputs: Later[..., Any] = Later("run_on_inputs")
"""Runs an operator of another thread on what traced tensors stand for."""

refuse_made_elsewhere: Later[[Any], None] = Later("refuse_made_elsewhere")
"""Refuses a tensor that another thread has computed of traced ones."""

run_without_data: Later[..., Any] = Later("run_without_data")
"""Makes all tensors without data, in a block: `subclass_aot.meta(device)`."""
