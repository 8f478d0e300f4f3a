"""`WrapperTensor`: a tensor made of others, of which the author declares the fields and writes only the mathematics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, SupportsIndex, dataclass_transform

import torch
from torch.fx.node import Target

from subclass_aot.base import _torch
from subclass_aot.base.asked import asks_for_text
from subclass_aot.base.hooks import hold
from subclass_aot.base.missing import note_missing_of
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.wrapper import gather, serialize
from subclass_aot.kit.wrapper.declare.construct import assign
from subclass_aot.kit.wrapper.declare.declare import declare
from subclass_aot.kit.wrapper.declare.fields import structure
from subclass_aot.kit.wrapper.describe import describe, stable_hash
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout import shared_fields
from subclass_aot.kit.wrapper.layout.field_map import FieldMap
from subclass_aot.kit.wrapper.serve import kernels, rules
from subclass_aot.kit.wrapper.serve.dispatch import dispatch


@dataclass_transform(eq_default=False, field_specifiers=(structure,))
class WrapperTensor(Wrapper):
    """Base of tensor classes whose fields are declared by annotation.

    `name: torch.Tensor` is an inner tensor, `torch.Tensor | None = None` an optional one, `list[torch.Tensor]` and
    `dict[str, torch.Tensor]` are several; a field of any other type is context, an immutable and hashable value.
    Fields are the parameters of the constructor, in order. A class may define

    - `outer_metadata(self) -> Outer`: the metadata of the tensor; default: that of its first inner tensor. It is
      called before the tensor exists, with the fields as attributes.
    - `to_plain(self)`: the dense tensor it stands for; operators without a rule then run on that;
    - `from_plain(self, plain)`: another of the class, like `self`, with the values of `plain`; then `copy_` and
      in-place operators without a rule work too;
    - `from_tangent(cls, tangent, context)`, a class method: a gradient of another class as one of this class with that
      context, or None; a compiled backward calls it;
    - `accepts`: other wrapper classes that its rules take as arguments.

    Args:
        fallback: "each": every operator runs on every inner tensor. "plain": an operator without rule runs on
            `to_plain()` (the default where that is defined). "error": an operator without rule is an error (the
            default elsewhere). Inherited.
        views: "broadcast": view operators act on every field, along the dims in which it is not broadcast. "blocks":
            an element of a field stands for a block of the tensor, and views are cut between blocks. A dict says it by
            field, "broadcast" being left out, and names those that are the same for every view: `{"table": "keep"}`.
            A view that these do not give is a `ViewOf`, where the class has `to_plain`. Inherited.
        renamed: Fields that files of earlier versions have by another name: `{"old": "new"}`. Those of bases count.

    >>> class Pair(WrapperTensor, fallback="each"):
    ...     left: torch.Tensor
    ...     right: torch.Tensor
    >>> pair = Pair(torch.zeros(2), torch.ones(2)) + 1
    >>> pair
    Pair(float32[2], left=float32[2], right=float32[2])
    >>> pair.right
    tensor([2., 2.])
    """

    accepts: ClassVar[tuple[type, ...]] = ()

    __wrapper_declaration__: ClassVar[Declaration] = Declaration({}, (), "error", None, {}, frozenset(), object, {}, {})

    # What dispatch found out so far. They stand beside the declaration, since every operator looks there.
    _handlers: ClassVar[dict[Target, Callable[..., Any]]] = {}
    _known: ClassVar[set[tuple[type, ...]]] = set()
    _field_maps: ClassVar[dict[object, tuple[FieldMap, ...]]] = {}

    reads_through: ClassVar[bool] = False
    """Whether tensors of the class stand for a view of another wrapper, and hold that."""

    __torch_function__ = _torch.wrappers.disabled_torch_function_impl
    __torch_dispatch__ = classmethod(dispatch)  # type: ignore[assignment]

    __wrapper_attributes__: ClassVar[Any] = None

    def __init_subclass__(
        cls,
        *,
        fallback: Literal["each", "plain", "error"] | None = None,
        views: Literal["broadcast", "blocks"] | Mapping[str, Literal["broadcast", "blocks", "keep"]] | None = None,
        renamed: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        frame: Any = sys._getframe(1)
        while frame.f_code.co_name == "__init_subclass__":
            frame = frame.f_back
        declare(cls, {"fallback": fallback, "views": views, "renamed": renamed}, frame.f_locals)

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        raise TypeError("WrapperTensor is a base class: declare a subclass with at least one tensor field")

    @classmethod
    def implements(cls, *operators: object) -> Callable[[rules.RuleT], rules.RuleT]:
        """Makes the decorated function the rule of this class (and of its subclasses) for operators.

        Args:
            operators: Overloads such as `torch.ops.aten.mm.default`, packets such as `torch.ops.aten.mm` for all
            overloads but those with `out=`, or sets such as `sa.ops.pointwise`.

        Returns:
            A decorator. The rule is called with the operator's arguments, as the operator would be; with a set among
            `operators`, the operator itself comes first. It must return what the schema promises: `self` itself for an
            in-place operator, the `out` tensor for `out=`, a tensor of its class for a view; or NotImplemented, where
            what would serve the operator without this rule should.
        """

        def register(rule: rules.RuleT) -> rules.RuleT:
            rules.register(cls, operators, rule)
            return rule

        return register

    def __setattr__(self, name: str, value: object) -> None:
        declaration = self.__wrapper_declaration__
        if name in declaration.fields or not declaration.is_static and name in self.__tensor_flatten__()[0]:
            assign(self, name, value)
        else:
            hold(self, (name,), value)

    def __wrapper_state__(self) -> dict[str, Any]:
        """Returns the attributes that the instance holds besides inner tensors."""
        return {name: getattr(self, name) for name in self.__wrapper_declaration__.attributes}

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        return describe(self, asks_for_text(sys._getframe(1)))

    def _stable_hash_for_caching(self) -> str:
        return stable_hash(self)

    def __coerce_tangent_metadata__(self) -> Any:
        return self

    def __coerce_same_metadata_as_tangent__(self, context: object, expected_type: type | None = None) -> Any:
        if expected_type is None or expected_type is type(self):
            return self if self.__tensor_flatten__()[1] == context else None
        if expected_type is torch.Tensor and hasattr(self, "to_plain"):
            return self.to_plain()
        return None

    @classmethod
    def __metadata_guard__(cls, context: object, other: object) -> bool:
        return shared_fields.same_for_guards(context, other)

    @property
    def data(self) -> Any:
        """This tensor without its autograd history. Assigning replaces the inner tensors too."""
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if type(value) is not type(self):
            raise TypeError(
                f"the data of a {type(self).__name__} cannot be replaced by a {type(value).__name__}: its inner "
                f"tensors would stay as they were. Give a {type(self).__name__}"
            )
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        for name in (*self.__tensor_flatten__()[0], *self.__wrapper_declaration__.attributes):
            del self.__dict__[name]
        self.__dict__.update({name: getattr(value, name) for name in value.__tensor_flatten__()[0]})
        self.__dict__.update(value.__wrapper_state__())
        shared_fields.copy_origin(self, value)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return serialize.reduce(self)

    def __copy__(self) -> Any:
        return serialize.copied(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return serialize.deepcopy(self, memo)

    @_torch.dynamo.below_dynamo
    def fsdp_pre_all_gather(
        self,
        mesh: object,
        outer_size: torch.Size,
        outer_stride: tuple[int, ...],
        module: torch.nn.Module,
        mp_policy: object,
    ) -> tuple[tuple[torch.Tensor, ...], Any]:
        """Returns those inner tensors of this shard that have its rows, for FSDP2 to send. A class may have a hook of
        its own.

        Args:
            mesh: The ranks.
            outer_size: The size of the whole tensor.
            outer_stride: Its strides.
            module: The module that has the parameter.
            mp_policy: In which dtype the layer runs.

        Returns:
            Dense tensors, and what the other hook needs.

        Raises:
            ShardingError: The class does not say how its rows come together.
        """
        return gather.before(self, mesh, outer_size, module, mp_policy)

    @_torch.dynamo.below_dynamo
    def fsdp_post_all_gather(
        self,
        all_gather_outputs: tuple[torch.Tensor, ...],
        metadata: object,
        param_dtype: torch.dtype,
        *,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]] | None:
        """Makes the tensor that the layer sees, of the class, from what all ranks have sent.

        Args:
            all_gather_outputs: What came.
            metadata: What `fsdp_pre_all_gather` gave.
            param_dtype: The dtype that the layer wants; it was sent in that.
            out: What an earlier call gave, to be filled again.

        Returns:
            The whole tensor, and the inner tensors whose memory may be freed between calls; None where `out` is given.
        """
        return gather.after(all_gather_outputs, metadata, out)

    def __dlpack__(self, *args: object, **kwargs: object) -> Any:
        raise self._no_memory("__dlpack__()")  # torch reads at address zero

    def __dlpack_device__(self) -> Any:  # consumers ask this first
        raise self._no_memory("__dlpack_device__()")

    def _no_memory(self, call: str) -> BufferError:
        way = ".to_plain() makes a dense tensor" if hasattr(self, "to_plain") else "give its inner tensors"
        return BufferError(
            f"{call}: a {type(self).__name__} is made of several tensors and has no memory itself: {way}"
        )

    def share_memory_(self) -> Any:
        """Moves every inner tensor to shared memory; the wrapper itself has no storage to move."""
        for name in self.__tensor_flatten__()[0]:
            getattr(self, name).share_memory_()
        return self


_torch.collectives.ask_in_lists_of_lists(WrapperTensor)
kernels.register_base(WrapperTensor)


note_missing_of(WrapperTensor)
