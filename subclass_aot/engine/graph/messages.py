"""Messages for what a graph cannot do to the tensors of a call, and what to write instead."""

METADATA_MUTATED = """{path} has another size, stride or offset after the call than before.
  Before: {before}
  After:  {after}
  A graph can write into the data of its inputs, but not their metadata.
  Instead: return the changed tensor, as in `return x.t()`, or make the change outside the compiled function."""

DATA_ASSIGNED = """The traced function assigns to `.data`, which gives a tensor other memory, and {what}.
  Where:   {where}
  A call could not do that again.
  Instead: write into the tensor, as in `with torch.no_grad(): x.copy_(value)`, or use `value` itself from there on."""

OUT_GROWS = """A tensor given as `out=` is too small for the result, and shares its storage with other tensors.
  Operator:   {operator}
  Your line:  {line}
  Size:       {before} before, {after} after
  In eager mode the storage grows below them all. Instead: use what the operator returns, without `out=`."""

REPLACED_LEAF = """{path}: the function put another tensor into this attribute, or its constructor keeps a copy.
  An assignment happens while tracing, not in the graph, so later calls would not repeat it.
  Instead: write into the inner tensor, as in {path}.copy_(...), or return a new wrapper."""

INNER_GRADIENT = """{path} is an inner tensor, and the function writes into it what requires grad.
  In eager mode gradients would flow through the inner tensor, which the wrapper around it knows nothing of.
  Instead: write into the wrapper, or under `torch.no_grad()`."""

SETTING_LEFT = """the function leaves a setting of torch otherwise than it was: {setting}
  Instead: set it outside of the function, or put it back before the function returns, as by a `with` statement."""

SWITCHED_GRAD = """{path}: the function sets requires_grad of this input to False.
  That is no part of a graph. From the next call on it is so, if it is the same tensor.
  Instead: call {path}.requires_grad_(False) before the compiled function."""

VIEW_OF_MUTATED = """A result is a view of {path}, and the function changes the size or strides of {path} in place.
  Instead: return a copy of the view, or use the operator that returns a new tensor (x.t() instead of x.t_())."""

MUTATED_TOGETHER = """{paths} are one tensor, and the function changes the size or strides of one of them in place.
  In eager mode both would change. Instead: use the operator that returns a new tensor (x.t() instead of x.t_())."""

MUTATED_VIEW = """{path} is a view, the function writes into it where autograd must see it, and it also
  changes the size or strides of {path} in place. Autograd makes the view again after a write, and forgets that change.
  Instead: use the operator that returns a new tensor (x.t() instead of x.t_()), or pass a copy, x.clone()."""

VIEW_OF_MUTATED_BEFORE = """The function changes the size or strides of a tensor in place, and then torch says: {reason}
  Your line:  {line}
  If a view of that tensor is used here which was made before: autograd regenerates it, in a trace of the tensor as it
  is now.
  Instead: use the operator that returns a new tensor (x.unsqueeze(0) instead of x.unsqueeze_(0)), or make the view
  afterwards."""

SHARED_FIELD = """{path} is a view of a wrapper and has fields in common with the rest of it, as columns have scales.
  The function writes it, and so writes the whole, which was made in inference mode, or detached, and is not known here.
  Instead: pass the whole tensor, and make the view inside the function."""

SHARED_GRADIENT = """{path} is a view and overlaps another input, and autograd must see a write into one of them.
  The requires_grad of {path} is not that of what it is a view of, so that its gradient would not follow the write.
  Instead: pass tensors that do not overlap, as in x.clone(), or write under torch.no_grad()."""

OVERLAPPING_INPUT = """Elements of {path} are one place in memory, and autograd must see a write into a part of it.
  Instead: pass the tensor that it was expanded from, and expand it in the function, or write under torch.no_grad()."""

LOST_VIEW_OF_INPUT = """{path} is a view and overlaps another input, and autograd must see a write into one of them.
  How {path} lies in the tensor that it is a view of cannot be said with view operators other than as_strided.
  Instead: pass tensors that do not overlap, as in x.clone(), or write under torch.no_grad()."""

LOST_GRADIENT = """A result depends on a {kind} of shape {shape} that requires grad and is no argument of the function.
  Its gradient would be lost.
  Instead: pass it as an argument, compile the module that owns it, or use tensor.detach() if no gradient is wanted."""

