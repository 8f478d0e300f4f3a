// The module: see `_accelerator.pyi` for what it offers, and `../accelerated.py` for who finds it.
#include "common.h"
#include "gradients.h"
#include "modes.h"
#include "recipe.h"
#include "table.h"

namespace {

using namespace subclass_aot;

// A type whose instances are called without a tuple in between.
template <typename Object>
PyTypeObject* add_type(
    PyObject* module,
    const char* name,
    newfunc make,
    destructor dealloc,
    traverseproc traverse,
    inquiry clear) {
  PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(Object, vectorcall), READONLY, nullptr}, {nullptr}};
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
      sizeof(Object),
      0,
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
      slots};
  auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (type == nullptr || PyModule_AddType(module, type) < 0) {
    return nullptr;
  }
  return type;
}

PyMethodDef functions[] = {
    {"set_gradients",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(set_gradients)),
     METH_FASTCALL,
     "Sets `.grad` of leaves where nobody would see the difference, and gives the other gradients."},
    {nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_accelerator", "What runs on every call, in C++.", -1, functions};

} // namespace

PyMODINIT_FUNC PyInit__accelerator() {
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr ||
      !add_type<Modes>(module, "subclass_aot._native.Modes", new_modes, delete_modes, visit_modes, clear_modes) ||
      !add_type<RecipeObject>(
          module, "subclass_aot._native.Recipe", new_recipe, delete_recipe, visit_recipe, clear_recipe) ||
      !add_type<TableObject>(module, "subclass_aot._native.Table", new_table, delete_table, visit_table, clear_table)) {
    Py_XDECREF(module);
    return nullptr;
  }
  return module;
}
