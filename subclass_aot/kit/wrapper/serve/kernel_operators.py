"""The operators that have a kernel for the Python key, where the accelerator is built.

They are what eager steps are made of: what models compute with, what autograd calls for that, and what optimizers do
to parameters. Each takes tensors one by one and returns new tensors, views, or what it wrote. Left out, and served in
Python as ever, are those that take or return lists (`cat`, `split`, `_foreach_add_`), `out=` overloads, those that
mutate the metadata of a tensor (`t_`, `resize_`), numbers as results (`item`), and `copy_` and `new_zeros`, which
depend on what the class means by its fields. Others that are not here can be added: nobody was slow without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_SAME = "detach alias lift_fresh clone _to_copy zeros_like ones_like empty_like full_like rand_like randn_like"

_VIEWS = """
t transpose.int permute view _unsafe_view expand select.int slice.Tensor unsqueeze squeeze squeeze.dim squeeze.dims
as_strided unfold diagonal
"""

_ARITHMETIC = """
add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar
div.Tensor_mode div.Scalar_mode pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar remainder.Tensor remainder.Scalar
fmod.Tensor fmod.Scalar maximum minimum fmax fmin atan2 hypot copysign.Tensor lerp.Scalar lerp.Tensor addcmul addcdiv
where.self masked_fill.Scalar masked_fill.Tensor clamp clamp.Tensor clamp_min clamp_max nan_to_num
eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar
logical_and logical_or logical_xor logical_not bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_not
abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh
atanh erf erfc sign sgn floor ceil round trunc frac isnan
"""

_IN_PLACE = """
add_.Tensor add_.Scalar sub_.Tensor sub_.Scalar mul_.Tensor mul_.Scalar div_.Tensor div_.Scalar pow_.Scalar pow_.Tensor
lerp_.Scalar lerp_.Tensor addcmul_ addcdiv_ neg_ abs_ exp_ log_ sqrt_ rsqrt_ reciprocal_ sin_ cos_ tanh_ sigmoid_ relu_
clamp_ clamp_.Tensor clamp_min_ clamp_max_ zero_ fill_.Scalar fill_.Tensor masked_fill_.Scalar masked_fill_.Tensor
sign_ floor_ round_ normal_ uniform_ bernoulli_.float addmm_ baddbmm_ silu_ leaky_relu_ hardtanh_
"""

_PRODUCTS = "mm bmm addmm baddbmm addmv mv dot vdot addbmm addr convolution convolution_backward"

_REDUCTIONS = """
sum sum.dim_IntList mean mean.dim amax amin max min max.dim min.dim prod prod.dim_int var.correction std.correction
var_mean.correction any any.dim all all.dim argmax argmin cumsum cumprod logsumexp linalg_vector_norm
"""

_ACTIVATIONS = """
relu sigmoid silu gelu leaky_relu elu hardtanh hardswish hardsigmoid softplus mish threshold log_sigmoid_forward
_softmax _log_softmax native_layer_norm native_group_norm native_dropout
"""

_BACKWARDS = """
threshold_backward sigmoid_backward tanh_backward gelu_backward leaky_relu_backward elu_backward
hardtanh_backward hardswish_backward hardsigmoid_backward softplus_backward log_sigmoid_backward
_softmax_backward_data _log_softmax_backward_data native_layer_norm_backward native_group_norm_backward
native_dropout_backward select_backward slice_backward diagonal_backward unfold_backward mse_loss_backward
smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward nll_loss_backward embedding_dense_backward
"""

_ELEMENTS = """
gather scatter.src scatter.value scatter_add index_select embedding tril triu flip roll repeat select_scatter
slice_scatter mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits nll_loss_forward
"""


def _names() -> Iterator[str]:
    for kind in (_SAME, _VIEWS, _ARITHMETIC, _IN_PLACE, _PRODUCTS, _REDUCTIONS, _ACTIVATIONS, _BACKWARDS, _ELEMENTS):
        for name in kind.split():
            yield f"aten::{name}"


OPERATORS: Final = tuple(_names())
"""Their names, as the dispatcher has them. Versions of torch that lack one go without."""
