"""Tensors made of other tensors: declared fields, generated methods, operator rules.

`WrapperTensor` is the base of such classes; `Outer` is what their `outer` rule returns.
"""

from subclass_aot.wrapper.base import WrapperTensor as WrapperTensor
from subclass_aot.wrapper.outer import Outer as Outer

__all__ = ["Outer", "WrapperTensor"]
