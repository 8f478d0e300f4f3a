// One call of an operator that a kernel for the Python key serves: wrappers are taken apart, the operator runs on each
// inner tensor, and its results are wrapped. The reference is the code that `wrapper/serve/planner.py` generates.
#pragma once

#include "effects.h"
#include "served.h"

namespace subclass_aot {

// One call of an operator on wrappers of one class.
class Call {
 public:
  Call(const Effects& effects, const Served& served, torch::jit::Stack& stack)
      : effects_(effects), served_(served), stack_(stack), first_(stack.size() - effects.arguments) {}

  // Whether the arguments may be served here, as far as can be told without Python.
  bool is_plain() {
    for (size_t i = 0; i < effects_.arguments; i++) {
      const c10::IValue& value = stack_[first_ + i];
      if (value.isTensor()) {
        auto* impl = value.unsafeToTensorImpl();
        if (impl->key_set().has_any(STRANGE)) {
          return false;
        }
        if (impl->is_python_dispatch()) {
          wrappers_.push_back(i);
        }
      } else if (value.isSymInt() || value.isSymFloat() || value.isSymBool() || value.isSymIntList()) {
        return false;
      }
    }
    // What is written or viewed has as many values as there are inner tensors: a dense tensor cannot have that.
    for (size_t i : effects_.written) {
      if (!is_wrapper(i)) {
        return false;
      }
    }
    return !wrappers_.empty() && (effects_.viewed < 0 || is_wrapper(effects_.viewed));
  }

  // Whether Python has said how this class is served, and each wrapper holds what it should. With the GIL.
  bool take_apart() {
    PyObject* proto = object_of(impl_at(wrappers_[0]));
    const auto* found = proto == nullptr ? nullptr : served_.find(Py_TYPE(proto));
    if (found == nullptr || impl_at(wrappers_[0])->has_symbolic_sizes_strides()) {
      return false;
    }
    static PyObject* name = PyUnicode_InternFromString("__torch_dispatch__");
    if (_PyType_Lookup(Py_TYPE(proto), name) != (*found)->dispatch.get()) {
      return false;
    }
    entry_ = *found;
    Ref table(PyObject_GenericGetDict(proto, nullptr));
    if (!find_fields(table.get()) || !take(table.get()) || (entry_->lines_up && !lines_up())) {
      return false;
    }
    for (size_t w = 1; w < wrappers_.size(); w++) {
      PyObject* wrapper = object_of(impl_at(wrappers_[w]));
      if (wrapper == nullptr || Py_TYPE(wrapper) != entry_->cls) {
        return false;
      }
      Ref other(PyObject_GenericGetDict(wrapper, nullptr));
      if (!take(other.get()) || !same_context(table.get(), other.get())) { // of the same one, too: NaN differs
        return false;
      }
    }
    for (size_t i : effects_.written) {
      if (!is_whole(stack_[first_ + i].toTensor())) {
        return false;
      }
    }
    for (size_t i = 0; i < effects_.arguments; i++) {
      if (stack_[first_ + i].isTensor() && !is_wrapper(i)) {
        PyObject* dense = object_of(impl_at(i));
        if (dense != nullptr && !THPVariable_CheckExact(dense)) {
          return false;
        }
      }
    }
    return true;
  }

  // Runs the operator on the inner tensors, field by field. Without the GIL.
  void run(const c10::OperatorHandle& op) {
    size_t fields = fields_.size();
    results_.resize(fields * effects_.results);
    torch::jit::Stack inner;
    inner.reserve(std::max(effects_.arguments, effects_.results) + 1);
    c10::impl::ExcludeDispatchKeyGuard guard(entry_->heeds_lazy_bits ? ABOVE_LAZY_BITS : ABOVE);
    for (size_t f = 0; f < fields; f++) {
      inner.clear();
      size_t w = 0;
      for (size_t i = 0; i < effects_.arguments; i++) {
        if (w < wrappers_.size() && wrappers_[w] == i) {
          inner.emplace_back(std::move(inner_[w * fields + f]));
          w++;
        } else {
          inner.push_back(stack_[first_ + i]);
        }
      }
      op.callBoxed(&inner);
      for (size_t r = 0; r < effects_.results; r++) {
        results_[r * fields + f] = std::move(inner[r]).toTensor();
      }
    }
  }

  void return_written() {
    c10::SmallVector<c10::IValue, 4> written;
    for (size_t i : effects_.written) {
      written.push_back(stack_[first_ + i]);
    }
    torch::jit::drop(stack_, effects_.arguments);
    for (auto& value : written) {
      stack_.push_back(std::move(value));
    }
  }

