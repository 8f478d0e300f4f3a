"""Random lists of values in a few letters, and what functions under AOTAutograd's names answer for them, as text.

It runs with torch 2.4, too, for `record_torch_2_4.py`; so nothing of this library is imported here.

A value is a letter for a dense tensor (one of `SHAPES`), `#` for a number, `-` for None, `(aa)` for a `TwoTensor` of
two tensors, `[ab]` for a `Pack` of one to three, and `!` before what requires grad: `"a#!(aa)[(bb)c]"`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

SHAPES = {"a": ((2, 3), False), "b": ((3, 4), True), "c": ((5,), False), "d": ((), False)}


class Pack(torch.Tensor):
    """One to three tensors and a tag; as large as the first."""

    names = ("x", "y", "z")

    @staticmethod
    def __new__(cls, inner: dict[str, Any], tag: object, size: Any, stride: Any) -> Pack:
        pack: Pack = torch.Tensor._make_wrapper_subclass(cls, size, strides=stride)  # type: ignore[attr-defined]
        vars(pack).update(inner, tag=tag)
        return pack

    def __tensor_flatten__(self) -> tuple[list[str], object]:
        return [name for name in self.names if name in vars(self)], vars(self)["tag"]

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], tag: object, size: Any, stride: Any) -> Pack:
        return Pack(inner, tag, size, stride)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"no program runs here: {func}")


@dataclass(frozen=True)
class Case:
    """One list of inputs, and what a compiler has found out about a function of them.

    Args:
        inputs: The inputs.
        written: For each input `o` if it is written and returned, `i` if it is written in the graph, else `.`.
        outputs: What the forward graph returns after inputs that were written: results, and then bases.
        bases: How many of them are bases.
        tangents: The tangents.
        saved: How many activations follow when outputs are wrapped; None if nothing is said of them.
        symbolic: Whether sizes are symbolic.
    """

    inputs: str
    written: str
    outputs: str
    bases: int
    tangents: str
    saved: int | None
    symbolic: bool


def tokens(text: str) -> list[str]:
    """Returns the text of each value."""
    found, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if not depth and letter != "!":
            found.append(text[start : i + 1])
            start = i + 1
    return found


def parts(token: str) -> list[tuple[str, str]]:
    """Returns names and texts of the inner tensors of a wrapper; of other values none."""
    token = token.lstrip("!")
    names = "ab" if token[0] == "(" else "xyz"
    return list(zip(names, tokens(token[1:-1]), strict=False)) if token[0] in "([" else []


def is_nested(text: str) -> bool:
    """Returns whether a wrapper is inside another."""
    return any(parts(part) for token in tokens(text) for _, part in parts(token))


def values(text: str, mode: FakeTensorMode | None = None, symbolic: bool = False) -> list[Any]:
    """Makes the values of a text, real ones, or fake ones of a mode."""
    return [_value(token, mode, symbolic) for token in tokens(text)]


def _value(token: str, mode: FakeTensorMode | None, symbolic: bool) -> Any:
    kind = token.lstrip("!")
    if kind in ("#", "-"):
        return 7 if kind == "#" else None
    inner = {name: _value(part, mode, symbolic) for name, part in parts(token)}
    if not inner:
        size, turned = SHAPES[kind]
        value = torch.zeros(size).t() if turned else torch.zeros(size)
        if mode is not None:
            context = StatelessSymbolicContext([DimDynamic.DYNAMIC] * len(size)) if symbolic else None
            value = mode.from_tensor(value, symbolic_context=context, static_shapes=not symbolic)
    elif kind[0] == "(":
        value = TwoTensor(inner["a"], inner["b"])
    else:
        value = Pack(inner, "tag", inner["x"].size(), inner["x"].stride())
    return value.requires_grad_() if token[0] == "!" else value


class Shown:
    """Values as text: tensors that are known by where they came from, others by what they are made of."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.symbols: dict[str, str] = {}
        self.kept: list[Any] = []

    def know(self, values: Sequence[Any], where: str) -> None:
        """Names the tensors of a list by position, and inner ones by the way to them: `1`, `1a`, `1ab`."""
        for i, value in enumerate(values):
            self._know(value, f"{where}{i}")

    def _know(self, value: Any, name: str) -> None:
        if isinstance(value, torch.Tensor):
            self.names[id(value)] = name
            self.kept.append(value)
            self.numbers([*value.size(), *value.stride()])
            for part in names_of(value):
                self._know(getattr(value, part), name + part)

    def numbers(self, numbers: Any) -> str:
        """Returns sizes or strides; symbols are `A`, `B`, in the order in which they are met."""
        letters = (
            None if type(n) is int else self.symbols.setdefault(str(n), chr(65 + len(self.symbols))) for n in numbers
        )
        return ",".join(letter or str(n) for letter, n in zip(letters, numbers, strict=True))

    def leaf(self, leaf: Any) -> str:
        """Returns the name of a slot."""
        return self.names.get(id(leaf), "?") if isinstance(leaf, torch.Tensor) else f"={leaf}"

    def value(self, value: Any) -> str:
        """Returns what a value is made of, down to the ground."""
        if not is_traceable_wrapper_subclass(value):
            return self.leaf(value)
        inner = " ".join(f"{name}={self.value(getattr(value, name))}" for name in names_of(value))
        grad = "!" if value.requires_grad else ""
        size, stride = self.numbers(value.size()), self.numbers(value.stride())
        return f"{grad}{type(value).__name__[0]}<{size}/{stride}>{vars(value).get('tag', '')}({inner})"

    def meta(self, meta: Any) -> str:
        """Returns what a meta says: a position, or how to rebuild a wrapper."""
        if not hasattr(meta, "flat_tensor_start_idx"):
            return str(getattr(meta, "unwrapped_idx", meta))
        size, stride = self.numbers(meta.outer_size), self.numbers(meta.outer_stride)
        inner = "".join(meta.inner_keys)
        return f"{meta.flat_tensor_start_idx}+{meta.arg_count} {inner} {meta.meta} {size}/{stride}"


