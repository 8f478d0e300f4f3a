// A recipe makes a wrapper of its inner tensors: an outer tensor without data, and attributes. The reference is the code
// that `flatten/emit.py` and `flatten/replay.py` generate.
#pragma once

#include "outer.h"

namespace subclass_aot {

struct Recipe {
  Ref cls;
  c10::SmallVector<int64_t, 5> size, stride;
  int64_t offset = 0;
  caffe2::TypeMeta dtype;
  c10::Device device{c10::kCPU};
  c10::DispatchKeySet keys;
  size_t nbytes = 0;
  std::vector<Ref> names; // of all attributes, in order
  std::vector<Ref> constants; // empty where an inner tensor stands
  size_t tensors = 0;
  Ref otherwise; // makes wrappers of inner tensors that do not begin at the front, or require grad

  Ref call(PyObject* const* inner, size_t count) const {
    TORCH_CHECK_TYPE(count == tensors, "a wrapper of ", tensors, " inner tensors was to be made of ", count);
    if (otherwise && !fits(inner)) {
      return checked(PyObject_Vectorcall(otherwise.get(), inner, count, nullptr));
    }
    at::Tensor outer = outer_tensor(outer_storage(nbytes, device), keys, dtype, size, stride, offset);
    Ref made = checked(THPVariable_Wrap(std::move(outer), reinterpret_cast<PyTypeObject*>(cls.get())));
    Ref table = checked(PyObject_GenericGetDict(made.get(), nullptr));
    for (size_t i = 0; i < names.size(); i++) {
      PyObject* value = constants[i] ? constants[i].get() : *inner++;
      if (PyDict_SetItem(table.get(), names[i].get(), value) < 0) {
        throw python_error();
      }
    }
    return made;
  }

  // Whether the wrapper that the class itself would make does not depend on more of the inner tensors.
  bool fits(PyObject* const* inner) const {
    for (size_t i = 0; i < tensors; i++) {
      if (!THPVariable_Check(inner[i])) {
        return false;
      }
      const at::Tensor& tensor = tensor_of(inner[i]);
      auto* impl = tensor.unsafeGetTensorImpl();
      if (impl->has_symbolic_sizes_strides() || impl->storage_offset() != 0 || tensor.requires_grad()) {
        return false;
      }
    }
    return true;
  }

  int visit(visitproc visit, void* arg) const {
    Py_VISIT(cls.get());
    Py_VISIT(otherwise.get());
    for (auto& constant : constants) {
      Py_VISIT(constant.get());
    }
    return 0;
  }

  // Recipe(cls, size, stride, offset, dtype, device, names, constants, otherwise): see `_accelerator.pyi`.
  static std::unique_ptr<Recipe> make(PyObject* args) {
    PyObject *cls, *size, *stride, *dtype, *device, *names, *constants, *otherwise;
    Py_ssize_t offset = 0;
    parsed(PyArg_ParseTuple(
        args, "O!OOnO!O!O!O!O:Recipe", &PyType_Type, &cls, &size, &stride, &offset, &THPDtypeType, &dtype,
        &THPDeviceType, &device, &PyTuple_Type, &names, &PyDict_Type, &constants, &otherwise));
    TORCH_CHECK_TYPE(
        PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), reinterpret_cast<PyTypeObject*>(THPVariableClass)),
        "a recipe makes tensors");
    auto recipe = std::make_unique<Recipe>();
    recipe->cls = Ref::of(cls);
    recipe->size = integers(size);
    recipe->stride = integers(stride);
    recipe->offset = offset;
    recipe->dtype = c10::scalarTypeToTypeMeta(reinterpret_cast<THPDtype*>(dtype)->scalar_type);
    recipe->device = reinterpret_cast<THPDevice*>(device)->device;
    recipe->keys = outer_keys(recipe->dtype, recipe->device);
    recipe->nbytes = at::detail::computeStorageNbytes(recipe->size, recipe->stride, recipe->dtype.itemsize(), offset);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
      PyObject* name = PyTuple_GET_ITEM(names, i);
      PyObject* constant = PyDict_GetItemWithError(constants, name);
      if (constant == nullptr && PyErr_Occurred()) {
        throw python_error();
      }
      recipe->names.push_back(interned(name));
      recipe->constants.push_back(Ref::of(constant));
      recipe->tensors += constant == nullptr;
    }
    if (otherwise != Py_None) {
      recipe->otherwise = Ref::of(otherwise);
    }
    return recipe;
  }
};

} // namespace subclass_aot