  // Makes wrappers of the results. With the GIL.
  void return_wrapped() {
    c10::SmallVector<at::Tensor, 4> made;
    for (size_t r = 0; r < effects_.results; r++) {
      at::Tensor* inner = &results_[r * fields_.size()];
      made.push_back(inner->defined() ? wrap(inner, r == 0 && effects_.viewed >= 0) : at::Tensor());
    }
    torch::jit::drop(stack_, effects_.arguments);
    for (auto& tensor : made) {
      stack_.push_back(std::move(tensor));
    }
  }

 private:
  c10::TensorImpl* impl_at(size_t argument) const {
    return stack_[first_ + argument].unsafeToTensorImpl();
  }

  bool is_wrapper(size_t argument) const {
    return std::find(wrappers_.begin(), wrappers_.end(), argument) != wrappers_.end();
  }

  // Finds which fields the first wrapper has, by its `__dict__`.
  bool find_fields(PyObject* table) {
    if (table == nullptr) {
      PyErr_Clear();
      return false;
    }
    for (size_t f = 0; f < entry_->names.size(); f++) {
      if (!entry_->optional[f] || PyDict_GetItemWithError(table, entry_->names[f].get()) != nullptr) {
        fields_.push_back(f);
      }
    }
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return false;
    }
    return !fields_.empty();
  }

  // Whether each inner tensor of the one wrapper has, along each dim, the size that that has, or 1; along the dim that
  // the operator names, no other one.
  bool lines_up() const {
    auto whole = impl_at(wrappers_[0])->sizes();
    auto dims = static_cast<int64_t>(whole.size());
    int64_t along = -1;
    if (entry_->along >= 0) {
      const c10::IValue& dim = stack_[first_ + entry_->along];
      if (!dim.isInt() || dim.toInt() < -dims || dim.toInt() >= dims) {
        return false;
      }
      along = dim.toInt() < 0 ? dim.toInt() + dims : dim.toInt();
    }
    for (auto& tensor : inner_) {
      auto sizes = tensor.sizes();
      if (sizes.size() != whole.size()) {
        return false;
      }
      for (int64_t d = 0; d < dims; d++) {
        if (sizes[d] != whole[d] && (sizes[d] != 1 || d == along)) {
          return false;
        }
      }
    }
    return true;
  }

  // Reads the inner tensors out of a wrapper's `__dict__`. One that has others than the first goes to Python.
  bool take(PyObject* table) {
    if (table == nullptr) {
      PyErr_Clear();
      return false;
    }
    for (size_t f : fields_) {
      PyObject* value = PyDict_GetItemWithError(table, entry_->names[f].get());
      if (value == nullptr) {
        PyErr_Clear();
        return false;
      }
      // A dense tensor without any code of its own, or a wrapper that is served, too.
      if (!THPVariable_CheckExact(value) && served_.find(Py_TYPE(value)) == nullptr) {
        return false;
      }
      const at::Tensor& tensor = tensor_of(value);
      auto* impl = tensor.unsafeGetTensorImpl();
      if (impl->key_set().has_any(STRANGE) || impl->has_symbolic_sizes_strides()) {
        return false;
      }
      inner_.push_back(tensor);
    }
    for (auto& name : entry_->attributes) {
      if (PyDict_GetItemWithError(table, name.get()) == nullptr) {
        PyErr_Clear();
        return false;
      }
    }
    size_t known = fields_.size() + entry_->attributes.size();
    if (static_cast<size_t>(PyDict_GET_SIZE(table)) == known) {
      return true;
    }
    for (size_t f = 0; f < entry_->names.size(); f++) { // in order, as `fields_` are
      if (!std::binary_search(fields_.begin(), fields_.end(), f) &&
          PyDict_Contains(table, entry_->names[f].get()) != 0) {
        return false;
      }
    }
    return PyDict_Contains(table, entry_->origin.get()) == 0;
  }

