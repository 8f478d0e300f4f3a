"""What the parts of this room know of a wrapper: a tensor with a declaration, and what is generated for its class.

Note [Types without a circle]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
`WrapperTensor` is made of functions that take one: it imports their modules, so they cannot import it. They name
`Wrapper`, which type checkers see as the base of it. When the program runs, that is `torch.Tensor` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex

import torch

if TYPE_CHECKING:
    from torch.fx.node import Target

    from subclass_aot.kit.declaration import Declaration
    from subclass_aot.kit.wrapper.layout.field_map import FieldMap

    class Wrapper(torch.Tensor):
        """A wrapper, as the functions that `WrapperTensor` is made of see it."""

        accepts: ClassVar[tuple[type, ...]]
        reads_through: ClassVar[bool]
        __wrapper_declaration__: ClassVar[Declaration]
        __wrapper_attributes__: ClassVar[Any]
        _handlers: ClassVar[dict[Target, Callable[..., Any]]]
        _known: ClassVar[set[tuple[type, ...]]]
        _field_maps: ClassVar[dict[object, tuple[FieldMap, ...]]]

        def __tensor_flatten__(self) -> tuple[list[str], Any]:
            """Returns the names of the inner tensors and the context."""

        @classmethod
        def __tensor_unflatten__(
            cls, inner: Any, context: Any, outer_size: Any = None, outer_stride: Any = None
        ) -> Any:
            """Returns an instance that holds these tensors."""

        def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
            """Returns what pickle and `copy.copy` store."""

        def __wrapper_state__(self) -> dict[str, Any]:
            """Returns the attributes that the instance holds besides inner tensors."""
else:
    Wrapper = torch.Tensor
