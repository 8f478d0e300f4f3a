"""Quantized weights in models of `transformers`: loaded, saved and loaded again by its own calls; and caches of them.

Importing this module registers the quantizer. `transformers` reads a checkpoint tensor by tensor, and each weight that
is chosen is rounded as it comes, so the whole model is never there in float. What is saved are safetensors files with
the dense tensors that the wrappers are made of; what these are stands in the header of each file, as `save_file` writes
it. Nothing in the files is ever run.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from subclass_aot import tensors
from subclass_aot.base import _torch
from subclass_aot.base.refused import Refused
from subclass_aot.errors import MissingPackageError, StateDictError
from subclass_aot.files.parts import Part
from subclass_aot.files.unwrap import KEY, unwrap_state_dict
from subclass_aot.files.wrap import wrap_state_dict
from subclass_aot.tensors import quantize_

try:
    import safetensors
    from transformers import PreTrainedModel
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import ConversionOps, WeightConverter
    from transformers.quantizers.auto import register_quantization_config, register_quantizer
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin

    from subclass_aot.files.caches import quantize_cache_ as quantize_cache_
except ImportError as error:
    raise MissingPackageError(
        "subclass_aot.files.transformers needs transformers 5 and safetensors:\n"
        "    pip install subclass-aot[transformers]"
    ) from error

METHOD = "subclass_aot"
"""The name by which a configuration names this quantizer."""

_APART = f"{KEY}.apart"
"""Under this key stand the parameters whose parts have names with an underscore."""

_OFFLOADED = """device_map puts parts of the model on {where}, and accelerate moves such parameters as plain tensors.
  Instead: name devices that hold the model, as device_map="cuda:0" or "cpu", or leave device_map out."""


@register_quantization_config(METHOD)
class QuantizationConfig(QuantizationConfigMixin):
    """Says what the weights of a model become.

    Args:
        weights: The name of a class of `subclass_aot.tensors`, as "Int8Weight", for all linear layers; or by patterns
            of names, of which the first that fits counts: `{"*.mlp.experts.*": "Int4Weight", "*": "Int8Weight"}`. What
            is of None stays dense. A pattern fits the name of a linear layer, or the full name of a parameter of three
            dims, as experts have. With arguments of its `from_float`: `{"class": "Int4Weight", "group": 32}`.
        modules_to_not_convert: Names of layers that stay dense. By default these are the head and what is tied to it.
        **kwargs: What `transformers` adds.

    >>> QuantizationConfig({"*.mlp.*": {"class": "NF4Weight", "block": 32}, "*": "Int8Weight"}).to_dict()["weights"]
    [['*.mlp.*', {'class': 'NF4Weight', 'block': 32}], ['*', {'class': 'Int8Weight'}]]
    """

    def __init__(
        self,
        weights: str | type | Mapping[str, Any] | list[Any] = "Int8Weight",
        modules_to_not_convert: list[str] | None = None,
        **kwargs: object,
    ) -> None:
        self.quant_method: Any = METHOD
        if not isinstance(weights, list):
            is_rule = not isinstance(weights, Mapping) or "class" in weights
            weights = [["*", weights]] if is_rule else list(weights.items())  # type: ignore[union-attr]
        # In pairs, since JSON is written with its names in another order, and the first that fits counts.
        self.weights: list[list[Any]] = [[pattern, _rule(rule)] for pattern, rule in weights]
        self.modules_to_not_convert = modules_to_not_convert

    def maker(self, name: str, layer: nn.Module, key: str) -> Any:
        """Returns what makes the weight of a parameter; None where it stays dense.

        Args:
            name: Its full name.
            layer: The module that has it.
            key: Its name there.
        """
        is_layer = isinstance(layer, nn.Linear) and key == "weight"
        parameter = getattr(layer, key)
        if not is_layer and not (parameter.dim() == 3 and key != "weight"):
            return None
        place = name.rpartition(".")[0] if is_layer else name
        # the pattern for all is one for layers, as in `quantize_`
        rules = [
            rule
            for pattern, rule in self.weights
            if fnmatch.fnmatchcase(place, pattern) and (is_layer or pattern != "*")
        ]
        return None if not rules or rules[0] is None else partial(_made, rules[0])


def _made(rule: dict[str, Any], weight: torch.Tensor) -> torch.Tensor:
    """Returns the replacement of a weight, as `quantize_` makes it."""
    cls = _class(rule["class"])
    options = {option: value for option, value in rule.items() if option != "class"}
    if options or weight.dim() != 2:
        return cls.from_float(weight, **options)  # type: ignore[no-any-return]
    layer = nn.Linear(1, 1, bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    made: Any = quantize_(layer, cls)
    return made.weight.detach()  # type: ignore[no-any-return]


def _rule(rule: object) -> dict[str, Any] | None:
    if rule is None:
        return None
    found = dict(rule) if isinstance(rule, Mapping) else {"class": rule}
    named = found.get("class")
    found["class"] = named.__name__ if isinstance(named, type) else named
    _class(found["class"])
    return found


def _class(name: object) -> Any:
    cls = getattr(tensors, name, None) if isinstance(name, str) else None
    if not hasattr(cls, "from_float"):
        names = [known for known in dir(tensors) if hasattr(getattr(tensors, known), "from_float")]
        raise ValueError(f"weights: {name!r} is no class that rounds weights; there are {', '.join(names)}")
    return cls


@register_quantizer(METHOD)
class Quantizer(HfQuantizer):
    """Rounds weights as `transformers` reads them, saves them, and reads them again."""

    requires_calibration = False
    is_trainable = True  # adapters beside frozen weights
    is_compileable = True

    def is_serializable(self) -> bool:
        """Returns that there are files."""
        return True

    def validate_environment(self, *args: object, device_map: object = None, **kwargs: object) -> None:
        """Refuses to offload."""
        places = set(map(str, device_map.values())) if isinstance(device_map, dict) else {str(device_map)}
        moved = places & {"disk"} or (places & {"cpu"} if len(places) > 1 else set())
        if moved:
            raise ValueError(_OFFLOADED.format(where=" and ".join(sorted(moved))))

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: list[str] | None = None, **kwargs: object
    ) -> None:
        config: Any = self.quantization_config
        kept = self.get_modules_to_not_convert(model, config.modules_to_not_convert, model._keep_in_fp32_modules)
        self._kept = kept
        self._said, self._apart = _said_in(checkpoint_files or []) if self.pre_quantized else ({}, frozenset())
        self.serialized_names = _serialized(self._said, self._apart)
        for name, parameter in () if self.pre_quantized else model.named_parameters():
            maker = self.maker(model, name)
            try:  # before gigabytes are read; the model has no data yet
                _ = None if maker is None else maker(parameter.detach().to("meta"))
            except ValueError as error:
                shown = f"{name} {tuple(parameter.shape)}"
                raise ValueError(f"quantization_config: {shown} cannot be replaced: {error}") from error

    def param_needs_quantization(self, model: nn.Module, param_name: str, **kwargs: object) -> bool:
        """Returns whether a parameter is one of those that are rounded."""
        return self.maker(model, param_name) is not None

    def maker(self, model: nn.Module, name: str) -> Any:
        """Returns what makes the weight of a parameter; None where it stays dense."""
        path, _, key = name.rpartition(".")
        if any(path == kept or f".{kept}." in f".{path}." for kept in self._kept):
            return None
        try:
            layer = model.get_submodule(path)
        except AttributeError:
            return None
        is_there = isinstance(getattr(layer, key, None), torch.Tensor)
        config: Any = self.quantization_config
        return config.maker(name, layer, key) if is_there else None

    def get_quantize_ops(self) -> Any:
        """Returns what rounds a weight that was read."""
        return _Round(self)

    def get_load_operations(self) -> dict[str, Any]:
        """Returns what makes wrappers of the tensors that were saved."""
        return {"deserialize": _Wrap}

    @property
    def apart(self) -> frozenset[str]:
        """The names of parameters whose parts are saved under names that begin with an underscore."""
        return self._apart

    def entry_of(self, name: str) -> tuple[str, Any]:
        """Returns what the header says of a parameter, with the name that it has there.

        Args:
            name: Its name in the model, which may lack the prefix of the model that was saved, or have one more.

        Raises:
            StateDictError: It says nothing.
        """
        ends = (saved for saved in self._said if saved.endswith(f".{name}") or name.endswith(f".{saved}"))
        found = [name] if name in self._said else list(ends)
        if len(found) == 1:
            return found[0], self._said[found[0]]
        raise StateDictError(f"{name}: the files have parts of it, and their headers do not say of what class it is")

    def get_state_dict_and_metadata(self, model: PreTrainedModel) -> tuple[dict[str, Any], dict[str, str]]:
        """Returns the dense tensors that are saved, and what the wrappers are.

        Files of `transformers` have the weights of experts one by one, and it cuts what is saved so. Parts of a wrapper
        have names that it does not take for such weights.
        """
        conversions = getattr(model, "_weight_conversions", None)
        if conversions is not None:  # what is saved is no wrapper any more
            kept: Any = [each for each in conversions if not _is_own(each)]
            model._weight_conversions = kept
        tensors, metadata = unwrap_state_dict(model.state_dict())
        if KEY not in metadata:
            return tensors, metadata
        apart = [name for name in json.loads(metadata[KEY])["wrappers"] if _is_converted(model, name)]
        for name in apart:
            above, _, key = name.rpartition(".")
            for place in [place for place in tensors if place.startswith(f"{name}.")]:
                tensors[f"{above}._{key}{place.removeprefix(name)}".removeprefix(".")] = tensors.pop(place)
        return tensors, {**metadata, _APART: json.dumps(apart)}

    def _process_model_after_weight_loading(self, model: nn.Module, **kwargs: object) -> Any:
        if not any(_torch.wrappers.is_traceable_wrapper_subclass(p) for p in model.parameters()):
            raise ValueError(
                f"quantization_config: no weight of this {type(model).__name__} was replaced. Linear layers are, and "
                "parameters of three dims by patterns of their names; modules_to_not_convert stay as they are."
            )
        return model

    def _dequantize(self, model: nn.Module, dtype: torch.dtype | None = None) -> Any:
        for module in model.modules():
            for key, parameter in list(module.named_parameters(recurse=False)):
                if hasattr(parameter, "to_plain"):
                    plain = parameter.to_plain().to(dtype or parameter.dtype)
                    setattr(module, key, nn.Parameter(plain, requires_grad=False))
        return model


class _Round(ConversionOps):
    """Rounds a weight."""

    def __init__(self, hf_quantizer: Quantizer) -> None:
        self.hf_quantizer = hf_quantizer

    def convert(
        self,
        input_dict: dict[str, Any],
        *args: object,
        model: Any = None,
        full_layer_name: str = "",
        **kwargs: object,
    ) -> dict[str, Any]:
        """Returns the parameter by its name."""
        (value,) = input_dict.values()
        weight = value[0] if isinstance(value, list) else value
        made = self.hf_quantizer.maker(model, full_layer_name)(weight.detach())
        return {full_layer_name: nn.Parameter(made, requires_grad=False)}


class _Wrap(ConversionOps):
    """Makes a wrapper of its inner tensors."""

    def __init__(self, hf_quantizer: Quantizer) -> None:
        self.hf_quantizer = hf_quantizer

    def convert(
        self,
        input_dict: dict[str, Any],
        *args: object,
        model: nn.Module | None = None,
        full_layer_name: str = "",
        **kwargs: object,
    ) -> dict[str, Any]:
        """Returns the parameter by its name."""
        saved, entry = self.hf_quantizer.entry_of(full_layer_name)
        above = saved.rpartition(".")[0]
        flat = {
            f"{above}.{name.removeprefix('_') if saved in self.hf_quantizer.apart else name}".removeprefix("."): (
                value[0] if isinstance(value, list) else value
            )
            for name, value in input_dict.items()
        }
        said = {"version": 1, "wrappers": {saved: entry}, "tied": {}}
        made = wrap_state_dict(flat, {KEY: json.dumps(said)})[saved]
        return {full_layer_name: nn.Parameter(made, requires_grad=False)}


def _is_converted(model: PreTrainedModel, name: str) -> bool:
    """Returns whether `transformers` makes a parameter of several weights of a file, and cuts it again."""
    conversions = getattr(model, "_weight_conversions", None)
    if conversions is None:  # what `transformers` takes of a model that it has not loaded
        conversions = get_model_conversion_mapping(model, add_legacy=False)
    converters = (each for each in conversions if isinstance(each, WeightConverter))
    patterns = (pattern for each in converters for pattern in each.target_patterns)
    return any(re.search(pattern.replace("*", ".*"), name) for pattern in patterns)


def _is_own(conversion: object) -> bool:
    return any(isinstance(operation, _Wrap) for operation in getattr(conversion, "operations", ()))


def _said_in(files: list[str]) -> tuple[dict[str, Any], frozenset[str]]:
    """Returns what the headers of files say of wrappers, by their names, and which names are apart."""
    found: dict[str, Any] = {}
    apart: set[str] = set()
    for path in files:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        if KEY in metadata:
            found |= json.loads(metadata[KEY])["wrappers"]
            apart |= set(json.loads(metadata.get(_APART, "[]")))
    return found, frozenset(apart)


def _serialized(said: Mapping[str, Any], apart: Collection[str]) -> dict[str, list[str]]:
    """Returns by the last name of a parameter those of the tensors that stand for it."""
    found: dict[str, dict[str, None]] = {}
    for name, entry in said.items():
        key = name.rpartition(".")[2]
        saved = f"_{key}" if name in apart else key
        found.setdefault(key, {}).update(dict.fromkeys(_leaves(saved, entry)))
    return {key: list(names) for key, names in found.items()}


def _leaves(name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    for inner, below in entry["inner"].items():
        if "class" in below:
            yield from _leaves(f"{name}.{inner}", below)
        else:
            yield f"{name}.{inner}"


def attach(model: Any) -> Any:
    """Has a model of `transformers` that `quantize_` has quantized saved by its own `save_pretrained`.

    Args:
        model: The model; it gets a quantizer and a configuration that says so.

    Returns:
        The model.
    """
    config = QuantizationConfig([])  # the files say what the weights are
    quantizer = Quantizer(config, pre_quantized=True)
    quantizer.preprocess_model(model, checkpoint_files=[])
    model.hf_quantizer = quantizer
    quantizer.postprocess_model(model)
    return model


def parts_of(model: Any) -> Callable[[str], Part]:
    """Returns what says where a tensor of a file goes in a model, by the conversions that `transformers` has for it.

    Args:
        model: The model.
    """
    conversions: list[Any] = list(get_model_conversion_mapping(model))
    converters = [each for each in conversions if isinstance(each, WeightConverter)]
    renamings = [each for each in conversions if not isinstance(each, WeightConverter)]
    places, prefix = set(model.state_dict()), model.base_model_prefix

    def of_model(name: str) -> str:
        inside, outside = name.removeprefix(f"{prefix}."), f"{prefix}.{name}"
        return next((each for each in (name, inside, outside) if each in places), name)

    def part_of(name: str) -> Part:
        for each in renamings:
            name, _ = each.rename_source_key(name)
        for each in converters:
            renamed, pattern = each.rename_source_key(name)
            if pattern is not None:
                return _part(each, of_model(renamed), name, pattern)
        return Part(of_model(name))

    return part_of


def _part(converter: WeightConverter, renamed: str, name: str, pattern: str) -> Part:
    """Returns the part of a weight of experts.

    Raises:
        Refused: It is another conversion.
    """
    done = [(type(each).__name__, getattr(each, "dim", None)) for each in converter.operations]
    number = re.search(pattern.replace(".*.", r".(\d+)."), name)
    if done not in ([("MergeModulelist", 0)], [("MergeModulelist", 0), ("Concatenate", 1)]) or number is None:
        how = ", ".join(kind for kind, _ in done)
        raise Refused(f"is a part of {renamed}, which transformers makes by {how}; codes are not converted so")
    sources = list(converter.source_patterns)
    return Part(renamed, sources.index(pattern), len(sources), int(number[1]))


def complete(model: Any) -> None:
    """Computes the buffers of a model that no file has, as `from_pretrained` does, and attaches a quantizer.

    Args:
        model: The model, with all that files have.
    """
    saved = set(model.state_dict())
    there = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in there.items():
        if tensor.is_meta and name not in saved:
            above, _, key = name.rpartition(".")
            setattr(model.get_submodule(above), key, torch.empty_like(tensor, device="cpu"))
        else:
            tensor._is_hf_initialized = True  # its functions that initialize leave such tensors alone
    if any(tensor.is_meta for tensor in there.values()):
        model.initialize_weights()
    for tensor in there.values():
        tensor.__dict__.pop("_is_hf_initialized", None)
    attach(model)
