// The module: see `_accelerator.pyi` for what it offers, and `../accelerated.py` for who finds it.
#include "accepted.h"
#include "kernels.h"
#include "memory.h"
#include "modes.h"
#include "node.h"
#include "object.h"
#include "products.h"
#include "recipe.h"
#include "run.h"
#include "table.h"

namespace {

using namespace subclass_aot;

PyMethodDef functions[] = {
    {nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_accelerator", "What runs on every call, in C++.", -1, functions};

} // namespace

PyMODINIT_FUNC PyInit__accelerator() {
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr || PyModule_AddFunctions(module, KERNEL_FUNCTIONS) < 0 ||
      PyModule_AddFunctions(module, LEAF_FUNCTIONS) < 0 || PyModule_AddFunctions(module, PRODUCT_FUNCTIONS) < 0 ||
      PyModule_AddFunctions(module, MEMORY_FUNCTIONS) < 0 ||
      !Callable<Accepted>::add_to(module, "subclass_aot.native.Accepted") || !Function::add_nodes() || !Callable<Function>::add_to(module, "subclass_aot.native.Function") ||
      !Callable<Modes>::add_to(module, "subclass_aot.native.Modes") ||
      !Callable<Recipe>::add_to(module, "subclass_aot.native.Recipe") ||
      !Callable<Run>::add_to(module, "subclass_aot.native.Run") || !Callable<Table>::add_to(module, "subclass_aot.native.Table")) {
    Py_XDECREF(module);
    return nullptr;
  }
  return module;
}
