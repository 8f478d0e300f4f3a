// The modes of torch, read once per call. The reference is `global_state` in `guards/modes.py`.
#pragma once

#include "common.h"

namespace subclass_aot {

// What mostly decides; anything rarer than this is left to the reference.
struct PlainModes {
  bool grad, inference, deterministic, warn_only, fills;
  caffe2::TypeMeta dtype;

  static PlainModes now() {
    auto& context = at::globalContext();
    return {
        c10::GradMode::is_enabled(),
        c10::InferenceMode::is_enabled(),
        context.deterministicAlgorithms(),
        context.deterministicAlgorithmsWarnOnly(),
        context.deterministicFillUninitializedMemory(),
        c10::get_default_dtype()};
  }

  bool operator==(const PlainModes& other) const {
    return grad == other.grad && inference == other.inference && deterministic == other.deterministic &&
        warn_only == other.warn_only && fills == other.fills && dtype == other.dtype;
  }

  // Whether nothing else is on: autocast, modes that see functions, transforms, forward-mode gradients.
  static bool are_all() {
    auto keys = c10::impl::tls_local_dispatch_key_set();
    return keys.excluded_.has_all(c10::autocast_dispatch_keyset) &&
        !keys.included_.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) &&
        at::impl::PythonTorchFunctionTLS::stack_len() == 0 &&
        torch::autograd::ForwardADLevel::try_get_by_idx(0) == nullptr;
  }
};

// Gives what the reference gave for the same modes before: the very tuple, so that comparing it is one look.
struct Modes {
  Ref otherwise;
  std::vector<std::pair<PlainModes, Ref>> known;

  Ref call(PyObject* const*, size_t) {
    if (!PlainModes::are_all()) {
      return checked(PyObject_CallNoArgs(otherwise.get()));
    }
    PlainModes now = PlainModes::now();
    for (auto& [state, tuple] : known) {
      if (state == now) {
        return Ref::of(tuple.get());
      }
    }
    Ref tuple = checked(PyObject_CallNoArgs(otherwise.get()));
    known.emplace_back(now, Ref::of(tuple.get()));
    return tuple;
  }

  int visit(visitproc visit, void* arg) const { // what is known are dtypes and numbers
    return otherwise.visit(visit, arg);
  }

  // Modes(otherwise): see `_accelerator.pyi`.
  static std::unique_ptr<Modes> make(PyObject* args) {
    PyObject* otherwise = nullptr;
    parsed(PyArg_ParseTuple(args, "O:Modes", &otherwise));
    auto modes = std::make_unique<Modes>();
    modes->otherwise = Ref::of(otherwise);
    return modes;
  }
};

} // namespace subclass_aot
