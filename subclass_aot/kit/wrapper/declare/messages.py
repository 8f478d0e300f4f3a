"""The long error texts of class statements: what is wrong, what to write instead, and why."""

NO_TENSOR_FIELD = """{cls} declares no tensor field, so there is nothing for it to wrap.

    class {cls}(WrapperTensor):            # wrong
        ...

    class {cls}(WrapperTensor):            # right
        codes: torch.Tensor

Fields are read from annotations; an attribute without annotation is not a field."""

NAME_TAKEN = """{cls}.{name}: this name belongs to torch.Tensor or to WrapperTensor.

    {name}: ...                            # wrong
    inner_{name}: ...                      # right

A field is stored as an attribute of the tensor; under this name it would hide what torch itself reads there. Some
names of torch.Tensor are given up for it, as `values`, `indices`, `mean` and `real`: torch.mean(t) goes on to work."""

TENSOR_DEFAULT = """{cls}.{name}: a tensor field cannot have a tensor (or any value but None) as its default.

    {name}: torch.Tensor = torch.zeros(3)        # wrong
    {name}: torch.Tensor | None = None           # right: absent unless given
    {name}: torch.Tensor                         # right: always given

A default is made once, when the class is defined: all instances would share its storage, unseen by a trace."""

STRUCTURE_OF_CONTEXT = """{cls}.{name} is context, and structure() is for tensor fields.

    {name}: int = structure()                    # wrong
    {name}: int                                  # right: context is kept by every operator
    {name}: torch.Tensor = structure()           # right

Structure is an inner tensor that operators leave as it is."""

TENSOR_IN_CONTEXT = """{cls}.{name}: a tensor inside the context ({annotation}).

    {name}: tuple[int, torch.Tensor]             # wrong
    {name}: torch.Tensor                         # right: one inner tensor
    {name}: torch.Tensor | None = None           # right: one that may be absent
    {name}: list[torch.Tensor]                   # right: several, in order (tuple[torch.Tensor, ...] too)
    {name}: dict[str, torch.Tensor]              # right: several, by name

Context is compared and hashed when a compiled program is looked up; a tensor there would be traced as a constant."""

MUTABLE_CONTEXT = """{cls}.{name}: a context value that can be changed in place ({value}).

    {name}: list[int] = [1, 2]                   # wrong
    {name}: tuple[int, ...] = (1, 2)             # right; frozenset for set, a frozen dataclass for dict

A compiled program is chosen by its context; if that changed in place, the one for the old value would be used."""

UNHASHABLE_CONTEXT = """{cls}.{name}: a context value that cannot be hashed ({value}).

    {name}: Config = Config(...)                 # wrong, if Config has __eq__ and no __hash__
    @dataclass(frozen=True)                      # right: a frozen dataclass has both
    class Config: ...

A compiled program is found by the hash of its context."""

DEFAULT_ORDER = """{cls}.{name} has no default but follows {before}, which has one.

    {before}: ... = ...                          # wrong
    {name}: ...

    {name}: ...                                  # right: fields without default first
    {before}: ... = ...

Fields are the constructor's parameters, in order (those of base classes first)."""

ELEMENT_NAME = """{cls}.{name}: this name may be that of an element of {cls}.{field}.

    {name}: ...                                  # wrong
    other_{name}: ...                            # right

The tensors of {field} are stored as attributes {field}_0, {field}_1, ... or {field}_<key>."""

UNREADABLE = """{cls}.{name}: the annotation {annotation!r} cannot be evaluated: {error}.

    if TYPE_CHECKING: import torch               # wrong, where a field is annotated with torch.Tensor
    import torch                                 # right

Whether a field is a tensor is read from its annotation when the class is defined."""

OUTER_NOT_CALLABLE = """{cls}.{name} must be a method, not {value!r}.

    outer_metadata = torch.float16                                 # wrong
    def outer_metadata(self):                                      # right
        return Outer.like(self.codes, dtype=torch.float16)

It is called for every instance before the tensor exists, with the fields as attributes."""

OUTER_OF_OLD_NAME = """{cls}.outer is called outer_metadata now: torch.Tensor.outer is the product of two vectors.

    def outer(self):                                               # wrong
    def outer_metadata(self):                                      # right

The next release reads `outer_metadata` only. A class with both names works with this version and the last one."""

OUTER_RESULT = """{cls}.outer_metadata returned {value!r}, not an Outer.

    def outer_metadata(self):                                      # wrong
        return self.codes.shape
    def outer_metadata(self):                                      # right
        return Outer.like(self.codes, size=..., dtype=...)

Size, stride, dtype, device, layout and offset are all needed to make the tensor."""

UNKNOWN_FALLBACK = """{cls}: unknown fallback={value!r}.

    fallback="each"     # every operator runs on every inner tensor
    fallback="plain"    # an operator without rule runs on to_plain() (the default where that is defined)
    fallback="error"    # an operator without rule is an error (the default elsewhere)"""

UNKNOWN_VIEWS = """{cls}: unknown views={value!r}.

    views="broadcast"           # every field is viewed with the outer tensor; dims of size 1 stay
    views="blocks"              # an element of a field stands for a block of the tensor, as packed codes do
    views={{"table": "keep", "codes": "blocks"}}     # by field: "keep" is the same for every view; else "broadcast"

The keys are names of tensor fields."""

WRONG_RENAMED = """{cls}: renamed={value!r} does not say which fields had another name.

    renamed={{"scales": "scale"}}     # what files call `scales` is the field `scale` now

The keys are names that fields had once and no field has now, the values are fields."""

PLAIN_WITHOUT_METHOD = """{cls}: fallback="plain" needs a method to_plain.

    def to_plain(self):                              # right
        return self.codes.to(self.scale.dtype) * self.scale

It says which dense tensor this one stands for."""

NOT_AN_OPERATOR = """{cls}.implements: {value!r} is not an operator.

    @{cls}.implements(torch.add)                     # wrong
    @{cls}.implements(torch.ops.aten.add.Tensor)     # right: one overload
    @{cls}.implements(torch.ops.aten.add)            # right: every overload
    @{cls}.implements(sa.ops.pointwise)    # right: every operator of a set

Rules are for operators of the dispatcher, below autograd."""

COMPOSITE_RULE = """{cls}.implements: {op} is composite; a rule for it would not be reached.

    @{cls}.implements(torch.ops.aten.linear.default)                            # wrong
    @{cls}.implements(torch.ops.aten.mm.default, torch.ops.aten.addmm.default)  # right: what it is made of

Autograd runs the operators it is made of, and those arrive one by one."""

SETS_OVERLAP = """{cls}.implements: two sets hold the same operators, and neither is a part of the other.

    {first}
    {second}

Which rule serves those that both hold? Write one set without them:

    @{cls}.implements(sa.ops.pointwise - {{torch.ops.aten.where.self}})    # leaves operators out

A rule for one operator goes before that of a set, and the rule of a part before that of the whole."""

RULE_ARGUMENTS = """{cls}.implements: the rule for {op} cannot be called with what its schema asks for: {why}.

    def {rule}{signature}    # wrong
    def {rule}{right}    # right

A rule gets the operator's own arguments. Before them comes the operator where a set (sa.ops.pointwise) is among what
the rule is for, and only there: for operators by name alone, however many, it does not come."""