LOST_INNER_GRADIENT = """\
A result depends on an inner tensor of shape {shape} that requires grad, taken out of a wrapper.
  A call gives gradients to the wrapper, which autograd sees, and its gradient would be lost.
  Instead: pass the inner tensor as an argument, too; make the wrapper of inner.detach(); or use tensor.detach() of what
  is taken out, if no gradient is wanted."""

BACKWARD_WRITES = """{path} is written while gradients are computed, and in forward through memory that it shares.
  Instead: pass tensors that do not share storage, as in x.clone()."""

OVER = """{path}: this tensor belongs to a trace that is over, and has no data.
  It was kept while a function was traced, in a place that a later call does not fill again.
  Instead: return it from the function, or keep it in an attribute of an argument or of a module that is compiled."""

USED_LEAF = """{path} is a leaf of autograd's graph that the function makes, and that it goes backward to or hooks.
  Its .grad and its hooks are there while the function is traced, and would be missing on what a call returns.
  Instead: return leaf.detach() and leaf.grad, and register hooks on the result after the call."""

FORGOTTEN_LEAF = """{result} requires grad, but of no input: of a tensor that the function makes and does not return,
  as a parameter of a module that it makes. What is compiled gives results the history of inputs.
  Instead: make the module before, outside the compiled function, or return result.detach()."""

LEAF_OF_MUTATED = """{leaf} is a view of {path} and a leaf of autograd's graph, and another result depends on it.
  The function also writes into {path} where autograd must see it. That write comes after the graph, and the leaf
  would have to be made before it, and be a view of what comes after it.
  Instead: return a leaf that is no view, as in x.detach().clone().requires_grad_()."""

VIEW_OF_LEAF = """A result is a view of a leaf of autograd's graph that the function makes, and that is a view itself.
  Autograd remembers how it was made of the first of these tensors, and not how it was made of the second.
  Instead: make the view after the call, or make a leaf that is no view, as in x.detach().clone().requires_grad_()."""

SWAPPED = """{path} is another tensor after the call than before, as by torch.utils.swap_tensors.
  Instead: return the tensors in the other order, or exchange them outside of the compiled function."""

HOOKED_INPUT = """{path}: the function registers a gradient hook on this input.
  That happens while tracing, not in the graph, so the user's tensor would not have the hook.
  Instead: register it on {path} before the call, or inside on a tensor that is computed, as in x.view_as(x)."""

RETAINED_AND_WRITTEN = """{path}: the function has this input keep its gradient, as by retain_grad(), and writes into it
  or into what it is a view of, where autograd sees it. What it computes of the new value goes backward past the input.
  Instead: write into a tensor that is computed, as {path}.clone(), and have that keep its gradient."""

BACKWARD_THROUGH_INPUT = """{path}: the function goes backward itself, as with loss.backward(), and {path} is no leaf of
  autograd's graph: in eager mode gradients go on from there into what was computed before the call.
  A graph has gradients of its inputs only.
  Instead: call backward() outside of the function, or compile what computes {path}, too, or pass {path}.detach()."""

GRADIENT_OF_COMPUTED = """{path}: the function changes the .grad of this input, which is no leaf of autograd's graph.
  Instead: change it outside of the function, or pass {path}.detach()."""

USED_UP = """The function goes backward itself, as with loss.backward(), and returns several results that require grad.
  Of at least one, autograd's graph is used up then. Torch says: {reason}.
  Instead: return loss.detach(), or call loss.backward(retain_graph=True)."""

FOREIGN_LEAF = """A tensor without data that belongs to no running trace, or to another one, is used here.
  Operator:   {operator}
  Your line:  {line}
  Was it kept from an earlier trace (in an attribute, a global, a cache), was it computed in another thread, or is it
  the .grad of an input?
  Pass it as an argument instead."""

NESTED_INT = """The size of a ragged dimension is used as a number, and it stands for none.
  Your line:  {line}
  It is what the offsets of one call are called by, so another call could not repeat it.
  Instead: compute with the offsets, as in x.offsets().diff(), or with the elements, as in x.values()."""


UNKNOWN_LEAF = """A result or a gradient is a tensor without data that this trace knows nothing of.
  It was computed in another thread, or in another trace.
  Instead: compute it in the thread that calls the compiled function, and keep no tensor from an earlier call."""
