// Operators on tensors without data: what Python has given for arguments of some metadata is given again for others of
// the same. The reference is `meta/dispatch.py`, and `meta/served.py` says which operators may be served.
#pragma once

#include "effects.h"
#include "outer.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/PyInterpreterHooks.h>
#include <c10/core/impl/PythonDispatcherTLS.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include <atomic>
#include <cstring>
#include <unordered_map>

namespace torch::jit {
TORCH_PYTHON_API py::object toPyObject(IValue ivalue); // its header has much else
}

namespace subclass_aot {

// Where an object has one of its `__slots__`.
class Slot {
 public:
  static Slot of(PyTypeObject* cls, const char* name) {
    Ref member = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(cls), name));
    TORCH_CHECK_TYPE(Py_TYPE(member.get()) == &PyMemberDescr_Type, name, " is no slot");
    Slot slot;
    slot.offset_ = reinterpret_cast<PyMemberDescrObject*>(member.get())->d_member->offset;
    return slot;
  }
  PyObject* get(PyObject* object) const { // borrowed; none where nothing was set
    return at(object);
  }
  void fill(PyObject* fresh, PyObject* value) const {
    at(fresh) = Py_NewRef(value);
  }

 private:
  PyObject*& at(PyObject* object) const {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset_);
  }
  Py_ssize_t offset_ = 0;
};

// What Python has said once: the classes, and what to ask. All of it is read with the GIL held.
struct LeafClasses {
  PyTypeObject *leaf = nullptr, *storage = nullptr, *stream = nullptr, *shield = nullptr; // kept for as long as the process lives
  Slot spec, tag, memory; // of a leaf
  Slot of_storage; // the spec of a storage
  std::vector<std::pair<Slot, PyObject*>> rest; // its other slots, and with what they begin
  PyObject *size = nullptr, *effects = nullptr, *in_thread = nullptr, *tell = nullptr;

  std::atomic<bool> on{false};
  std::atomic<int64_t> rules{0}; // grows when caches are to forget
  int64_t listeners = 0; // in all threads
  int64_t known = 0, hits = 0;

  static LeafClasses& get() {
    static auto* classes = new LeafClasses();
    return *classes;
  }
};

using LeafKey = c10::SmallVector<int64_t, 24>;