  // Whether a write reaches nothing that is not in the wrapper. See Note [Fields shared by views] in
  // `wrapper/layout/shared_fields.py`: this is `shared_fields` there, for wrappers without the attribute that says more.
  bool is_whole(const at::Tensor& wrapper) const {
    auto* meta = torch::autograd::impl::get_view_autograd_meta(wrapper);
    if (meta == nullptr || !meta->has_bw_view()) {
      return true;
    }
    const at::Tensor& base = meta->get_backward_view().base_;
    PyObject* whole = object_of(base.unsafeGetTensorImpl());
    if (whole == nullptr) {
      return false;
    }
    if (Py_TYPE(whole) != entry_->cls) {
      return true;
    }
    Ref table(PyObject_GenericGetDict(whole, nullptr));
    Ref own(PyObject_GenericGetDict(object_of(wrapper.unsafeGetTensorImpl()), nullptr));
    if (!table || !own || PyDict_Contains(table.get(), entry_->origin.get()) != 0) {
      PyErr_Clear();
      return false;
    }
    for (size_t f : fields_) {
      PyObject* field = PyDict_GetItemWithError(table.get(), entry_->names[f].get());
      PyObject* part = PyDict_GetItemWithError(own.get(), entry_->names[f].get());
      if (field == nullptr || part == nullptr || !THPVariable_Check(field)) {
        PyErr_Clear();
        return false;
      }
      if (tensor_of(field).unsafeGetTensorImpl()->has_symbolic_sizes_strides() ||
          tensor_of(part).numel() * base.numel() > tensor_of(field).numel() * wrapper.numel()) {
        return false;
      }
    }
    return true;
  }

  // Whether the generated code would find no difference; where it would, or asking fails, it is to say so.
  bool same_context(PyObject* table, PyObject* other) const {
    for (auto& name : entry_->attributes) {
      Ref mine = Ref::of(PyDict_GetItemWithError(table, name.get()));
      Ref theirs = Ref::of(PyDict_GetItemWithError(other, name.get()));
      if (!mine || !theirs) {
        return false;
      }
      if (mine.get() == theirs.get() && is_itself(mine.get())) {
        continue;
      }
      Ref differ(PyObject_RichCompare(theirs.get(), mine.get(), Py_NE));
      int is_true = differ ? PyObject_IsTrue(differ.get()) : -1;
      if (is_true < 0) {
        forget_error();
      }
      if (is_true != 0) {
        return false;
      }
    }
    return true;
  }

  // Whether an object is known to be equal to itself; not a number is not.
  static bool is_itself(PyObject* value) {
    return value == Py_None || PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyBool_Check(value) ||
        THPDtype_Check(value);
  }

  // Whether the metadata in C++ are what Python sees of a tensor.
  bool is_open(const at::Tensor& tensor) const {
    auto* impl = tensor.unsafeGetTensorImpl();
    if (impl->layout() != c10::kStrided || impl->key_set().has_any(STRANGE) || impl->has_symbolic_sizes_strides() ||
        impl->is_nested()) {
      return false;
    }
    if (!impl->is_python_dispatch()) {
      return true;
    }
    PyObject* object = object_of(impl);
    return object != nullptr && served_.find(Py_TYPE(object)) != nullptr;
  }

  at::Tensor wrap(at::Tensor* inner, bool is_view) const {
    const auto* viewed = is_view ? impl_at(effects_.viewed) : nullptr;
    Ref proto = Ref::of(object_of(impl_at(wrappers_[0])));
    if (!entry_->keeps_metadata && entry_->asks_outer) {
      return wrap_by_rule(proto.get(), inner, viewed);
    }
    if (!entry_->keeps_metadata && !is_open(inner[0])) {
      return wrap_in_python(proto.get(), inner, viewed);
    }
    const auto* like = entry_->keeps_metadata ? impl_at(wrappers_[0]) : inner[0].unsafeGetTensorImpl();
    return wrap_like(proto.get(), inner, viewed, OuterMetadata(*like));
  }

  // The class has a rule for the metadata of its wrappers: it is asked, or it has been, of the same metadata inside.
  at::Tensor wrap_by_rule(PyObject* proto, at::Tensor* inner, const c10::TensorImpl* viewed) const {
    MetadataKey key;
    std::vector<Ref> held;
    if (!entry_->may_cache || !entry_->outer_cache.on(entry_->cls) || !metadata_key(proto, inner, key, held)) {
      return wrap_in_python(proto, inner, viewed);
    }
    if (const OuterMetadata* found = entry_->outer_cache.find(key)) {
      OuterMetadata metadata = *found; // whoever runs meanwhile may change the table
      return wrap_like(proto, inner, viewed, metadata);
    }
    auto version = entry_->outer_cache.version(); // of which that is said, whoever changes the class meanwhile
    at::Tensor made = wrap_in_python(proto, inner, viewed);
    Ref object = Ref::of(object_of(made.unsafeGetTensorImpl()));
    PyObject* is_new = entry_->outer_cache.is_new() ? Py_True : Py_False;
    Ref may = kept(PyObject_CallFunctionObjArgs(entry_->may_cache.get(), object.get(), is_new, nullptr));
    if (may.get() == Py_True && entry_->cls->tp_version_tag == version && is_open(made)) {
      entry_->outer_cache.add(key, *made.unsafeGetTensorImpl());
    }
    return made;
  }

