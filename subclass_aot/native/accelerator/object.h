// Python objects around values of C++, which are called without a tuple in between.
#pragma once

#include "common.h"

namespace subclass_aot {

// Value has `static std::unique_ptr<Value> make(PyObject* args)`, `Ref call(PyObject* const* args, size_t count)` and
// `int visit(visitproc, void*) const`; what they throw is raised.
template <typename Value>
struct Callable {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Value* value; // none, once the garbage collector has broken a cycle here

  static Callable* of(PyObject* self) {
    return reinterpret_cast<Callable*>(self);
  }

  static PyObject* call(PyObject* self, PyObject* const* args, size_t flags, PyObject* keywords) {
    HANDLE_TH_ERRORS
    Value* value = of(self)->value;
    TORCH_CHECK(value != nullptr, Py_TYPE(self)->tp_name, " was thrown away");
    TORCH_CHECK_TYPE(
        keywords == nullptr || PyTuple_GET_SIZE(keywords) == 0, Py_TYPE(self)->tp_name, " takes no keyword arguments");
    return value->call(args, static_cast<size_t>(PyVectorcall_NARGS(flags))).release();
    END_HANDLE_TH_ERRORS
  }

  static PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
    HANDLE_TH_ERRORS
    std::unique_ptr<Value> value = Value::make(args);
    PyObject* made = type->tp_alloc(type, 0);
    if (made != nullptr) {
      of(made)->vectorcall = call;
      of(made)->value = value.release();
    }
    return made;
    END_HANDLE_TH_ERRORS
  }

  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    return of(self)->value == nullptr ? 0 : of(self)->value->visit(visit, arg);
  }

  static int clear(PyObject* self) {
    delete std::exchange(of(self)->value, nullptr);
    return 0;
  }

  static void dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    clear(self);
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
  }

  // Makes the type and puts it into the module; false where Python raised.
  static bool add_to(PyObject* module, const char* name) {
    PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vectorcall), READONLY, nullptr}, {nullptr}};
    PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void*>(make)},
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
        {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
        {Py_tp_members, members},
        {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
        {Py_tp_clear, reinterpret_cast<void*>(clear)},
        {0, nullptr}};
    PyType_Spec spec = {
        name,
        sizeof(Callable),
        0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
        slots};
    Ref type(PyType_FromSpec(&spec));
    return type && PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(type.get())) == 0;
  }
};

} // namespace subclass_aot
