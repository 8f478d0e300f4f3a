"""The command line of profiles: models of libraries by name and configuration, and programs of one's own."""

from __future__ import annotations

import argparse
import ast
import difflib
import inspect
import pkgutil
import sys
from typing import Any

import torch

from subclass_aot.base.whole_files import write_whole
from subclass_aot.cost.profiling.picture import ready_to_draw
from subclass_aot.cost.profiling.report import Report
from subclass_aot.cost.profiling.run import Setting, profile
from subclass_aot.cost.profiling.words import amount
from subclass_aot.cost.without_data import meta
from subclass_aot.errors import ProfileError

_NO_PROGRAM = """{target} gives {found}, and a program with its arguments is wanted.
  Instead: return them from the function, as in `return step, model, optimizer, batch`."""

_NOT_MADE = """{target} cannot be made: {why}.
  Its arguments are given by -c, as in: -c {example}"""

_NO_SUCH = """--{option} {given}: there is no {given} in {where}{near}."""

_NO_DATA = """Nobody knows what data {target} takes: its configuration has no vocabulary, and no size of an image.
  Instead: write a function that returns a program and its arguments, and name it: MODULE:FUNCTION."""


def run_command(options: argparse.Namespace) -> int:
    """Profiles what the options name, and prints the report.

    Args:
        options: As the parser gives them.

    Returns:
        The exit status: 1 if it does not fit into the memory, else 0.
    """
    report = _report(options)
    print(report)
    if options.largest:
        print(f"\n{report.formula()}")
        if report.memory is not None:
            _say("looking for the largest batch")
            print(f"largest batch       {report.largest_batch()} in {amount(report.memory)}")
    if options.json is not None:
        write_whole(options.json, report.to_json() + "\n")
    if options.plot is not None:
        report.plot(options.plot, options.over)
    if options.memory_viz is not None:
        report.memory_viz(options.memory_viz)
    return 1 if report.fits is False else 0


def _say(what: str) -> None:
    """Tells on a terminal what takes long."""
    if sys.stderr.isatty():
        print(f"... {what}", file=sys.stderr)


def _report(options: argparse.Namespace) -> Report:
    setting = Setting(options.device, options.memory)
    if options.plot is not None:
        ready_to_draw(options.plot, options.over, setting.profile_of_device is not None)
    _say(f"importing {options.target}")
    try:
        target = pkgutil.resolve_name(options.target)
    except (ImportError, AttributeError, ValueError) as error:
        name = options.target.partition(":")[0].partition(".")[0]
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == name
        instead = f".\n  Instead: install it, as by `pip install {name}`, or go to its folder" if is_missing else ""
        raise ProfileError(f"There is no {options.target}: {error}{instead}") from error
    _say("making it without data")
    given = {"device": options.device, "memory": options.memory, "assume": options.assume}
    is_model = isinstance(target, type) and issubclass(target, torch.nn.Module)
    with meta(setting.device), torch.set_grad_enabled(not options.inference):
        if not is_model:
            program, args = _program_of(target, options.target)
            return _profiled(program, *args, **given)
        model, data = _model_of(target, options)
        optimizer = _named("optimizer", options.optimizer, torch.optim) if options.optimizer else None
        return _profiled(model, **data, **given, optimizer=optimizer)


def _profiled(program: Any, *args: Any, **kwargs: Any) -> Report:
    _say("running it without data")
    report: Report = profile(program, *args, **kwargs)
    return report


def _program_of(target: Any, name: str) -> tuple[Any, tuple[Any, ...]]:
    found = target() if callable(target) else target
    if not isinstance(found, tuple) or not found or not callable(found[0]):
        raise ProfileError(_NO_PROGRAM.format(target=name, found=f"a {type(found).__name__}"))
    return found[0], found[1:]


def _model_of(cls: Any, options: argparse.Namespace) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Returns a model, and data for it."""
    import subclass_aot  # the text may name classes of weights

    values = dict(_setting(each) for each in options.config)
    config = getattr(cls, "config_class", None)
    _require_arguments(cls if config is None else config, values, options.target)
    model = cls(**values) if config is None else cls(config(**values))
    model = model.to(_named("dtype", options.dtype, torch)).train(not options.inference)
    if options.checkpoint:
        if not hasattr(model, "gradient_checkpointing_enable"):
            raise ProfileError(
                f"{options.target} has no method that turns checkpoints on. Instead: leave --checkpoint out."
            )
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if options.weights:
        subclass_aot.quantize_(model, _named("weights", options.weights, subclass_aot.tensors))
    return model, _data_of(model, options)


def _require_arguments(made: Any, values: dict[str, Any], target: str) -> None:
    """Raises `ProfileError` if what a model is made by does not take the values that are given."""
    try:
        signature = inspect.signature(made)
    except (TypeError, ValueError):  # it is written in C
        return
    try:
        signature.bind(**values)
    except TypeError as error:
        owed = [
            p.name for p in signature.parameters.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        example = " ".join(f"{name}=..." for name in owed or list(signature.parameters)[:2])
        raise ProfileError(_NOT_MADE.format(target=target, why=error, example=example)) from None


def _named(option: str, given: str, where: Any) -> Any:
    """Returns what an option names in a module."""
    if not hasattr(where, given):
        near = difflib.get_close_matches(given, dir(where), n=1, cutoff=0.4)
        told = f"; the nearest is {near[0]}" if near else ""
        raise ProfileError(_NO_SUCH.format(option=option, given=given, where=where.__name__, near=told))
    return getattr(where, given)


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):  # it is a word
        return name, value


def _data_of(model: Any, options: argparse.Namespace) -> dict[str, torch.Tensor]:
    """Returns what a model of words, or of images, takes."""
    takes = inspect.signature(model.forward).parameters
    config, batch = getattr(model, "config", None), options.batch
    if "input_ids" in takes and hasattr(config, "vocab_size"):
        words = torch.zeros(batch, options.tokens, dtype=torch.long)
        data = {"input_ids": words}
        if "decoder_input_ids" in takes:
            data["decoder_input_ids"] = words.clone()
        if "labels" in takes and not options.inference:
            by_word = any(part in type(model).__name__ for part in ("LM", "Conditional", "TokenClass", "Causal"))
            data["labels"] = words.clone() if by_word else torch.zeros(batch, dtype=torch.long)
            data.pop("decoder_input_ids", None)
        return data
    size = getattr(config, "image_size", None)
    if "pixel_values" in takes and size is not None:
        height, width = size if isinstance(size, list | tuple) else (size, size)
        dtype = _named("dtype", options.dtype, torch)
        return {"pixel_values": torch.empty(batch, getattr(config, "num_channels", 3), height, width, dtype=dtype)}
    raise ProfileError(_NO_DATA.format(target=options.target))
