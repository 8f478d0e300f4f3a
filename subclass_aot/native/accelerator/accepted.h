// The check of what a rule returned, which says the same for all arguments and results of the same metadata. The
// reference is `wrapper/serve/expected_results.py`.
#pragma once

#include "effects.h"
#include "object.h"

#include <algorithm>
#include <cstring>

namespace subclass_aot {

// Calls `otherwise(out, args, kwargs)`, which gives "" or what is wrong, unless it has given "" for such before.
struct Accepted {
  using Key = c10::SmallVector<int64_t, 64>;
  static constexpr size_t MOST = 32;

  Ref otherwise;
  Ref cls; // a class of wrappers
  Ref is_plain; // (class) -> whether the metadata of its wrappers is what C++ sees
  bool plain = false; // what that said
  unsigned int version = 0; // of which version of the class
  Ref nothing;
  std::vector<Key> known;
  Patience patience;

  Ref call(PyObject* const* args, size_t count) {
    TORCH_CHECK_TYPE(count == 3 && PyTuple_Check(args[1]), "a check takes a result, a tuple and a dict");
    Key key;
    if (!patience.lasts() || !read(args[0], args[1], args[2], key)) {
      return checked(PyObject_Vectorcall(otherwise.get(), args, count, nullptr));
    }
    for (size_t i = 0; i < known.size(); i++) {
      if (known[i] == key) {
        patience.note(true);
        std::rotate(known.begin(), known.begin() + i, known.begin() + i + 1);
        return Ref::of(nothing.get());
      }
    }
    patience.note(false);
    Ref answer = checked(PyObject_Vectorcall(otherwise.get(), args, count, nullptr));
    if (PyUnicode_CheckExact(answer.get()) && PyUnicode_GET_LENGTH(answer.get()) == 0) {
      if (known.size() >= MOST) {
        known.pop_back();
      }
      known.insert(known.begin(), std::move(key));
    }
    return answer;
  }

  // The metadata of a call; false where numbers do not say it.
  bool read(PyObject* out, PyObject* args, PyObject* kwargs, Key& key) {
    if (!PyDict_Check(kwargs) || PyDict_GET_SIZE(kwargs) != 0 || !add_tensor(out, key)) {
      return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
      PyObject* value = PyTuple_GET_ITEM(args, i);
      if (value == out || !(THPVariable_Check(value) ? add_tensor(value, key) : add(value, key))) {
        return false;
      }
    }
    return true;
  }

  // Whether a class is the one whose wrappers may be read here: Python is asked again when it, or a base, has changed.
  bool may_read(PyTypeObject* type) {
    if (reinterpret_cast<PyObject*>(type) != cls.get()) {
      return false;
    }
    if (type->tp_version_tag == 0) {
      static PyObject* name = PyUnicode_InternFromString("shape");
      _PyType_Lookup(type, name); // which gives it a version
    }
    auto now = type->tp_version_tag;
    if (now != version && now != 0) {
      plain = kept(PyObject_CallOneArg(is_plain.get(), cls.get())).get() == Py_True;
      version = now;
    }
    return plain && now != 0;
  }

  bool add_tensor(PyObject* value, Key& key) {
    if (!THPVariable_CheckExact(value) && !may_read(Py_TYPE(value))) {
      return false;
    }
    auto* impl = tensor_of(value).unsafeGetTensorImpl();
    if (impl->key_set().has_any(STRANGE) || impl->has_symbolic_sizes_strides() || impl->is_nested() ||
        impl->layout() != c10::kStrided) {
      return false;
    }
    auto size = impl->sizes(), stride = impl->strides();
    key.push_back(TENSOR + static_cast<int64_t>(size.size()));
    key.append(size.begin(), size.end());
    key.append(stride.begin(), stride.end());
    key.push_back(static_cast<int64_t>(c10::typeMetaToScalarType(impl->dtype())));
    return true;
  }

  static bool add(PyObject* value, Key& key) {
    if (value == Py_None || PyBool_Check(value)) {
      key.push_back(value == Py_None ? NONE : value == Py_True ? TRUE : FALSE);
      return true;
    }
    if (PyLong_CheckExact(value)) {
      int overflow = 0;
      key.push_back(INT);
      key.push_back(PyLong_AsLongLongAndOverflow(value, &overflow));
      return overflow == 0;
    }
    if (PyFloat_CheckExact(value)) {
      key.push_back(FLOAT);
      double number = PyFloat_AS_DOUBLE(value);
      int64_t bits = 0;
      std::memcpy(&bits, &number, sizeof(bits));
      key.push_back(bits);
      return true;
    }
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
      Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
      key.push_back(LIST);
      key.push_back(count);
      for (Py_ssize_t i = 0; i < count; i++) {
        PyObject* item = PySequence_Fast_GET_ITEM(value, i);
        if (!PyLong_CheckExact(item) || !add(item, key)) {
          return false;
        }
      }
      return true;
    }
    return false;
  }

  int visit(visitproc visit, void* arg) const {
    Py_VISIT(cls.get());
    Py_VISIT(is_plain.get());
    return otherwise.visit(visit, arg);
  }

  // Accepted(otherwise, cls, is_plain): see `_accelerator.pyi`.
  static std::unique_ptr<Accepted> make(PyObject* args) {
    PyObject *otherwise, *cls, *is_plain;
    parsed(PyArg_ParseTuple(args, "OOO:Accepted", &otherwise, &cls, &is_plain));
    bool is_class = PyType_Check(cls) &&
        PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), reinterpret_cast<PyTypeObject*>(THPVariableClass));
    TORCH_CHECK_TYPE(cls == Py_None || is_class, "a class of wrappers is a class of tensors");
    auto accepted = std::make_unique<Accepted>();
    accepted->otherwise = Ref::of(otherwise);
    accepted->nothing = checked(PyUnicode_FromString(""));
    if (is_class) {
      accepted->cls = Ref::of(cls);
      accepted->is_plain = Ref::of(is_plain);
    }
    return accepted;
  }

 private:
  enum : int64_t { NONE = -1, TRUE = -2, FALSE = -3, INT = -4, FLOAT = -5, LIST = -6, TENSOR = 1 };
};

} // namespace subclass_aot
