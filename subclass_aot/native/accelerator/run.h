// A run is some operators of a graph in a row, which are called without Python in between. The reference is the code that
// `backends/one_by_one.py` generates for each of them.
#pragma once

#include "common.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <chrono>

namespace subclass_aot {

struct Run {
  using Values = std::vector<c10::IValue>;

  // Whether autograd sees a call. Below it are those that make tensors nobody else can see yet: no gradients are
  // computed, and no versions and no views are noted. With grad: see Note [The workspace of an LSTM].
  enum class How { plain, below, with_grad };

  // What is given to an operator: a constant, what is in a place (for the last time, then), or a list of such.
  struct Argument {
    c10::IValue constant;
    int place = -1;
    bool last = false;
    std::vector<Argument> items;
    c10::TypePtr item_type; // of a list

    c10::IValue read(Values& values) const {
      if (place >= 0) {
        return last ? std::move(values[place]) : values[place];
      }
      return item_type ? list(values) : constant;
    }

    c10::IValue list(Values& values) const {
      switch (item_type->kind()) {
        case c10::TypeKind::TensorType:
          return of<at::Tensor>(values, [](c10::IValue value) { return std::move(value).toTensor(); });
        case c10::TypeKind::IntType:
          return of<int64_t>(values, [](c10::IValue value) { return value.toInt(); });
        default: // of tensors and None
          return of<std::optional<at::Tensor>>(values, [](c10::IValue value) { return std::move(value).toOptional<at::Tensor>(); });
      }
    }

    template <typename Item, typename Convert>
    c10::IValue of(Values& values, Convert convert) const {
      c10::List<Item> result;
      result.reserve(items.size());
      for (auto& item : items) {
        result.push_back(convert(item.read(values)));
      }
      return result;
    }
  };

  struct Step {
    c10::OperatorHandle op;
    std::vector<Argument> arguments;
    std::vector<int> results; // the place of each; -1 for one that nobody reads
    bool gives_list;
    How how;

    void call(torch::jit::Stack& stack, bool may_skip) const {
      if (how == How::below && may_skip) {
        at::AutoDispatchBelowADInplaceOrView below;
        op.callBoxed(stack);
      } else if (how == How::with_grad) {
        at::AutoDispatchBelowAutograd below;
        c10::AutoGradMode grad(true);
        op.callBoxed(stack);
      } else {
        op.callBoxed(stack);
      }
    }
  };

  std::vector<Step> steps;
  size_t inputs = 0, places = 0;
  std::vector<int> outputs;

