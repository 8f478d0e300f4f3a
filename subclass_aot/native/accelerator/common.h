// What every part needs. These headers of torch are private: there is no stable interface to any of this, so the
// accelerator is built for exactly one version of torch, and only loaded by that (`build.py`).
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <vector>

namespace subclass_aot {

// An owned reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() {
    Py_XDECREF(object_);
  }
  static Ref of(PyObject* borrowed) {
    return Ref(Py_XNewRef(borrowed));
  }
  PyObject* get() const {
    return object_;
  }
  PyObject* release() {
    return std::exchange(object_, nullptr);
  }
  explicit operator bool() const {
    return object_ != nullptr;
  }
  int visit(visitproc visit, void* arg) const {
    Py_VISIT(object_);
    return 0;
  }

 private:
  PyObject* object_ = nullptr;
};

// A new reference, or what Python raised.
inline Ref checked(PyObject* owned) {
  if (owned == nullptr) {
    throw python_error();
  }
  return Ref(owned);
}

// The GIL, for threads of torch too, which Python may not know.
class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() {
    PyGILState_Release(state_);
  }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// What Python raised, as an exception that other layers of torch may carry past Python code.
[[noreturn]] inline void throw_raised() {
  python_error raised;
  raised.persist();
  throw raised;
}

// Forgets what code of the user's raised, but for what goes to the user from anywhere: see `pass_on_interruption`.
inline void forget_error() {
  if (PyErr_ExceptionMatches(PyExc_Exception)) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != nullptr) {
      PyException_SetTraceback(value, trace);
    }
    Ref of_type(type), error(value), of_trace(trace);
    static PyObject* pass_on = [] {
      Ref module(PyImport_ImportModule("subclass_aot.base._stack"));
      return module ? PyObject_GetAttrString(module.get(), "pass_on_interruption") : nullptr;
    }();
    if (pass_on != nullptr && Ref(PyObject_CallOneArg(pass_on, value))) {
      return;
    }
  }
  throw_raised();
}

inline Ref kept(PyObject* owned) {
  if (owned == nullptr) {
    throw_raised();
  }
  return Ref(owned);
}

// A new list or tuple, until it is full. What is missing in it is no object, so nobody must find it who walks the heap:
// a field that is a property may do that, and so may what a garbage collection calls.
class Filling {
 public:
  explicit Filling(Ref made) : object_(std::move(made)), tracked_(PyObject_GC_IsTracked(object_.get())) {
    if (tracked_) {
      PyObject_GC_UnTrack(object_.get());
    }
  }
  PyObject* get() const {
    return object_.get();
  }
  Ref full() {
    if (tracked_) {
      PyObject_GC_Track(object_.get());
    }
    return std::move(object_);
  }

 private:
  Ref object_;
  bool tracked_;
};

// Throws what Python raised, where arguments are not what they should be.
// Whether a cache is worth looking into. One that seldom has what is looked for is left alone for a while, and not for
// good: what came before says nothing of what comes later.
class Patience {
 public:
  bool lasts() {
    if (missed_ < ENOUGH + 4 * found_) {
      return true;
    }
    if (++left_alone_ < LATER) {
      return false;
    }
    missed_ = found_ = left_alone_ = 0;
    return true;
  }

  void note(bool found) {
    (found ? found_ : missed_)++;
  }

 private:
  static constexpr int64_t ENOUGH = 256, LATER = 4096;
  int64_t missed_ = 0, found_ = 0, left_alone_ = 0;
};

inline void parsed(int good) {
  if (!good) {
    throw python_error();
  }
}

inline const at::Tensor& tensor_of(PyObject* object) {
  return reinterpret_cast<THPVariable*>(object)->cdata;
}

// An attribute's name, of which there is one object.
inline Ref interned(PyObject* name) {
  TORCH_CHECK_TYPE(PyUnicode_CheckExact(name), "a name is a str, not ", Py_TYPE(name)->tp_name);
  Py_INCREF(name);
  PyUnicode_InternInPlace(&name);
  return Ref(name);
}

inline std::vector<Ref> interned_all(PyObject* names) {
  std::vector<Ref> result;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
    result.push_back(interned(PyTuple_GET_ITEM(names, i)));
  }
  return result;
}

inline c10::SmallVector<int64_t, 5> integers(PyObject* sequence) {
  Ref items = checked(PySequence_Fast(sequence, "sizes and strides are sequences"));
  c10::SmallVector<int64_t, 5> result;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); i++) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    int64_t number = item == Py_None ? -1 : PyLong_AsLongLong(item);
    if (number == -1 && PyErr_Occurred()) {
      throw python_error();
    }
    result.push_back(number);
  }
  return result;
}

} // namespace subclass_aot
