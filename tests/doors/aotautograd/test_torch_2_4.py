"""The conventions of torch 2.4: by what torch 2.4.1 answered for 500 random lists, and on lists that are drawn anew."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._functorch._aot_autograd import subclass_utils as torchs
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from subclass_aot.doors import aotautograd
from subclass_aot.errors import LeafCountError, PlanError
from tests.doors.aotautograd import torch_2_4
from tests.doors.aotautograd.cases import Case, answers, draw, is_nested, parts, tokens, values
from tests.doors.aotautograd.lists import two

RECORD = json.loads((Path(__file__).parent / "torch_2_4.json").read_text())
CASES = [(Case(*case), dict(zip(RECORD["answers"], found, strict=False))) for case, found in RECORD["cases"]]
DRAWN = st.randoms(use_true_random=False).map(draw)


class OfTorchsMetas:
    """The functions of this library, on metas of torch 2.4."""

    ONLY_FAKE = False
    create_subclass_meta = staticmethod(torch_2_4.create_subclass_meta)
    unwrap_tensor_subclasses = staticmethod(aotautograd.unwrap_tensor_subclasses)
    wrap_tensor_subclasses = staticmethod(aotautograd.wrap_tensor_subclasses)
    wrap_tensor_subclasses_maybe_joint = staticmethod(aotautograd.wrap_tensor_subclasses_maybe_joint)
    requires_subclass_dispatch = staticmethod(aotautograd.requires_subclass_dispatch)
    create_metadata_for_subclass = staticmethod(aotautograd.create_metadata_for_subclass)
    compute_inner_mutated_inp_indices_from_subclass_meta = staticmethod(
        aotautograd.compute_inner_mutated_inp_indices_from_subclass_meta
    )
    function_meta = staticmethod(torch_2_4.function_meta)
    input_info = staticmethod(torch_2_4.input_info)
    output_info = staticmethod(torch_2_4.output_info)


class OfOwnMetas(OfTorchsMetas):
    """The functions of this library, on its own metas, without sizes among the leaves, as torch 2.4 has none."""

    create_subclass_meta = staticmethod(functools.partial(aotautograd.create_subclass_meta, count_symints=False))

    @staticmethod
    def function_meta(**fields: Any) -> Any:
        own = {name: fields[name] for name in fields if name != "traced_tangents"}
        written = [i for i, x in enumerate(fields["input_info"]) if x.mutates_data and not x.keep_input_mutations]
        return aotautograd.FunctionMeta(**own, mutated_inp_runtime_indices=written)


def to_the_ground(case: Case, found: dict[str, str]) -> dict[str, str]:
    """Returns what is answered if wrappers inside wrappers are unwrapped, too.

    Each leaf of one level is unwrapped again. What wrapped values are made of does not change; where they start does.
    """

    def ground(name: str) -> list[str]:
        """Returns the leaves below one: `0a` may be `0aa 0ab`."""
        place = re.fullmatch(r"(t?)(\d+)(.*)", name)
        if place is None:
            return [name]
        token = tokens(case.tangents if place[1] else case.inputs)[int(place[2])]
        for step in place[3]:
            token = dict(parts(token))[step]
        return [name + rest for rest in _paths(token)]

    leaves = [ground(leaf) for leaf in found["leaves"].split()]
    starts = [sum(map(len, leaves[:i])) for i in range(len(leaves) + 1)]
    written = [str(flat) for i in map(int, found["written"].split()) for flat in range(starts[i], starts[i + 1])]
    infos = [info for info, own in zip(found["input_info"].split(), leaves, strict=True) for _ in own]
    joint = " | ".join(
        " ".join(leaf for name in part.split() for leaf in ground(name)) for part in found["joint leaves"].split("|")
    )
    changed = {
        "leaves": " ".join(sum(leaves, [])), "joint leaves": joint,
        "written": " ".join(written), "input_info": " ".join(infos),
    }  # fmt: skip
    return {**found, **changed}


def _paths(token: str) -> list[str]:
    return [name + rest for name, part in parts(token) for rest in _paths(part)] or [""]


def compare_own(case: Case, expected: dict[str, str]) -> None:
    """Compares what the library answers with its own metas, which are to the ground, with torch 2.4's answers."""
    found = answers(case, OfOwnMetas())
    of_metas = [name for name in ("inputs", "outputs", "tangents") if is_nested(getattr(case, name)) or case.symbolic]
    if any(map(is_nested, (case.inputs, case.outputs))):
        of_metas += ["output_info", "outputs"]  # compared on lists without wrappers in wrappers
    wanted = to_the_ground(case, expected)
    for name, answer in wanted.items():
        if name not in of_metas:  # metas of this library do not say what requires grad
            assert (name, found[name]) == (name, answer.replace("!", ""))


