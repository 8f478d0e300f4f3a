// A recipe makes a wrapper of its inner tensors: an outer tensor without data, and attributes. The twin is the code that
// `flatten/emit.py` and `flatten/replay.py` generate.
#pragma once

#include "outer.h"

namespace subclass_aot {

struct Recipe {
  PyTypeObject* cls = nullptr;
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

  at::Tensor outer() const {
    return outer_tensor(outer_storage(nbytes, device), keys, dtype, size, stride, offset);
  }

  Ref make(PyObject* const* inner) const {
    Ref made = checked(THPVariable_Wrap(outer(), cls));
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
};

struct RecipeObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Recipe* recipe;
};

inline PyObject* make_by_recipe(PyObject* self, PyObject* const* args, size_t flags, PyObject* keywords) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(reinterpret_cast<RecipeObject*>(self)->recipe != nullptr, "the recipe was thrown away");
  const Recipe& recipe = *reinterpret_cast<RecipeObject*>(self)->recipe;
  auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  TORCH_CHECK_TYPE(
      count == recipe.tensors && (keywords == nullptr || PyTuple_GET_SIZE(keywords) == 0),
      "a wrapper of ", recipe.tensors, " inner tensors was to be made of ", count);
  if (recipe.otherwise && !recipe.fits(args)) {
    return PyObject_Vectorcall(recipe.otherwise.get(), args, count, nullptr);
  }
  return recipe.make(args).release();
  END_HANDLE_TH_ERRORS
}

// Recipe(cls, size, stride, offset, dtype, device, names, constants, otherwise): see `_accelerator.pyi`.
inline PyObject* new_recipe(PyTypeObject* type, PyObject* args, PyObject*) {
  HANDLE_TH_ERRORS
  PyObject *cls, *size, *stride, *dtype, *device, *names, *constants, *otherwise;
  Py_ssize_t offset = 0;
  if (!PyArg_ParseTuple(
          args, "O!OOnO!O!O!O!O:Recipe", &PyType_Type, &cls, &size, &stride, &offset, &THPDtypeType, &dtype,
          &THPDeviceType, &device, &PyTuple_Type, &names, &PyDict_Type, &constants, &otherwise)) {
    return nullptr;
  }
  auto recipe = std::make_unique<Recipe>();
  TORCH_CHECK_TYPE(
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), reinterpret_cast<PyTypeObject*>(THPVariableClass)),
      "a recipe makes tensors");
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
      return nullptr;
    }
    recipe->names.push_back(interned(name));
    recipe->constants.push_back(Ref::of(constant));
    recipe->tensors += constant == nullptr;
  }
  if (otherwise != Py_None) {
    recipe->otherwise = Ref::of(otherwise);
  }
  auto* made = reinterpret_cast<RecipeObject*>(type->tp_alloc(type, 0));
  if (made != nullptr) {
    recipe->cls = reinterpret_cast<PyTypeObject*>(Py_NewRef(cls));
    made->vectorcall = make_by_recipe;
    made->recipe = recipe.release();
  }
  return reinterpret_cast<PyObject*>(made);
  END_HANDLE_TH_ERRORS
}

inline int visit_recipe(PyObject* self, visitproc visit, void* arg) {
  auto* recipe = reinterpret_cast<RecipeObject*>(self)->recipe;
  Py_VISIT(Py_TYPE(self));
  if (recipe != nullptr) {
    Py_VISIT(recipe->cls);
    for (auto& constant : recipe->constants) {
      Py_VISIT(constant.get());
    }
    Py_VISIT(recipe->otherwise.get());
  }
  return 0;
}

inline int clear_recipe(PyObject* self) {
  auto* recipe = std::exchange(reinterpret_cast<RecipeObject*>(self)->recipe, nullptr);
  if (recipe != nullptr) {
    Py_CLEAR(recipe->cls);
    delete recipe;
  }
  return 0;
}

inline void delete_recipe(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear_recipe(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

} // namespace subclass_aot
