"""Sparse gradients, as those of an embedding with `sparse=True`."""

from subclass_aot.subjects.sparse.gradient import SparseGradient as SparseGradient