def test_fields_are_those_of_torch_2_4() -> None:
    for name, fields in RECORD["fields"].items():
        assert [field.name for field in dataclasses.fields(getattr(torch_2_4, name))] == fields
    assert len(CASES) == 500 and RECORD["torch"] == "2.4.1"


@pytest.mark.parametrize("first", range(0, 500, 25))
def test_answers_are_those_of_torch_2_4(first: int) -> None:
    for case, found in CASES[first : first + 25]:
        expected = {name: answer for name, answer in found.items() if answer is not None}
        assert answers(case, torch_2_4) == expected
        assert answers(case, OfTorchsMetas()) == expected
        compare_own(case, expected)


@given(DRAWN)
def test_drawn_lists_have_the_answers_of_torch_2_4(case: Case) -> None:
    expected = answers(case, torch_2_4)
    assert answers(case, OfTorchsMetas()) == expected
    compare_own(case, expected)


# ------------------------------------------------------------------------------------------------------ what is no case


def nested() -> Any:
    """A wrapper of one wrapper: it has one leaf, whether it is unwrapped by one level or to the ground."""
    (value,) = values("[[a]]")
    return value


def test_a_leaf_is_a_wrapper_where_one_was_unwrapped() -> None:
    value = nested()
    metas = torch_2_4.create_subclass_meta([value])
    (leaf,) = aotautograd.unwrap_tensor_subclasses([value], is_joint_structure=False, subclass_metas=metas)
    assert leaf is value.x
    ground = aotautograd.unwrap_tensor_subclasses([value], is_joint_structure=False)
    assert ground == [value.x.x]
    with pytest.raises(PlanError, match=r"args\[0\].x: planned as Pack, got Tensor"):
        aotautograd.wrap_tensor_subclasses(ground, subclass_metas=metas)
    (other,) = values("[a]")
    with pytest.raises(PlanError, match=r"args\[0\].x: planned as Pack, got Tensor"):
        aotautograd.unwrap_tensor_subclasses([other], append_symints=False, subclass_metas=metas)
    with pytest.raises(PlanError, match=r"args\[0\].x: planned as Tensor, got Pack"):
        metas = torch_2_4.create_subclass_meta([other])
        aotautograd.unwrap_tensor_subclasses([value], append_symints=False, subclass_metas=metas)
    for wrong, message in ((None, "planned as an inner tensor, got None"), (3, "got an object of type int")):
        with pytest.raises(PlanError, match=message):
            aotautograd.wrap_tensor_subclasses([wrong], subclass_metas=metas)
    metas = torch_2_4.create_subclass_meta([two()])
    with pytest.raises(LeafCountError, match="planned for 2 leaves, got 1"):
        aotautograd.wrap_tensor_subclasses([torch.ones(2)], subclass_metas=metas)


def test_a_meta_without_its_wrapper_has_no_class() -> None:
    metas = torch_2_4.create_subclass_meta([two()])
    metas[0].original_subclass = None
    for use in (
        lambda: aotautograd.wrap_tensor_subclasses([torch.ones(2)] * 2, subclass_metas=metas),
        lambda: aotautograd.unwrap_tensor_subclasses([two()], append_symints=False, subclass_metas=metas),
    ):
        with pytest.raises(PlanError, match=r"^args\[0\]: its meta does not say of which class it is"):
            use()