  // The metadata of results inside, and the context that they get; false where that is not all that a rule may see.
  bool metadata_key(PyObject* proto, const at::Tensor* inner, MetadataKey& key, std::vector<Ref>& held) const {
    for (size_t i = 0; i < fields_.size(); i++) {
      auto* impl = inner[i].unsafeGetTensorImpl();
      if (!inner[i].defined() || impl->is_python_dispatch() || !is_open(inner[i])) {
        return false;
      }
      key.numbers.push_back(static_cast<int64_t>(fields_[i]));
      key.add(*impl);
    }
    if (entry_->attributes.empty()) {
      return true;
    }
    Ref table = kept(PyObject_GenericGetDict(proto, nullptr));
    for (auto& name : entry_->attributes) {
      held.push_back(Ref::of(PyDict_GetItemWithError(table.get(), name.get())));
      if (!held.back() || !key.add(held.back().get())) {
        PyErr_Clear();
        return false;
      }
    }
    return true;
  }

  at::Tensor wrap_like(PyObject* proto, at::Tensor* inner, const c10::TensorImpl* viewed, const OuterMetadata& like) const {
    c10::Storage storage = viewed != nullptr
        ? viewed->unsafe_storage()
        : outer_storage(
              at::detail::computeStorageNbytes(like.size, like.stride, like.dtype.itemsize(), like.offset), like.device);
    at::Tensor made = outer_tensor(
        std::move(storage), outer_keys(like.dtype, like.device), like.dtype, like.size, like.stride, like.offset);
    Ref object = kept(THPVariable_Wrap(made, entry_->cls));
    Ref table = kept(PyObject_GenericGetDict(object.get(), nullptr));
    for (size_t i = 0; i < fields_.size(); i++) {
      Ref value = kept(THPVariable_Wrap(std::move(inner[i])));
      set(table.get(), entry_->names[fields_[i]].get(), value.get());
    }
    if (!entry_->attributes.empty()) {
      Ref from = kept(PyObject_GenericGetDict(proto, nullptr));
      for (auto& name : entry_->attributes) {
        Ref value = Ref::of(PyDict_GetItemWithError(from.get(), name.get()));
        if (!value) { // somebody took it away meanwhile
          value = kept(PyObject_GetAttr(proto, name.get()));
        }
        set(table.get(), name.get(), value.get());
      }
    }
    return made;
  }

  at::Tensor wrap_in_python(PyObject* proto, at::Tensor* inner, const c10::TensorImpl* viewed) const {
    c10::impl::ExcludeDispatchKeyGuard guard(entry_->heeds_lazy_bits ? ABOVE_LAZY_BITS : ABOVE);
    Filling arguments(kept(PyTuple_New(static_cast<Py_ssize_t>(entry_->names.size()) + 1)));
    PyTuple_SET_ITEM(arguments.get(), 0, Py_NewRef(proto));
    for (size_t f = 0, i = 0; f < entry_->names.size(); f++) {
      bool is_there = i < fields_.size() && fields_[i] == f;
      Ref value = is_there ? kept(THPVariable_Wrap(inner[i++])) : Ref::of(Py_None);
      PyTuple_SET_ITEM(arguments.get(), f + 1, value.release());
    }
    Ref made = kept(PyObject_CallObject(entry_->otherwise.get(), arguments.full().get()));
    at::Tensor tensor = tensor_of(made.get());
    if (viewed != nullptr) {
      tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(viewed->unsafe_storage());
    }
    return tensor;
  }

  static void set(PyObject* table, PyObject* name, PyObject* value) {
    if (PyDict_SetItem(table, name, value) < 0) {
      throw_raised();
    }
  }

  const Effects& effects_;
  const Served& served_;
  torch::jit::Stack& stack_;
  size_t first_;
  c10::SmallVector<size_t, 8> wrappers_; // arguments that are wrappers
  std::shared_ptr<const Entry> entry_;
  c10::SmallVector<size_t, 8> fields_; // those that the wrappers have, in order
  c10::SmallVector<at::Tensor, 8> inner_; // by wrapper and field
  c10::SmallVector<at::Tensor, 8> results_; // by result and field
};

} // namespace subclass_aot
