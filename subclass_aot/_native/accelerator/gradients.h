// Gradients of wrappers that become `.grad` without a `detach`. Autograd's `AccumulateGrad` takes a new gradient that
// nobody else holds by detaching it, which for a wrapper is a run through its class. It is an option of users, and off
// by default: see `direct_grad` of `aot_compile` for what is not the same.
#pragma once

#include "node.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_function.h>

namespace subclass_aot {

// Whether this run backward brings gradients to a node, and gives what reaches it to nobody else.
inline bool only_accumulates(torch::autograd::Node* node) {
  const auto* tasks = torch::autograd::get_current_graph_task_exec_info();
  if (tasks == nullptr || tasks->empty()) { // `backward()` without `inputs=`: everything runs
    return true;
  }
  auto found = tasks->find(node);
  return found != tasks->end() && found->second.needed_ && !found->second.captures_;
}

// The node that makes a gradient the `.grad` of a leaf, if nobody watches it and there is no `.grad` yet.
inline torch::autograd::AccumulateGrad* free_leaf(const torch::autograd::Edge& edge, const at::Tensor& gradient) {
  auto* node = dynamic_cast<torch::autograd::AccumulateGrad*>(edge.function.get());
  if (node == nullptr || !node->pre_hooks().empty() || !node->post_hooks().empty() ||
      !node->tensor_pre_hooks().empty() || !node->retains_grad_hooks().empty() ||
      node->tensor_post_acc_grad_hooks() != nullptr || !only_accumulates(node)) {
    return nullptr;
  }
  const at::Tensor& leaf = node->variable;
  bool alike = leaf.sizes() == gradient.sizes() && leaf.strides() == gradient.strides() &&
      leaf.dtype() == gradient.dtype() && leaf.device() == gradient.device();
  return alike && leaf.device().is_cpu() && !leaf.grad().defined() ? node : nullptr;
}

// The node that a `ctx` is of; none, where it is something else.
inline const torch::autograd::Node* node_of(PyObject* ctx) {
  if (Py_TYPE(ctx) == Context::type) {
    return Context::of(ctx)->node;
  }
  return THPFunction_Check(ctx) ? reinterpret_cast<THPFunction*>(ctx)->cdata.get() : nullptr;
}

// set_gradients(ctx, gradients): sets those that can be set, and gives the tuple with None in their places. `ctx` is that
// of what runs backward, an `autograd.Function` or a node of ours; tensors, and so edges, stand last among its arguments.
inline PyObject* set_gradients(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 2 && PyTuple_CheckExact(args[1]), "set_gradients(ctx, gradients) takes a tuple");
  Ref gradients = Ref::of(args[1]);
  auto running = torch::autograd::get_current_node();
  if (!running || c10::GradMode::is_enabled() || running.get() != node_of(args[0])) {
    return gradients.release(); // another takes the gradients, as a trace of backward does
  }
  const auto& edges = running->next_edges();
  Py_ssize_t given = PyTuple_GET_SIZE(gradients.get());
  Py_ssize_t first = given - static_cast<Py_ssize_t>(edges.size());
  TORCH_CHECK(first >= 0, "there are fewer gradients than inputs");
  Filling rest(checked(PyTuple_New(given)));
  for (Py_ssize_t i = 0; i < given; i++) {
    PyObject* object = PyTuple_GET_ITEM(gradients.get(), i);
    bool is_wrapper = i >= first && THPVariable_Check(object) && !THPVariable_CheckExact(object) &&
        tensor_of(object).unsafeGetTensorImpl()->is_python_dispatch();
    auto* leaf = is_wrapper ? free_leaf(edges[i - first], tensor_of(object)) : nullptr;
    if (leaf != nullptr) {
      leaf->variable.mutable_grad() = tensor_of(object);
      object = Py_None;
    }
    PyTuple_SET_ITEM(rest.get(), i, Py_NewRef(object));
  }
  return rest.full().release();
  END_HANDLE_TH_ERRORS
}

} // namespace subclass_aot
