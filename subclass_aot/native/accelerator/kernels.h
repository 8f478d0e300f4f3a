// Kernels for the Python dispatch key: they run an operator on each inner tensor of a wrapper where Python has found that
// this is what serves it, and pass on to Python what is anything else.
#pragma once

#include "call.h"
#include "leaves.h"

#include <torch/library.h>

namespace subclass_aot {

inline std::atomic<bool> kernels_on{true};
inline thread_local int kernel_depth = 0;
constexpr int DEEPEST = 32; // wrappers in wrappers: below that Python counts, which refuses before the stack is full

// Whether somebody else wants to see operators, or they mean something else.
inline bool somebody_looks() {
  return c10::impl::TorchDispatchModeTLS::stack_len() > 0 || c10::InferenceMode::is_enabled() ||
      at::impl::PythonTorchFunctionTLS::stack_len() > 0 || c10::impl::PythonDispatcherTLS::get_state() != nullptr ||
      c10::impl::tls_local_dispatch_key_set().included_.has_any(MODES);
}

// What torch's own fallback for the Python key does.
inline void to_python(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard guard(ABOVE);
  (*c10::impl::getGlobalPyInterpreter())->dispatch(op, stack);
}

// The kernel of one operator.
class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(const Effects& effects, Served* served) : effects_(effects), served_(served) {}

  void operator()(const c10::OperatorHandle& op, DispatchKeySet, torch::jit::Stack* stack) {
    if (!serve_leaves(op, *stack) && !serve(op, *stack)) {
      to_python(op, stack);
    }
  }

 private:
  // Serves an operator on tensors without data, or has Python serve it and notes what that gave.
  bool serve_leaves(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    if (!LeafClasses::get().on.load(std::memory_order_relaxed) || c10::InferenceMode::is_enabled() ||
        c10::impl::TorchDispatchModeTLS::stack_len() > 2 || c10::impl::PythonDispatcherTLS::get_state() != nullptr ||
        c10::impl::tls_local_dispatch_key_set().included_.has_any(MODES - FAKE)) { // that mode is asked for its class
      return false;
    }
    Gil gil;
    LeafCall call(*leaves_, op, stack);
    if (!call.is_ours()) {
      return false;
    }
    if (!call.serve()) {
      call.hold();
      to_python(op, &stack);
      call.learn();
    }
    return true;
  }

  bool serve(const c10::OperatorHandle& op, torch::jit::Stack& stack) const {
    if (!kernels_on.load(std::memory_order_relaxed) || served_->empty() || kernel_depth >= DEEPEST ||
        somebody_looks()) {
      return false;
    }
    Call call(effects_, *served_, stack);
    if (!call.is_plain()) {
      return false;
    }
    {
      Gil gil;
      if (!call.take_apart()) {
        return false;
      }
      served_->hits++;
    }
    kernel_depth++;
    auto up = c10::make_scope_exit([] { kernel_depth--; });
    call.run(op);
    if (!effects_.written.empty()) {
      call.return_written();
      return true;
    }
    Gil gil;
    call.return_wrapped();
    return true;
  }

  const Effects effects_;
  Served* served_; // lives as long as the process
  Leaves* leaves_ = new Leaves(); // likewise: when the process ends, Python goes before the dispatcher
};

// Puts a kernel for one operator into the dispatcher; false where there is no such operator, or somebody else has one.
inline bool install_kernel(const std::string& name, bool serves_wrappers) {
  // Never destroyed: when the process ends, the dispatcher may go first.
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", DispatchKey::Python, __FILE__, __LINE__);
  auto known = Served::all().find(name);
  auto dot = name.find('.');
  auto op = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  if (!op.has_value() || (known == Served::all().end() && op->hasKernelForDispatchKey(DispatchKey::Python))) {
    return false;
  }
  bool is_composite = op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
  Effects effects;
  std::string why = is_composite ? "it is made of others, which arrive one by one" : effects.read(op->schema());
  TORCH_CHECK_VALUE(why.empty() || !serves_wrappers, "there can be no kernel for ", name, ": ", why);
  if (known != Served::all().end() || is_composite) {
    return !is_composite;
  }
  auto* served = new Served();
  served->takes_wrappers = why.empty();
  library->impl(
      name.substr(name.find("::") + 2).c_str(),
      torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(effects, served)));
  Served::all()[name] = served;
  return true;
}

inline PyObject* install_all(PyObject* names, bool serve_wrappers) {
  HANDLE_TH_ERRORS
  Ref sequence = checked(PySequence_Fast(names, "names of operators"));
  Ref installed = checked(PyList_New(0));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); i++) {
    PyObject* name = PySequence_Fast_GET_ITEM(sequence.get(), i);
    const char* text = PyUnicode_AsUTF8(name);
    if (text == nullptr || (install_kernel(text, serve_wrappers) && PyList_Append(installed.get(), name) < 0)) {
      return nullptr;
    }
  }
  return installed.release();
  END_HANDLE_TH_ERRORS
}

// install_kernels(names) -> those that have one now
inline PyObject* install_kernels(PyObject*, PyObject* names) {
  return install_all(names, true);
}

// install_leaf_kernels(names) -> those that have one now
inline PyObject* install_leaf_kernels(PyObject*, PyObject* names) {
  return install_all(names, false);
}

// switch_kernels(on) -> whether they were on
inline PyObject* switch_kernels(PyObject*, PyObject* on) {
  int wanted = PyObject_IsTrue(on);
  return wanted < 0 ? nullptr : PyBool_FromLong(kernels_on.exchange(wanted != 0));
}

// kernel_hits() -> by operator, how many calls its kernel has served
inline PyObject* kernel_hits(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  Ref table = checked(PyDict_New());
  for (auto& [name, served] : Served::all()) {
    Ref count = checked(PyLong_FromLongLong(served->hits));
    if (served->hits != 0 && PyDict_SetItemString(table.get(), name.c_str(), count.get()) < 0) {
      return nullptr;
    }
  }
  return table.release();
  END_HANDLE_TH_ERRORS
}

inline PyMethodDef KERNEL_FUNCTIONS[] = {
    {"install_kernels", install_kernels, METH_O, nullptr},
    {"install_leaf_kernels", install_leaf_kernels, METH_O, nullptr},
    {"serve", serve, METH_VARARGS, nullptr},
    {"forget", forget, METH_O, nullptr},
    {"switch_kernels", switch_kernels, METH_O, nullptr},
    {"kernel_hits", kernel_hits, METH_NOARGS, nullptr},
    {nullptr}};

} // namespace subclass_aot