def names_of(value: Any) -> list[str]:
    """Returns the names of the inner tensors of a wrapper; of other values none."""
    return list(value.__tensor_flatten__()[0]) if is_traceable_wrapper_subclass(value) else []


def answers(case: Case, functions: Any) -> dict[str, str]:
    """Returns what the seven functions answer, under torch 2.4's names and conventions.

    Args:
        case: What they are asked about.
        functions: A module or another object that has them, and `function_meta(inputs=, ...)`, `input_info(letter)`
            and `output_info()`. `unwrap_tensor_subclasses` is given `subclass_metas`, too. `ONLY_FAKE`: whether metas
            are made of fake tensors only, as torch itself demands.
    """
    shown, mode = Shown(), None
    if case.symbolic or functions.ONLY_FAKE:
        mode = FakeTensorMode(shape_env=ShapeEnv())
    fakes = values(case.inputs, mode, case.symbolic)
    returned = "".join(token for token, how in zip(tokens(case.inputs), case.written, strict=True) if how == "o")
    outputs = values(returned + case.outputs, mode, case.symbolic)
    tangents = values(case.tangents, mode, False)
    shown.know(fakes, "")
    shown.know(tangents, "t")
    shown.know(outputs, "o")
    create, wrap = functions.create_subclass_meta, functions.wrap_tensor_subclasses
    inputs_meta, outputs_meta, tangents_meta = create(fakes), create(outputs), create(tangents)
    infos = [functions.input_info(how) for how in case.written]
    output_infos = [functions.output_info() for _ in tokens(case.outputs)[: len(tokens(case.outputs)) - case.bases]]
    meta = functions.function_meta(
        input_info=infos, output_info=output_infos, num_intermediate_bases=case.bases, traced_tangents=tangents,
        subclass_inp_meta=inputs_meta, subclass_fw_graph_out_meta=outputs_meta, subclass_tangent_meta=tangents_meta,
    )  # fmt: skip
    found: dict[str, Any] = {}
    found["requires"] = functions.requires_subclass_dispatch((fakes, {"k": tangents}), meta)
    found["requires by outputs"] = functions.requires_subclass_dispatch((), meta)
    for name, metas in ("inputs", inputs_meta), ("outputs", outputs_meta), ("tangents", tangents_meta):
        found[name] = "; ".join(map(shown.meta, metas))
    unwrap = functions.unwrap_tensor_subclasses
    flat = unwrap(fakes, is_joint_structure=False, subclass_metas=inputs_meta)
    joint = unwrap((fakes, tangents), is_joint_structure=True, subclass_metas=(inputs_meta, tangents_meta))
    found["leaves"] = " ".join(map(shown.leaf, flat))
    found["joint leaves"] = " | ".join(" ".join(map(shown.leaf, leaves)) for leaves in joint)

    real = values(returned + case.outputs)
    activations = [torch.zeros(i + 1) for i in range(case.saved or 0)]
    shown.know(real, "r")
    shown.know(activations, "s")
    for is_runtime, results in ((False, outputs), (True, real)):
        if is_runtime and case.symbolic:
            continue  # a call has numbers, and metas of torch 2.4 symbols
        leaves = [*unwrap(results, is_joint_structure=False, subclass_metas=outputs_meta), *activations]
        for sequence in (list, tuple):
            given: Any = sequence(leaves)
            made = wrap(given, subclass_metas=outputs_meta, num_fw_outs_saved_for_bw=case.saved, is_runtime=is_runtime)
            assert type(made) is tuple
            found[f"wrapped {is_runtime}"] = " ".join(map(shown.value, made))
    maybe_joint = functions.wrap_tensor_subclasses_maybe_joint
    made = maybe_joint(flat, is_joint_structure=False, meta=meta)
    found["wrapped inference"] = " ".join(map(shown.value, made))
    both = maybe_joint(joint, is_joint_structure=True, meta=meta)
    found["wrapped joint"] = " | ".join(" ".join(map(shown.value, made)) for made in both)

    dense = functions.create_metadata_for_subclass(meta)
    for name, given in ("input_info", infos), ("output_info", output_infos):
        found[name] = " ".join(str(next(i for i, x in enumerate(given) if x is y)) for y in getattr(dense, name))
    inner = functions.function_meta(
        input_info=dense.input_info, output_info=[], num_intermediate_bases=0, traced_tangents=[],
        subclass_inp_meta=[], subclass_fw_graph_out_meta=[], subclass_tangent_meta=[],
    )  # fmt: skip
    compute = functions.compute_inner_mutated_inp_indices_from_subclass_meta
    found["written"] = " ".join(map(str, compute(meta, inner)))
    if fakes:
        assert compute(meta, None) == compute(meta, inner)
    return {name: str(answer) for name, answer in found.items()}


