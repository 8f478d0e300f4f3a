// What tensors have to do with memory and with autograd, of many in one call. The references are the lines that
// `guards/aliasing_guards.py` generates, and `counters` in `runtime/version_counters.py`.
#pragma once

#include "common.h"
#include "seen.h"

#include <torch/csrc/utils/python_numbers.h>

namespace subclass_aot {

// Numbers for so many objects. Nothing that asks for them runs Python meanwhile, so no two calls do at once.
inline Seen& numbers_for(Py_ssize_t count) {
  static std::unique_ptr<Seen> seen;
  static Py_ssize_t room = -1;
  if (room < count) {
    room = 2 * count;
    seen = std::make_unique<Seen>(static_cast<size_t>(room));
  }
  seen->begin();
  return *seen;
}

// Returns whether no two of the tensors given share memory, as Python has it: each has another address, zero counts too.
inline PyObject* are_apart(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  Seen& seen = numbers_for(count);
  for (Py_ssize_t i = 0; i < count; i++) {
    TORCH_CHECK_TYPE(THPVariable_Check(args[i]), "tensors are compared, not ", Py_TYPE(args[i])->tp_name);
    const void* address = tensor_of(args[i]).storage().mutable_data(); // as Python reads it
    if (seen.number_of(address) != static_cast<uint32_t>(i)) {
      Py_RETURN_FALSE;
    }
  }
  Py_RETURN_TRUE;
  END_HANDLE_TH_ERRORS
}

// Returns whether tensors are leaves of autograd's graph or not, as the tuple that comes first has it.
inline PyObject* are_leaves(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(
      count >= 1 && PyTuple_Check(args[0]) && PyTuple_GET_SIZE(args[0]) == count - 1,
      "are_leaves(leaves, *tensors) takes as many tensors as there are in the tuple");
  for (Py_ssize_t i = 1; i < count; i++) {
    TORCH_CHECK_TYPE(THPVariable_Check(args[i]), "tensors are compared, not ", Py_TYPE(args[i])->tp_name);
    if (tensor_of(args[i]).is_leaf() != (PyTuple_GET_ITEM(args[0], i - 1) == Py_True)) {
      Py_RETURN_FALSE;
    }
  }
  Py_RETURN_TRUE;
  END_HANDLE_TH_ERRORS
}

// The tensors, and the version of each: of the second ones, one more. None where some may share one, or have none.
inline PyObject* next_versions(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(
      count == 2 && PyList_CheckExact(args[0]) && PyList_CheckExact(args[1]),
      "next_versions(silent, counted) takes two lists");
  Py_ssize_t silent = PyList_GET_SIZE(args[0]), all = silent + PyList_GET_SIZE(args[1]);
  Ref tensors = checked(PyTuple_New(all)), versions = checked(PyTuple_New(all));
  Seen& seen = numbers_for(all);
  for (Py_ssize_t i = 0; i < all; i++) {
    PyObject* given = i < silent ? PyList_GET_ITEM(args[0], i) : PyList_GET_ITEM(args[1], i - silent);
    TORCH_CHECK_TYPE(THPVariable_Check(given), "tensors have versions, not ", Py_TYPE(given)->tp_name);
    const at::Tensor& tensor = tensor_of(given);
    bool is_first = seen.number_of(given) == static_cast<uint32_t>(i);
    if (!is_first || tensor.is_inference() || tensor.is_view()) {
      Py_RETURN_NONE;
    }
    PyTuple_SET_ITEM(tensors.get(), i, Py_NewRef(given));
    PyTuple_SET_ITEM(versions.get(), i, checked(PyLong_FromLongLong(tensor._version() + (i >= silent))).release());
  }
  return checked(PyTuple_Pack(2, tensors.get(), versions.get())).release();
  END_HANDLE_TH_ERRORS
}

// Sets the versions of tensors, two tuples of one length.
inline PyObject* set_versions(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(
      count == 2 && PyTuple_CheckExact(args[0]) && PyTuple_CheckExact(args[1]) && PyTuple_GET_SIZE(args[0]) == PyTuple_GET_SIZE(args[1]),
      "set_versions(tensors, versions) takes two tuples of one length");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[0]); i++) {
    PyObject* given = PyTuple_GET_ITEM(args[0], i);
    TORCH_CHECK_TYPE(THPVariable_Check(given), "tensors have versions, not ", Py_TYPE(given)->tp_name);
    int64_t version = THPUtils_unpackLong(PyTuple_GET_ITEM(args[1], i));
    TORCH_CHECK_VALUE(version >= 0, "a version is not negative");
    auto counter = torch::autograd::impl::version_counter(tensor_of(given)); // a handle: the tensor has the same counter
    counter.set_version(version);
  }
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

inline PyMethodDef MEMORY_FUNCTIONS[] = {
    {"are_apart", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(are_apart)), METH_FASTCALL, nullptr},
    {"are_leaves", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(are_leaves)), METH_FASTCALL, nullptr},
    {"next_versions", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(next_versions)), METH_FASTCALL, nullptr},
    {"set_versions", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(set_versions)), METH_FASTCALL, nullptr},
    {nullptr}};

} // namespace subclass_aot
