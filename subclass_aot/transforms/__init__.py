"""What a compiled function does inside `torch.func.grad`, `vjp`, `vmap` and what is made of them.

Note [Transforms around]
~~~~~~~~~~~~~~~~~~~~~~~~
Inside a transform, tensors have levels around them. Torch takes an `autograd.Function` through them: at each level it
asks for the gradient, or for the rule of `vmap`, and at the lowest there are plain tensors, for which there are graphs.
So a call becomes a program: a function of a flat list of tensors, of which the gradient and the rule of `vmap` are
programs in turn, each compiled when plain tensors first reach it. See also Note [Residuals].

Which signature it is, tensors without levels tell that look like those of the call: they stand in for them where the
guard is asked. A program is the call as it was recorded for that signature, so that what the guard has compared holds.

That is right for functions that compute new tensors of tensors and do nothing else. For others, and where a transform
has no part in this (forward mode), the function itself runs.
"""

from subclass_aot.transforms.calls import Transforms as Transforms
