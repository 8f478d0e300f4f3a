// The node of autograd's graph for a training call. The reference is `torch.autograd.Function`, of which it takes forward
// and backward as they are, and gives them a `ctx` that offers what these use.
#pragma once

#include "object.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace subclass_aot {

class CompiledNode;

// What forward and backward are given first. Attributes that they set are kept.
struct Context {
  PyObject_HEAD
  PyObject* attributes;
  PyObject* to_save; // a tuple, from forward until the node is made
  CompiledNode* node; // whose backward runs with this, as long as it is there

  static PyTypeObject* type; // for as long as the process lives

  static Context* of(PyObject* self) {
    return reinterpret_cast<Context*>(self);
  }

  static PyObject* save_for_backward(PyObject* self, PyObject* const* tensors, Py_ssize_t count) {
    PyObject* saved = PyTuple_New(count);
    if (saved == nullptr) {
      return nullptr;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
      PyTuple_SET_ITEM(saved, i, Py_NewRef(tensors[i]));
    }
    Py_XSETREF(of(self)->to_save, saved);
    Py_RETURN_NONE;
  }

  static PyObject* set_materialize_grads(PyObject*, PyObject*) { // absent gradients are None here
    Py_RETURN_NONE;
  }

  static PyObject* saved_tensors(PyObject* self, void*);

  // Lets go of what is saved, unless backward may run again.
  static PyObject* maybe_clear_saved_tensors(PyObject* self, PyObject*);

  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(of(self)->attributes);
    Py_VISIT(of(self)->to_save);
    return 0;
  }

  static int clear(PyObject* self) {
    Py_CLEAR(of(self)->attributes);
    Py_CLEAR(of(self)->to_save);
    return 0;
  }

  static void dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    clear(self);
    PyTypeObject* cls = Py_TYPE(self);
    cls->tp_free(self);
    Py_DECREF(cls);
  }

  static bool make_type() {
    static PyMethodDef methods[] = {
        {"save_for_backward",
         reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(save_for_backward)), METH_FASTCALL, nullptr},
        {"set_materialize_grads", set_materialize_grads, METH_O, nullptr},
        {"maybe_clear_saved_tensors", maybe_clear_saved_tensors, METH_NOARGS, nullptr},
        {nullptr}};
    static PyGetSetDef properties[] = {{"saved_tensors", saved_tensors, nullptr, nullptr, nullptr}, {nullptr}};
    PyMemberDef members[] = {
        {"__dictoffset__", T_PYSSIZET, offsetof(Context, attributes), READONLY, nullptr}, {nullptr}};
    PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
        {Py_tp_methods, methods},
        {Py_tp_getset, properties},
        {Py_tp_members, members},
        {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
        {Py_tp_clear, reinterpret_cast<void*>(clear)},
        {0, nullptr}};
    PyType_Spec spec = {
        "subclass_aot.native.Context", sizeof(Context), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return type != nullptr;
  }
};

inline PyTypeObject* Context::type = nullptr;

class CompiledNode : public torch::autograd::Node {
 public:
  CompiledNode(PyObject* context, PyObject* backward, size_t before)
      : context_(Ref::of(context)), backward_(Ref::of(backward)), before_(before) {
    Context::of(context)->node = this;
  }

  ~CompiledNode() override {
    if (!Py_IsInitialized()) { // the process ends
      context_.release();
      backward_.release();
      return;
    }
    Gil gil;
    Context::of(context_.get())->node = nullptr;
    context_ = Ref();
    backward_ = Ref();
  }

  std::string name() const override {
    return "CompiledBackward";
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false,
        "Compiled autograd wants to look into a backward that is compiled already.\n"
        "  Instead: call backward() outside of compiled autograd, or compile none of this function ahead of time.");
  }

  // Keeps what forward has saved, once its results have their places in the graph: with the GIL.
  void save(PyObject* tensors) {
    for (Py_ssize_t i = 0; tensors != nullptr && i < PyTuple_GET_SIZE(tensors); i++) {
      PyObject* object = PyTuple_GET_ITEM(tensors, i);
      TORCH_CHECK_TYPE(
          object == Py_None || THPVariable_Check(object), "save_for_backward takes tensors, not ",
          Py_TYPE(object)->tp_name);
      if (object == Py_None) {
        saved_.emplace_back();
      } else {
        const at::Tensor& tensor = tensor_of(object);
        saved_.emplace_back(tensor, tensor.grad_fn().get() == this);
      }
    }
  }

  Ref saved() {
    TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
    Filling result(checked(PyTuple_New(static_cast<Py_ssize_t>(saved_.size()))));
    for (size_t i = 0; i < saved_.size(); i++) {
      at::Tensor tensor = saved_[i].unpack(getptr());
      PyTuple_SET_ITEM(result.get(), i, tensor.defined() ? wrapped(std::move(tensor)).release() : Py_NewRef(Py_None));
    }
    return result.full();
  }

  void release_variables() override {
    saved_.clear();
    released_ = true;
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override {
    Gil gil;
    Filling arguments(kept(PyTuple_New(static_cast<Py_ssize_t>(tangents.size()) + 1)));
    PyTuple_SET_ITEM(arguments.get(), 0, Py_NewRef(context_.get()));
    for (size_t i = 0; i < tangents.size(); i++) {
      PyObject* tangent = tangents[i].defined() ? THPVariable_Wrap(std::move(tangents[i])) : Py_NewRef(Py_None);
      PyTuple_SET_ITEM(arguments.get(), i + 1, kept(tangent).release());
    }
    tangents.clear();
    Ref gradients = kept(PyObject_CallObject(backward_.get(), arguments.full().get()));
    TORCH_CHECK(
        PyTuple_Check(gradients.get()) &&
            static_cast<size_t>(PyTuple_GET_SIZE(gradients.get())) == before_ + num_outputs(),
        "backward has to give a tuple of ", before_ + num_outputs(), " gradients");
    torch::autograd::variable_list result(num_outputs());
    for (size_t i = 0; i < result.size(); i++) {
      PyObject* gradient = PyTuple_GET_ITEM(gradients.get(), before_ + i);
      if (gradient != Py_None) {
        TORCH_CHECK(THPVariable_Check(gradient), "a gradient is a tensor, not ", Py_TYPE(gradient)->tp_name);
        result[i] = tensor_of(gradient);
      }
    }
    return result;
  }

 private:
  static Ref wrapped(at::Tensor tensor) {
    return checked(THPVariable_Wrap(std::move(tensor)));
  }

  Ref context_, backward_;
  size_t before_; // arguments of forward that come before those which have gradients
  std::vector<torch::autograd::SavedVariable> saved_;
  bool released_ = false;
};