def draw(random: random.Random) -> Case:
    """Draws a case; every second one has wrappers inside wrappers."""
    nested = random.random() < 0.5
    inputs, outputs, tangents = (_drawn_list(random, nested) for _ in range(3))
    count = len(tokens(outputs))
    written = "".join(random.choice("..oi") if token[0] not in "#-" else "." for token in tokens(inputs))
    saved = random.choice([None, 0, 1, 2])
    return Case(inputs, written, outputs, random.randint(0, min(2, count)), tangents, saved, random.random() < 0.2)


def _drawn_list(random: random.Random, nested: bool) -> str:
    kinds = [_drawn(random, random.choice((0, 1, 1, 2) if nested else (0, 1))) for _ in range(random.randint(0, 4))]
    return "".join(random.choice("#-") if random.random() < 0.1 else kind for kind in kinds)


def _drawn(random: random.Random, depth: int, grad: bool = True) -> str:
    if not depth:
        kind = random.choice("abcd")
    elif random.random() < 0.5:
        kind = f"({_drawn(random, depth - 1, False) * 2})"
    else:
        rest = [_drawn(random, random.randint(0, depth - 1), False) for _ in range(random.randint(0, 2))]
        kind = f"[{_drawn(random, depth - 1, False)}{''.join(rest)}]"
    return "!" + kind if grad and random.random() < 0.3 else kind


def cases(seed: int, count: int) -> Iterator[Case]:
    """Draws cases."""
    source = random.Random(seed)
    for _ in range(count):
        yield draw(source)
