"""What a graph cannot do to the tensors of a call, and what to write instead."""

RESHAPED_INPUT = """{path} has another size, stride or offset after the call than before.
  Before: {before}
  After:  {after}
  A graph can write into the data of its inputs, but not change what they look like from outside.
  Instead: return the changed tensor, as in `return x.t()`, or make the change outside the compiled function."""

REPLACED_LEAF = """{path}: the function put another tensor into this attribute.
  An assignment happens while tracing, not in the graph, so later calls would not repeat it.
  Instead: write into the inner tensor, as in {path}.copy_(...), or return a new wrapper."""

SWITCHED_GRAD = """{path}: the function sets requires_grad of this input to {value}.
  That happens while tracing, not in the graph, so later calls would not repeat it.
  Instead: call {path}.requires_grad_({value}) before the compiled function."""

VIEW_OF_RESHAPED = """A result is a view of {path}, and the function changes the size or strides of {path} in place.
  Instead: return a copy of the view, or use the operator that returns a new tensor (x.t() instead of x.t_())."""

SHARED_GRADIENT = """{path} is a view and overlaps another input, and autograd must see a write into one of them.
  The requires_grad of {path} is not that of what it is a view of, so that its gradient would not follow the write.
  Instead: pass tensors that do not overlap, as in x.clone(), or write under torch.no_grad()."""

FOLDED_INPUT = """Several elements of {path} are one place in memory, and autograd must see a write into a part of it.
  Instead: pass the tensor that it was expanded from, and expand it in the function, or write under torch.no_grad()."""

LOST_VIEW_OF_INPUT = """{path} is a view and overlaps another input, and autograd must see a write into one of them.
  How {path} lies in the tensor that it is a view of cannot be said with view operators other than as_strided.
  Instead: pass tensors that do not overlap, as in x.clone(), or write under torch.no_grad()."""

LOST_GRADIENT = """A result depends on a {kind} of shape {shape} that requires grad and is no argument of the function.
  Its gradient would be lost.
  Instead: pass it as an argument, compile the module that owns it, or use tensor.detach() if no gradient is wanted."""

BACKWARD_WRITES = """{path} is written while gradients are computed, and in forward through memory that it shares.
  Instead: pass tensors that do not share storage, as in x.clone()."""