def test_symbolic_sizes_have_no_slots() -> None:
    """Whoever asks for them gets none, as `arg_count` has it."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    fakes = values("(aa)[b]", mode, symbolic=True)
    metas = torch_2_4.create_subclass_meta(fakes)
    leaves = aotautograd.runtime_unwrap_tensor_subclasses(fakes, append_symints=True, subclass_metas=metas)
    assert len(leaves) == 3
    again = aotautograd.wrap_tensor_subclasses(leaves, subclass_metas=metas)
    assert [x.shape for x in again] == [x.shape for x in fakes]


def test_tangents_of_one_level_are_as_their_metas_say() -> None:
    value = nested()
    metas = torch_2_4.create_subclass_meta([value])
    unwrap = functools.partial(aotautograd.unwrap_tensor_subclasses, ([value], [value]), is_joint_structure=True)
    assert unwrap(subclass_metas=(metas, metas)) == ([value.x], [value.x])
    assert unwrap(subclass_metas=metas) == ([value.x], [value.x.x])


def test_metadata_of_leaves_is_of_torch_2_4_and_can_be_made() -> None:
    made = values("a(bb)[[a]b]")
    metas = torch_2_4.create_subclass_meta(made)
    meta = torch_2_4.ViewAndMutationMeta(
        input_info=[torch_2_4.input_info("."), torch_2_4.input_info("o"), torch_2_4.input_info("i")],
        output_info=[torch_2_4.output_info()], num_intermediate_bases=1, keep_input_mutations=False,
        traced_tangents=made, subclass_inp_meta=metas, subclass_fw_graph_out_meta=metas, subclass_tangent_meta=metas,
    )  # fmt: skip
    dense = aotautograd.create_metadata_for_subclass(meta)
    assert type(dense) is torch_2_4.ViewAndMutationMeta
    assert dense.subclass_inp_meta == dense.subclass_fw_graph_out_meta == dense.subclass_tangent_meta == list(range(5))
    assert dense.mutated_inp_runtime_indices == [1, 2] and dense.num_intermediate_bases == 2
    inner = [made[0], made[1].a, made[1].b, made[2].x, made[2].y]
    assert all(a is b for a, b in zip(dense.traced_tangents, inner, strict=True))
    for change in ({"num_intermediate_bases": 0}, {"output_info": [1, 2]}):
        with pytest.raises(PlanError, match="^output_info: there are"):
            aotautograd.create_metadata_for_subclass(dataclasses.replace(meta, **change))


def test_plain_values_are_numbers_or_objects() -> None:
    """So both kinds of metas are told apart by what only wrappers have, and not by `isinstance(meta, int)`."""
    made = values("a(bb)")
    for metas in torch_2_4.create_subclass_meta(made), aotautograd.create_subclass_meta(made):
        assert [hasattr(meta, "flat_tensor_start_idx") for meta in metas] == [False, True]
    with pytest.raises(AssertionError, match="expected SubclassCreationMeta, got"):
        own: Any = aotautograd.create_subclass_meta(made)
        torchs.wrap_tensor_subclasses([torch.ones(1)] * 3, subclass_metas=own)


def test_what_torch_takes_for_a_tree_is_looked_into() -> None:
    assert torchs.requires_subclass_dispatch(([Tree(two())], {}), SimpleNamespace(subclass_fw_graph_out_meta=[]))  # type: ignore[arg-type]
    assert aotautograd.requires_subclass_dispatch([Tree(two())], aotautograd.FunctionMeta(()))
    assert not aotautograd.requires_subclass_dispatch([Tree(torch.ones(1))], aotautograd.FunctionMeta(()))


class Tree:
    """A tree of its own."""

    def __init__(self, leaf: object) -> None:
        self.leaf = leaf


pytree.register_pytree_node(Tree, lambda tree: ([tree.leaf], None), lambda leaves, _: Tree(*leaves))
