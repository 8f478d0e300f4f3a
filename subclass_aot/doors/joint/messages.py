"""Messages of errors about a joint graph."""

TRANSFORMED = """trace_joint is called inside torch.func.grad, vmap, jvp, ..., or forward-mode autograd.
  Its inputs belong to the transform there, and a trace has no rule for them.
  Instead: trace the transformed function, as in trace_joint(torch.func.grad(fn), x)."""

NO_SUCH_NAME = """the joint graph has no input of the name {name!r}.
  Near:   {near}
  Names are those of parameters and buffers, and the paths of arguments: see `joint.inputs`."""

GONE = """compile_joint: a pass has taken the input {name} out of the graph.
  What is called brings it all the same. A pass may leave an input unread, and has to keep its placeholder."""

ADDED = """compile_joint: the graph has an input that no call brings: {node}.
  Instead: make it an argument of the function that is traced, or a constant: a buffer of the graph module
  and a node `get_attr`."""

MOVED = """compile_joint: input {position} of the graph is {name} now, and was {before}.
  What is called hands its leaves over in the order in which they were traced.
  Instead: leave the placeholders in their order."""

INPUT_CHANGED = """compile_joint: {name} is {now} in the graph that passes left, and was traced as {before}.
  What a call brings is checked against what was traced.
  Instead: trace a call that brings such a tensor."""

COUNT = """compile_joint: the graph has {now} outputs now, and had {before}.
  Each output has a meaning of its own: {names}
  Instead: keep them all, in their order; what a pass wants beside these has to be a result of the function that is
  traced."""

OUTPUT_CHANGED = """compile_joint: {name} is {now} in the graph that passes left, and was {before}.
  What is made of it is {before}.
  Instead: convert it back in the graph, before the output."""

READS_BACKWARD = """compile_joint: {name} is a result of forward, and reads what backward computes, by way of {node}.
  Forward has to run without gradients. Perhaps a pass replaced all uses of a node by one that it made of a gradient.
  Instead: replace the uses in backward: those with `meta["partitioner_tag"] == "is_backward"`."""

UNDECOMPOSED = """compile_joint: {node} calls {operator}, which this compiler wants decomposed while tracing.
  Instead: name the compiler there, too, as in `trace_joint(fn, ..., decompositions="inductor")`."""

NOT_AN_OPERATOR = """compile_joint: {node} calls {target}, a submodule or a method, and this compiler takes
  operators alone.
  Instead: give it the graph before it is split; or compile each submodule by itself, and let "eager" call them."""

WRITES = """compile_joint: {node} calls {operator}, which writes into its arguments.
  The graph is functional, and partitioners and compilers move operators around in it.
  Instead: use the functional form, as `aten.add.Tensor` for `aten.add_.Tensor`."""

HIDDEN_VIEW = """compile_joint: {node} calls {operator}, which gives a view of its argument here.
  Its schema does not say so, and what is done with its memory would reach the argument.
  Instead: use the operator that is a view, as `aten.permute.default`, or put `aten.clone.default` behind it."""

NO_SHAPE = """compile_joint: the shape of what {node} gives, a call of {operator}, is not known.
  Reason:  {reason}
  Instead: register a rule with `subclass_aot.register_meta`, or set `meta["val"]` of the node to a fake tensor."""

OTHER_TANGENT = "compile_joint compiles the backward that stands in the joint graph, and no other"

DOES_NOT_FIT = """what is called is not what the joint graph was traced for:
{differences}
  A joint graph is compiled once, for one kind of call.
  Instead: trace a joint graph of such a call, too, or use `aot_compile`, which compiles for each kind."""

CHANGED_ITSELF = """
  The function itself changes {paths}.
  Where it does so in its first call only: call it once before `trace_joint`, or set it to what it becomes."""

UNLIKE_ITSELF = """what is called does not fit what was compiled for it: something is different each time.
  The check:  {line}"""

NUMBER_OF_VALUES = """the joint graph is called with {given} values, and takes {expected}: {names}
  To pass the arguments of the function alone, use `.bind(module)`."""

WITHIN = """a compiled joint graph is called inside a trace, or a transform such as torch.func.vmap.
  It is compiled for tensors with data, and has no rule for others.
  Instead: call it outside, or trace the function itself there."""

NOT_PICKLED = """what `compile_joint` gives holds compiled functions, which pickle cannot take along.
  Instead: pickle the joint graph, and compile what was loaded."""

OBJECTS = """this joint graph cannot be called with values alone: its function changes or gives out objects, {which}.
  Instead: use `.bind(fn_or_module)`, and call that as the function."""

VIEWS = """this joint graph cannot be called with values alone: {name} is a view of what the call does not bring.
  Instead: use `.bind(fn_or_module)`, and call that as the function."""

OTHER_FUNCTION = """.bind({given}): the joint graph was traced from {traced}.
  Instead: bind that, or a module of its class."""