inline PyObject* Context::saved_tensors(PyObject* self, void*) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(of(self)->node != nullptr, "what is saved for backward is there while backward runs");
  return of(self)->node->saved().release();
  END_HANDLE_TH_ERRORS
}

inline PyObject* Context::maybe_clear_saved_tensors(PyObject* self, PyObject*) {
  HANDLE_TH_ERRORS
  if (of(self)->node != nullptr && !torch::autograd::get_current_graph_task_keep_graph()) {
    of(self)->node->release_variables();
  }
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// Runs forward where autograd does not see it, and makes the node of what it gives.
struct Function {
  Ref forward, backward;
  size_t before = 0;

  Ref call(PyObject* const* given, size_t count) const {
    TORCH_CHECK_TYPE(count >= before, "forward takes ", before, " arguments before tensors, and got ", count);
    bool recorded = false;
    for (size_t i = before; i < count; i++) {
      TORCH_CHECK_TYPE(THPVariable_Check(given[i]), "gradients go to tensors, not to ", Py_TYPE(given[i])->tp_name);
      recorded = recorded || tensor_of(given[i]).requires_grad();
    }
    recorded = recorded && c10::GradMode::is_enabled();
    Ref context = checked(Context::type->tp_alloc(Context::type, 0));
    std::vector<PyObject*> arguments{context.get()};
    arguments.insert(arguments.end(), given, given + count);
    Ref results;
    {
      c10::AutoGradMode without_grad(false);
      c10::AutoFwGradMode without_forward_grad(false);
      results = checked(PyObject_Vectorcall(forward.get(), arguments.data(), arguments.size(), nullptr));
    }
    TORCH_CHECK_TYPE(PyTuple_Check(results.get()), "forward gives a tuple, not ", Py_TYPE(results.get())->tp_name);
    if (!recorded) {
      return results;
    }
    auto node = c10::make_intrusive<CompiledNode>(context.get(), backward.get(), before);
    torch::autograd::edge_list edges;
    edges.reserve(count - before);
    for (size_t i = before; i < count; i++) {
      edges.push_back(torch::autograd::impl::gradient_edge(tensor_of(given[i])));
    }
    node->set_next_edges(std::move(edges));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results.get()); i++) {
      PyObject* result = PyTuple_GET_ITEM(results.get(), i);
      TORCH_CHECK_TYPE(THPVariable_Check(result), "forward gives tensors, not ", Py_TYPE(result)->tp_name);
      at::Tensor tensor = tensor_of(result);
      // A `DTensor` is made with the `requires_grad` that its context has; with a history it is no leaf any more.
      bool is_new = !tensor.requires_grad() ||
                    (!tensor.grad_fn() && std::find(given + before, given + count, result) == given + count);
      TORCH_CHECK(is_new, "forward gives new tensors, which have no history");
      if (torch::autograd::isDifferentiableType(tensor.scalar_type())) {
        torch::autograd::set_history(tensor, node);
      } else {
        node->add_input_metadata(torch::autograd::Node::undefined_input());
      }
    }
    Ref to_save(std::exchange(Context::of(context.get())->to_save, nullptr));
    node->save(to_save.get());
    return results;
  }

  int visit(visitproc visit, void* arg) const {
    Py_VISIT(forward.get());
    Py_VISIT(backward.get());
    return 0;
  }

  // Function(forward, backward, before): see `_accelerator.pyi`.
  static std::unique_ptr<Function> make(PyObject* args) {
    PyObject *forward, *backward;
    Py_ssize_t before = 0;
    parsed(PyArg_ParseTuple(args, "OOn:Function", &forward, &backward, &before));
    TORCH_CHECK_VALUE(before >= 0, "there are no less than no arguments");
    auto function = std::make_unique<Function>();
    function->forward = Ref::of(forward);
    function->backward = Ref::of(backward);
    function->before = static_cast<size_t>(before);
    return function;
  }

  // Has Python see the nodes as objects of a type that says what they are.
  static bool add_nodes() {
    using namespace torch::autograd;
    static PyTypeObject type;
    static PyGetSetDef properties[] = {
        THP_FUNCTION_DEFAULT_PROPERTIES, {"saved_tensors", saved_tensors, nullptr, nullptr, nullptr}, {nullptr}};
    _initFunctionPyTypeObject(type, "CompiledBackward", properties, nullptr);
    registerCppFunction(typeid(CompiledNode), &type);
    return Context::make_type();
  }

  static PyObject* saved_tensors(PyObject* self, void*) {
    HANDLE_TH_ERRORS
    auto* node = dynamic_cast<CompiledNode*>(reinterpret_cast<torch::autograd::THPCppFunction*>(self)->cdata.get());
    TORCH_CHECK(node != nullptr, "it was thrown away");
    return node->saved().release();
    END_HANDLE_TH_ERRORS
  }
};

} // namespace subclass_aot
