// The modes of torch, read once per call. The twin is `global_state` in `guards/modes.py`.
#pragma once

#include "common.h"

namespace subclass_aot {

// What mostly decides; anything rarer than this is left to the twin.
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

// Gives what the twin gave for the same modes before: the very tuple, so that comparing it is one look.
struct Modes {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* twin;
  std::vector<std::pair<PlainModes, Ref>>* known;
};

inline PyObject* read_modes(PyObject* self, PyObject* const*, size_t flags, PyObject*) {
  HANDLE_TH_ERRORS
  auto* modes = reinterpret_cast<Modes*>(self);
  if (!PlainModes::are_all()) {
    return PyObject_CallNoArgs(modes->twin);
  }
  PlainModes now = PlainModes::now();
  for (auto& [state, tuple] : *modes->known) {
    if (state == now) {
      return Py_NewRef(tuple.get());
    }
  }
  Ref tuple = checked(PyObject_CallNoArgs(modes->twin));
  modes->known->emplace_back(now, Ref::of(tuple.get()));
  return tuple.release();
  END_HANDLE_TH_ERRORS
}

inline PyObject* new_modes(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* twin = nullptr;
  if (!PyArg_ParseTuple(args, "O:Modes", &twin)) {
    return nullptr;
  }
  auto* modes = reinterpret_cast<Modes*>(type->tp_alloc(type, 0));
  if (modes != nullptr) {
    modes->vectorcall = read_modes;
    modes->twin = Py_NewRef(twin);
    modes->known = new std::vector<std::pair<PlainModes, Ref>>();
  }
  return reinterpret_cast<PyObject*>(modes);
}

inline int visit_modes(PyObject* self, visitproc visit, void* arg) {
  auto* modes = reinterpret_cast<Modes*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(modes->twin);
  return 0; // what is known are dtypes and numbers
}

inline int clear_modes(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Modes*>(self)->twin);
  return 0;
}

inline void delete_modes(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear_modes(self);
  delete reinterpret_cast<Modes*>(self)->known;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

} // namespace subclass_aot