  // Takes one list, and empties it.
  Ref call(PyObject* const* args, size_t count) const {
    TORCH_CHECK_TYPE(count == 1 && PyList_CheckExact(args[0]), "a run takes a list");
    Values values(places);
    take(args[0], values);
    {
      pybind11::gil_scoped_release without_gil;
      torch::jit::Stack stack;
      bool may_skip = !c10::GradMode::is_enabled() && torch::autograd::ForwardADLevel::try_get_by_idx(0) == nullptr &&
          !c10::impl::tls_local_dispatch_key_set().included_.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
      auto before = std::chrono::steady_clock::now();
      for (auto& step : steps) {
        for (auto& argument : step.arguments) {
          stack.push_back(argument.read(values));
        }
        step.call(stack, may_skip);
        give(step, stack, values);
        auto now = std::chrono::steady_clock::now();
        if (now - before > std::chrono::milliseconds(20)) { // Ctrl-C is heard between operators, as between lines
          before = now;
          pybind11::gil_scoped_acquire with_gil;
          if (PyErr_CheckSignals() < 0) {
            throw_raised();
          }
        }
      }
    }
    if (outputs.size() == 1) {
      return object_of(std::move(values[outputs[0]]));
    }
    Filling result(checked(PyTuple_New(static_cast<Py_ssize_t>(outputs.size()))));
    for (size_t i = 0; i < outputs.size(); i++) {
      PyTuple_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i), object_of(std::move(values[outputs[i]])).release());
    }
    return result.full();
  }

  void take(PyObject* list, Values& values) const {
    TORCH_CHECK_TYPE(
        PyList_GET_SIZE(list) == static_cast<Py_ssize_t>(inputs), "a run of ", inputs, " inputs was given ", PyList_GET_SIZE(list));
    for (size_t i = 0; i < inputs; i++) {
      values[i] = value_of(PyList_GET_ITEM(list, static_cast<Py_ssize_t>(i)));
    }
    if (PyList_SetSlice(list, 0, PyList_GET_SIZE(list), nullptr) < 0) {
      throw python_error();
    }
  }

  static void give(const Step& step, torch::jit::Stack& stack, Values& values) {
    if (step.gives_list) {
      c10::List<c10::IValue> found = std::move(stack.back()).toList();
      for (size_t i = 0; i < step.results.size(); i++) {
        if (step.results[i] >= 0) {
          values[step.results[i]] = found.get(i);
        }
      }
    } else {
      for (size_t i = 0; i < step.results.size(); i++) {
        if (step.results[i] >= 0) {
          values[step.results[i]] = std::move(stack[i]);
        }
      }
    }
    stack.clear();
  }

  static c10::IValue value_of(PyObject* object) {
    if (THPVariable_Check(object)) {
      return tensor_of(object);
    }
    if (PyBool_Check(object)) {
      return object == Py_True;
    }
    if (PyLong_Check(object)) {
      return THPUtils_unpackLong(object);
    }
    if (PyFloat_Check(object)) {
      return PyFloat_AS_DOUBLE(object);
    }
    TORCH_CHECK_TYPE(object == Py_None, "a run takes tensors and numbers, not ", Py_TYPE(object)->tp_name);
    return {};
  }

  static Ref object_of(c10::IValue value) {
    if (value.isTensor()) {
      at::Tensor tensor = std::move(value).toTensor();
      return tensor.defined() ? checked(THPVariable_Wrap(std::move(tensor))) : Ref::of(Py_None);
    }
    return Ref(torch::jit::toPyObject(std::move(value)).release().ptr());
  }

  int visit(visitproc, void*) const { // constants are numbers
    return 0;
  }

  // Run(inputs, places, steps, outputs): see `_accelerator.pyi`.
  static std::unique_ptr<Run> make(PyObject* args) {
    Py_ssize_t inputs, places;
    PyObject *steps, *outputs;
    parsed(PyArg_ParseTuple(args, "nnO!O!:Run", &inputs, &places, &PyTuple_Type, &steps, &PyTuple_Type, &outputs));
    auto run = std::make_unique<Run>();
    run->inputs = static_cast<size_t>(inputs);
    run->places = static_cast<size_t>(places);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); i++) {
      run->steps.push_back(step_of(PyTuple_GET_ITEM(steps, i)));
    }
    run->outputs = numbers(outputs);
    for (auto& step : run->steps) {
      run->check(step.arguments);
      run->check(step.results);
    }
    run->check(run->outputs);
    TORCH_CHECK_TYPE(inputs <= places, "a run has fewer places than inputs");
    return run;
  }

  void check(const std::vector<int>& numbers) const {
    for (int number : numbers) {
      TORCH_CHECK_TYPE(number < static_cast<int>(places), "there is no place ", number, " in a run of ", places);
    }
  }

  void check(const std::vector<Argument>& arguments) const {
    for (auto& argument : arguments) {
      check(std::vector<int>{argument.place});
      check(argument.items);
    }
  }

  static Step step_of(PyObject* given) {
    const char *name, *overload, *how;
    PyObject *arguments, *results;
    parsed(PyArg_ParseTuple(
        given, "ssO!O!s:step", &name, &overload, &PyTuple_Type, &arguments, &PyTuple_Type, &results, &how));
    std::string_view is(how);
    Step step{
        c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), {}, numbers(results), false,
        is == "below" ? How::below : is == "with grad" ? How::with_grad : How::plain};
    auto& schema = step.op.schema();
    TORCH_CHECK_TYPE(
        PyTuple_GET_SIZE(arguments) == static_cast<Py_ssize_t>(schema.arguments().size()), name, " takes ", schema.arguments().size(), " arguments");
    torch::jit::ToIValueAllowNumbersAsTensors numbers_are_tensors(true);
    for (size_t i = 0; i < schema.arguments().size(); i++) {
      auto& argument = schema.arguments()[i];
      step.arguments.push_back(argument_of(PyTuple_GET_ITEM(arguments, static_cast<Py_ssize_t>(i)), argument.type(), argument.N()));
    }
    step.gives_list = schema.returns().size() == 1 && schema.returns()[0].type()->kind() == c10::TypeKind::ListType;
    return step;
  }

  // (kind, value): "constant" and a value, "place" or "last" and a number, "list" and a tuple of such.
  static Argument argument_of(PyObject* given, const c10::TypePtr& type, std::optional<int32_t> length) {
    const char* kind;
    PyObject* value;
    parsed(PyArg_ParseTuple(given, "sO:argument", &kind, &value));
    Argument result;
    std::string_view is(kind);
    if (is == "constant") {
      result.constant = torch::jit::toIValue(value, type, length);
    } else if (is == "list") {
      c10::TypePtr list = type->kind() == c10::TypeKind::OptionalType ? type->expectRef<c10::OptionalType>().getElementType() : type;
      result.item_type = list->expectRef<c10::ListType>().getElementType();
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
        result.items.push_back(argument_of(PyTuple_GET_ITEM(value, i), result.item_type, std::nullopt));
      }
    } else {
      result.place = static_cast<int>(PyLong_AsLong(value));
      result.last = is == "last";
    }
    return result;
  }

  static std::vector<int> numbers(PyObject* tuple) {
    std::vector<int> result;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
      result.push_back(static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(tuple, i))));
    }
    return result;
  }
};

} // namespace subclass_aot