struct LeafKeyHash {
  size_t operator()(const LeafKey& key) const {
    uint64_t hash = 0x9E3779B97F4A7C15ull + key.size();
    for (int64_t part : key) {
      hash = (hash ^ static_cast<uint64_t>(part)) * 0xff51afd7ed558ccdull;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

// One result: a new leaf, with the storage of an argument or with one of its own, or an argument itself, or nothing.
struct LeafResult {
  Ref spec; // of a new leaf; else none
  int argument = -1; // which it is, or is a view of
  c10::SmallVector<int64_t, 5> size, stride;
  int64_t offset = 0;
  size_t nbytes = 0;
  caffe2::TypeMeta dtype;
  c10::Device device{c10::kCPU};
  c10::DispatchKeySet keys; // a device that is claimed has some of its own
};

struct LeafAnswer {
  std::vector<LeafResult> results;
  // The arguments as Python is given them, for listeners: made when the first one is there.
  bool is_spelled = false;
  std::vector<size_t> given; // by position
  std::vector<size_t> named;
  std::vector<Ref> constants; // by position in the schema; none for tensors
  Ref operator_of; // the operator, as Python has it
};

// What the schema says of an operator, and whether it may be served.
struct LeafEffects {
  bool is_known = false, may_serve = false, writes = false, gives_list = false;
  std::vector<int> written, viewed; // by result, the argument that it is, or is a view of; -1 for none
};

class LeafCall;

// What is known of one operator. With the GIL.
class Leaves {
 public:
  std::unordered_map<LeafKey, std::shared_ptr<LeafAnswer>, LeafKeyHash> answers;
  LeafEffects effects;
  int64_t rules = 0;

  void forget_if_old() {
    int64_t now = LeafClasses::get().rules.load(std::memory_order_relaxed);
    if (now != rules) {
      rules = now;
      LeafClasses::get().known -= static_cast<int64_t>(answers.size());
      auto last = std::exchange(answers, {}); // what its going sets off finds a whole table
      effects = {};
    }
  }

  void read(const c10::OperatorHandle& op) {
    Ref said = kept(PyObject_CallOneArg(LeafClasses::get().effects, torch::detail::getTorchApiFunction(op).ptr()));
    LeafEffects found;
    found.is_known = true;
    auto& returns = op.schema().returns();
    if (said.get() != Py_None) {
      PyObject *written = nullptr, *viewed = nullptr;
      int writes = 0;
      parsed(PyArg_ParseTuple(said.get(), "O!O!p", &PyTuple_Type, &written, &PyTuple_Type, &viewed, &writes));
      for (int64_t position : integers(written)) {
        found.written.push_back(static_cast<int>(position));
      }
      for (int64_t position : integers(viewed)) {
        found.viewed.push_back(static_cast<int>(position));
      }
      found.writes = writes;
      found.may_serve = found.written.size() == returns.size() && found.viewed.size() == returns.size();
      for (auto& result : returns) {
        auto kind = result.real_type()->str();
        found.gives_list = kind == "Tensor[]";
        found.may_serve &= kind == "Tensor" || (found.gives_list && returns.size() == 1 && found.written[0] < 0);
      }
    }
    effects = std::move(found);
  }
};

// One call of an operator on leaves, and on nothing else that is a tensor. With the GIL.
class LeafCall {
 public:
  LeafCall(Leaves& leaves, const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : known_(leaves), op_(op), stack_(stack), count_(op.schema().arguments().size()) {}

  // Whether this call may be served, now or later.
  bool is_ours() {
    if (!read_mode() || !read_arguments() || objects_.empty()) {
      return false;
    }
    known_.forget_if_old();
    if (!known_.effects.is_known) {
      known_.read(op_);
    }
    return known_.effects.may_serve && nothing_is_known();
  }

  // Keeps the arguments, to learn from the results.
  void hold() {
    held_.assign(stack_.end() - static_cast<int64_t>(count_), stack_.end());
    rules_ = known_.rules;
  }

  // Gives what was given before; false where that is not known.
  bool serve() {
    auto found = known_.answers.find(key_);
    if (found == known_.answers.end()) {
      return false;
    }
    std::shared_ptr<LeafAnswer> answer = found->second; // whoever runs meanwhile may change the table
    auto& classes = LeafClasses::get();
    classes.hits++;
    Ref listeners;
    if (classes.listeners > 0) {
      listeners = kept(PyObject_GetAttrString(classes.in_thread, "listeners"));
      if (PyTuple_GET_SIZE(listeners.get()) == 0) {
        listeners = Ref();
      }
    }
    c10::SmallVector<at::Tensor, 4> made;
    for (auto& result : answer->results) {
      made.push_back(make(result, static_cast<bool>(listeners)));
    }
    if (listeners) {
      call_listeners(*answer, made);
    }
    torch::jit::drop(stack_, count_);
    if (known_.effects.gives_list) {
      c10::List<at::Tensor> list;
      list.reserve(made.size());
      for (auto& tensor : made) {
        list.push_back(std::move(tensor));
      }
      stack_.emplace_back(std::move(list));
    } else {
      for (auto& tensor : made) {
        stack_.emplace_back(std::move(tensor));
      }
    }
    return true;
  }

  // Keeps what Python gave, which is at the end of the stack now.
  void learn() {
    auto& classes = LeafClasses::get();
    if (classes.rules.load(std::memory_order_relaxed) != rules_ || known_.rules != rules_ || !known_.effects.may_serve) {
      return;
    }
    auto answer = std::make_shared<LeafAnswer>();
    auto& effects = known_.effects;
    size_t returns = op_.schema().returns().size();
    for (size_t r = 0; r < returns; r++) {
      const c10::IValue& value = stack_[stack_.size() - returns + r];
      if (effects.gives_list) {
        if (!value.isTensorList()) {
          return;
        }
        for (const at::Tensor& tensor : value.toTensorVector()) {
          if (!add(*answer, tensor, -1, effects.viewed[r])) {
            return;
          }
        }
      } else if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) {
        answer->results.emplace_back();
      } else if (!value.isTensor() || !add(*answer, value.toTensor(), effects.written[r], effects.viewed[r])) {
        return;
      }
    }
    if (classes.known >= MOST) {
      classes.rules++; // all forget, each when it is called next
      classes.known = 0;
      return;
    }
    classes.known += known_.answers.emplace(key_, std::move(answer)).second;
  }

 private:
  static constexpr int64_t MOST = 200000;
  enum : int64_t { NONE = -1, TRUE = -2, FALSE = -3, INT = -4, FLOAT = -5, LIST = -6, TEXT = -7, DEVICE = -8,
                   NUMBER = -9, COMPLEX = -10, TENSOR = -11, FLOATS = -12, FLAGS = -13, TENSORS = -14 };

  // Whether nobody sees operators, or one stream alone that runs without data and that leaves this one as it is.
  bool read_mode() {
    auto length = c10::impl::TorchDispatchModeTLS::stack_len();
    if (length == 0) {
      return true;
    }
    auto& classes = LeafClasses::get();
    PyObject* innermost = mode_at(length - 1);
    if (length > 2 || Py_TYPE(innermost) != classes.stream ||
        (length == 2 && Py_TYPE(mode_at(0)) != classes.shield)) {
      return false;
    }
    stream_ = Ref::of(innermost);
    return true;
  }

  static PyObject* mode_at(int64_t depth) {
    return c10::impl::TorchDispatchModeTLS::get_stack_at(depth)->ptr(c10::impl::getGlobalPyInterpreter());
  }

  // What a stream knows of values: it does more where it knows those of all arguments, or some that are written.
  bool nothing_is_known() {
    if (!stream_) {
      return true;
    }
    static PyObject* values_name = PyUnicode_InternFromString("_values");
    static PyObject* met_name = PyUnicode_InternFromString("_met");
    static PyObject* next_name = PyUnicode_InternFromString("class_of_next");
    static PyObject* assumes_name = PyUnicode_InternFromString("assumptions");
    static PyObject* is_on_name = PyUnicode_InternFromString("is_on");
    Ref next = kept(PyObject_GetAttr(stream_.get(), next_name));
    Ref assumptions = kept(PyObject_GetAttr(stream_.get(), assumes_name));
    Ref assumes = kept(PyObject_GetAttr(assumptions.get(), is_on_name));
    if (next.get() != Py_None || assumes.get() != Py_False) {
      return false;
    }
    Ref values = kept(PyObject_GetAttr(stream_.get(), values_name));
    TORCH_CHECK_TYPE(PyDict_Check(values.get()), "values are known by leaf");
    bool is_empty = PyDict_GET_SIZE(values.get()) == 0;
    if (known_.effects.writes) {
      Ref met = kept(PyObject_GetAttr(stream_.get(), met_name));
      return is_empty && PyObject_Size(met.get()) == 0;
    }
    if (is_empty) {
      return true;
    }
    for (PyObject* object : objects_) {
      Ref key = kept(PyLong_FromVoidPtr(object));
      if (PyDict_GetItemWithError(values.get(), key.get()) == nullptr) {
        return true;
      }
    }
    return false;
  }

  bool read_arguments() {
    key_.push_back(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
    size_t first = stack_.size() - count_;
    for (size_t i = 0; i < count_; i++) {
      if (!read(stack_[first + i], i)) {
        return false;
      }
    }
    return true;
  }

  bool read(const c10::IValue& value, size_t argument) {
    if (value.isTensor()) {
      return read_tensor(value.toTensor(), static_cast<int>(argument));
    }
    if (value.isNone()) {
      key_.push_back(NONE);
    } else if (value.isInt()) {
      key_.push_back(INT);
      key_.push_back(value.toInt());
    } else if (value.isBool()) {
      key_.push_back(value.toBool() ? TRUE : FALSE);
    } else if (value.isDouble()) {
      key_.push_back(FLOAT);
      add(value.toDouble());
    } else if (value.isIntList()) {
      auto list = value.toIntList();
      key_.push_back(LIST);
      key_.push_back(static_cast<int64_t>(list.size()));
      for (size_t i = 0; i < list.size(); i++) {
        key_.push_back(list.get(i));
      }
    } else if (value.isBoolList()) {
      auto list = value.toBoolList();
      key_.push_back(FLAGS);
      key_.push_back(static_cast<int64_t>(list.size()));
      for (size_t i = 0; i < list.size(); i++) {
        key_.push_back(list.get(i));
      }
    } else if (value.isDoubleList()) {
      auto list = value.toDoubleList();
      key_.push_back(FLOATS);
      key_.push_back(static_cast<int64_t>(list.size()));
      for (size_t i = 0; i < list.size(); i++) {
        add(list.get(i));
      }
    } else if (value.isTensorList()) {
      auto list = value.toTensorList();
      key_.push_back(TENSORS);
      key_.push_back(static_cast<int64_t>(list.size()));
      for (size_t i = 0; i < list.size(); i++) {
        if (!read_tensor(list.get(i), static_cast<int>(argument))) {
          return false;
        }
      }
    } else if (value.isOptionalTensorList()) {
      auto list = value.toOptionalTensorList();
      key_.push_back(TENSORS);
      key_.push_back(static_cast<int64_t>(list.size()));
      for (size_t i = 0; i < list.size(); i++) {
        std::optional<at::Tensor> item = list.get(i);
        if (!read_tensor(item.has_value() ? *item : at::Tensor(), static_cast<int>(argument))) {
          return false;
        }
      }
    } else if (value.isString()) {
      const std::string& text = value.toStringRef();
      key_.push_back(TEXT);
      key_.push_back(static_cast<int64_t>(text.size()));
      for (size_t i = 0; i < text.size(); i += sizeof(int64_t)) {
        int64_t part = 0;
        std::memcpy(&part, text.data() + i, std::min(sizeof(part), text.size() - i));
        key_.push_back(part);
      }
    } else if (value.isDevice() && value.toDevice().type() != c10::kMeta) { // which a stream takes for another one
      key_.push_back(DEVICE);
      key_.push_back(static_cast<int64_t>(value.toDevice().type()) * 256 + value.toDevice().index());
    } else {
      return false;
    }
    return true;
  }

  void add(double number) {
    int64_t bits = 0;
    std::memcpy(&bits, &number, sizeof(bits));
    key_.push_back(bits);
  }

  bool read_tensor(const at::Tensor& tensor, int argument) {
    if (!tensor.defined()) {
      key_.push_back(NONE);
      return true;
    }
    auto* impl = tensor.unsafeGetTensorImpl();
    if (!impl->is_python_dispatch()) {
      return impl->is_wrapped_number() && read_number(tensor);
    }
    PyObject* object = impl->pyobj_slot()->load_pyobj();
    auto& classes = LeafClasses::get();
    if (object == nullptr || Py_TYPE(object) != classes.leaf || impl->key_set().has_any(STRANGE) ||
        impl->has_symbolic_sizes_strides() || classes.tag.get(object) != Py_None) {
      return false;
    }
    PyObject* spec = classes.spec.get(object);
    if (spec == nullptr || classes.memory.get(object) == nullptr) {
      return false;
    }
    key_.push_back(TENSOR);
    key_.push_back(static_cast<int64_t>(reinterpret_cast<intptr_t>(spec))); // specs without symbols live for ever
    objects_.push_back(object);
    arguments_.push_back(argument);
    specs_.push_back(spec);
    return true;
  }

  // A number that is a tensor for the dispatcher alone. Python gets the number.
  bool read_number(const at::Tensor& tensor) {
    key_.push_back(NUMBER);
    auto dtype = tensor.scalar_type();
    key_.push_back(static_cast<int64_t>(dtype));
    if (dtype == at::kDouble) {
      add(*tensor.const_data_ptr<double>());
    } else if (dtype == at::kLong) {
      key_.push_back(*tensor.const_data_ptr<int64_t>());
    } else if (dtype == at::kBool) {
      key_.push_back(*tensor.const_data_ptr<bool>());
    } else {
      return false;
    }
    return true;
  }

  PyObject* object_at(int argument) const {
    for (size_t i = 0; i < arguments_.size(); i++) {
      if (arguments_[i] == argument) {
        return objects_[i];
      }
    }
    return nullptr;
  }

  // Notes one result; false where it is not what it ought to be.
  bool add(LeafAnswer& answer, const at::Tensor& tensor, int written, int viewed) const {
    auto& classes = LeafClasses::get();
    auto* impl = tensor.unsafeGetTensorImpl();
    PyObject* object = tensor.defined() ? impl->pyobj_slot()->load_pyobj() : nullptr;
    if (object == nullptr || Py_TYPE(object) != classes.leaf || impl->has_symbolic_sizes_strides() ||
        impl->key_set().has_any(STRANGE) || classes.tag.get(object) != Py_None) {
      return false;
    }
    LeafResult result;
    PyObject* spec = classes.spec.get(object);
    if (written >= 0) {
      for (size_t i = 0; i < arguments_.size(); i++) {
        if (arguments_[i] == written) {
          if (objects_[i] != object || specs_[i] != spec) { // it has changed its size
            return false;
          }
          result.argument = written;
          answer.results.push_back(std::move(result));
          return true;
        }
      }
      return false;
    }
    if (viewed >= 0) {
      PyObject* of = object_at(viewed);
      if (of == nullptr || classes.memory.get(of) != classes.memory.get(object)) {
        return false;
      }
    } else {
      for (PyObject* other : objects_) {
        if (other == object || classes.memory.get(other) == classes.memory.get(object)) {
          return false;
        }
      }
    }
    result.argument = viewed;
    result.spec = Ref::of(spec);
    result.size = tensor.sizes();
    result.stride = tensor.strides();
    result.offset = tensor.storage_offset();
    result.dtype = tensor.dtype();
    result.device = impl->device();
    result.keys = impl->key_set();
    result.nbytes = impl->unsafe_storage().nbytes();
    answer.results.push_back(std::move(result));
    return true;
  }

  at::Tensor make(const LeafResult& result, bool is_heard) const {
    auto& classes = LeafClasses::get();
    PyObject* of = result.argument < 0 ? nullptr : object_at(result.argument);
    if (!result.spec) {
      return of == nullptr ? at::Tensor() : tensor_of(of);
    }
    at::Tensor tensor = outer_tensor(
        outer_storage(result.nbytes, result.device), result.keys, result.dtype, result.size, result.stride,
        result.offset);
    Ref object = kept(THPVariable_Wrap(tensor, classes.leaf));
    classes.spec.fill(object.get(), result.spec.get());
    classes.tag.fill(object.get(), Py_None);
    if (of != nullptr) {
      classes.memory.fill(object.get(), classes.memory.get(of));
    } else {
      Ref memory = make_storage(result.spec.get(), is_heard);
      classes.memory.fill(object.get(), memory.get());
    }
    return tensor;
  }

  // A new storage; Python makes it where listeners are to know of it.
  static Ref make_storage(PyObject* spec, bool is_heard) {
    auto& classes = LeafClasses::get();
    if (is_heard) {
      return kept(PyObject_CallOneArg(reinterpret_cast<PyObject*>(classes.storage), spec));
    }
    Ref made = kept(classes.storage->tp_alloc(classes.storage, 0));
    classes.of_storage.fill(made.get(), spec);
    for (auto& [slot, value] : classes.rest) {
      slot.fill(made.get(), value);
    }
    return made;
  }

  void call_listeners(LeafAnswer& answer, const c10::SmallVector<at::Tensor, 4>& made) {
    if (!answer.is_spelled) {
      spell(answer);
    }
    Ref args = kept(PyTuple_New(static_cast<Py_ssize_t>(answer.given.size())));
    for (size_t i = 0; i < answer.given.size(); i++) {
      PyTuple_SET_ITEM(args.get(), i, object_of_argument(answer, answer.given[i]).release());
    }
    Ref kwargs = kept(PyDict_New());
    for (size_t i : answer.named) {
      Ref value = object_of_argument(answer, i);
      if (PyDict_SetItemString(kwargs.get(), op_.schema().arguments()[i].name().c_str(), value.get()) < 0) {
        throw_raised();
      }
    }
    Ref result;
    if (known_.effects.gives_list) {
      result = kept(PyList_New(static_cast<Py_ssize_t>(made.size())));
      for (size_t i = 0; i < made.size(); i++) {
        PyList_SET_ITEM(result.get(), i, kept(THPVariable_Wrap(made[i])).release());
      }
    } else if (made.size() == 1) {
      result = kept(THPVariable_Wrap(made[0]));
    } else if (made.empty()) {
      result = Ref::of(Py_None);
    } else {
      result = kept(PyTuple_New(static_cast<Py_ssize_t>(made.size())));
      for (size_t i = 0; i < made.size(); i++) {
        PyTuple_SET_ITEM(result.get(), i, kept(THPVariable_Wrap(made[i])).release());
      }
    }
    PyObject* stream = stream_ ? stream_.get() : Py_None;
    PyObject* given[] = {stream, answer.operator_of.get(), args.get(), kwargs.get(), result.get()};
    kept(PyObject_Vectorcall(LeafClasses::get().tell, given, 5, nullptr));
  }

  // Notes how Python is given the arguments: without those that are as the schema has them, at the end and by name.
  void spell(LeafAnswer& answer) const {
    auto& arguments = op_.schema().arguments();
    size_t first = stack_.size() - count_, positional = 0;
    while (positional < count_ && !arguments[positional].kwarg_only()) {
      positional++;
    }
    auto is_default = [&](size_t i) {
      return arguments[i].default_value().has_value() && *arguments[i].default_value() == stack_[first + i];
    };
    size_t given = positional;
    while (given > 0 && is_default(given - 1)) {
      given--;
    }
    for (size_t i = 0; i < given; i++) {
      answer.given.push_back(i);
    }
    for (size_t i = positional; i < count_; i++) {
      if (!is_default(i)) {
        answer.named.push_back(i);
      }
    }
    for (size_t i = 0; i < count_; i++) {
      const c10::IValue& value = stack_[first + i];
      bool is_tensor = object_at(static_cast<int>(i)) != nullptr;
      answer.constants.push_back(is_tensor ? Ref() : constant(arguments[i], value));
    }
    answer.operator_of = Ref::of(torch::detail::getTorchApiFunction(op_).ptr());
    answer.is_spelled = true;
  }

  static Ref constant(const c10::Argument& argument, const c10::IValue& value) {
    if (value.isNone()) {
      return Ref::of(Py_None);
    }
    auto type = argument.real_type();
    if (auto optional = type->cast<c10::OptionalType>()) {
      type = optional->getElementType();
    }
    switch (type->kind()) {
      case c10::TypeKind::ScalarTypeType:
        return Ref::of(reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<at::ScalarType>(value.toInt()))));
      case c10::TypeKind::LayoutType:
        return Ref::of(reinterpret_cast<PyObject*>(torch::getTHPLayout(static_cast<at::Layout>(value.toInt()))));
      case c10::TypeKind::MemoryFormatType:
        return Ref::of(torch::utils::getTHPMemoryFormat(static_cast<at::MemoryFormat>(value.toInt())));
      default:
        return Ref(torch::jit::toPyObject(value).release().ptr());
    }
  }

  Ref object_of_argument(const LeafAnswer& answer, size_t argument) const {
    const c10::IValue& value = stack_[stack_.size() - count_ + argument];
    PyObject* constant = answer.constants[argument].get();
    if (constant != nullptr && !PyList_CheckExact(constant)) {
      return Ref::of(constant);
    }
    if (constant == nullptr && value.isTensor()) {
      return kept(THPVariable_Wrap(value.toTensor()));
    }
    return constant == nullptr ? Ref(torch::jit::toPyObject(value).release().ptr())
                               : kept(PyList_GetSlice(constant, 0, PyList_GET_SIZE(constant)));
  }

  Leaves& known_;
  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  size_t count_;
  Ref stream_;
  std::vector<c10::IValue> held_;
  int64_t rules_ = 0; // when they were held
  LeafKey key_;
  c10::SmallVector<PyObject*, 8> objects_; // leaves among the arguments, in order
  c10::SmallVector<int, 8> arguments_; // of each, which argument it is, or is in
  c10::SmallVector<PyObject*, 8> specs_; // and its spec before the operator
};

// Takes what there is to know of the classes. serve_leaves(leaf, storage, rest, shield, effects,
// in_thread, tell)
inline PyObject* serve_leaves(PyObject*, PyObject* args) {
  HANDLE_TH_ERRORS
  PyObject *leaf, *storage, *rest, *shield, *effects, *in_thread, *tell;
  parsed(PyArg_ParseTuple(
      args, "O!O!O!O!OOO:serve_leaves", &PyType_Type, &leaf, &PyType_Type, &storage, &PyDict_Type, &rest,
      &PyType_Type, &shield, &effects, &in_thread, &tell));
  auto& classes = LeafClasses::get();
  TORCH_CHECK_VALUE(classes.leaf == nullptr, "the classes are known");
  auto* leaf_type = reinterpret_cast<PyTypeObject*>(leaf);
  auto* storage_type = reinterpret_cast<PyTypeObject*>(storage);
  classes.spec = Slot::of(leaf_type, "meta_spec");
  classes.tag = Slot::of(leaf_type, "meta_tag");
  classes.memory = Slot::of(leaf_type, "meta_storage");
  classes.of_storage = Slot::of(storage_type, "spec");
  PyObject *name, *value;
  for (Py_ssize_t i = 0; PyDict_Next(rest, &i, &name, &value);) {
    classes.rest.emplace_back(Slot::of(storage_type, PyUnicode_AsUTF8(name)), Py_NewRef(value));
  }
  classes.storage = reinterpret_cast<PyTypeObject*>(Py_NewRef(storage));
  classes.shield = reinterpret_cast<PyTypeObject*>(Py_NewRef(shield));
  classes.effects = Py_NewRef(effects);
  classes.in_thread = Py_NewRef(in_thread);
  classes.tell = Py_NewRef(tell);
  classes.leaf = reinterpret_cast<PyTypeObject*>(Py_NewRef(leaf));
  classes.on = true;
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// serve_stream(class): of streams that run without data, and leave operators as they are.
inline PyObject* serve_stream(PyObject*, PyObject* stream) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(PyType_Check(stream), "a stream is served by its class");
  LeafClasses::get().stream = reinterpret_cast<PyTypeObject*>(Py_NewRef(stream));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// forget_leaves(): after a rule has changed.
inline PyObject* forget_leaves(PyObject*, PyObject*) {
  LeafClasses::get().rules++;
  Py_RETURN_NONE;
}

// listen_to_leaves(number): how many listeners there are in all threads.
inline PyObject* listen_to_leaves(PyObject*, PyObject* number) {
  int64_t listeners = PyLong_AsLongLong(number);
  if (listeners == -1 && PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  LeafClasses::get().listeners = listeners;
  Py_RETURN_NONE;
}

// switch_leaves(on) -> whether they were on
inline PyObject* switch_leaves(PyObject*, PyObject* on) {
  auto& classes = LeafClasses::get();
  int wanted = PyObject_IsTrue(on);
  return wanted < 0 ? nullptr : PyBool_FromLong(classes.on.exchange(wanted != 0 && classes.leaf != nullptr));
}

// leaf_hits() -> how many operators were served
inline PyObject* leaf_hits(PyObject*, PyObject*) {
  return PyLong_FromLongLong(LeafClasses::get().hits);
}

inline PyMethodDef LEAF_FUNCTIONS[] = {
    {"serve_leaves", serve_leaves, METH_VARARGS, nullptr},
    {"serve_stream", serve_stream, METH_O, nullptr},
    {"forget_leaves", forget_leaves, METH_NOARGS, nullptr},
    {"listen_to_leaves", listen_to_leaves, METH_O, nullptr},
    {"switch_leaves", switch_leaves, METH_O, nullptr},
    {"leaf_hits", leaf_hits, METH_NOARGS, nullptr},
    {nullptr}};

} // namespace subclass_aot
