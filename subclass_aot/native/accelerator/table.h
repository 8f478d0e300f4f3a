// A table compares the tensors of a call with those of the call that was traced, and reads their leaves. The reference is
// the code that `guards/tensor_guards.py` generates, around torch's own `TensorGuards`.
#pragma once

#include "common.h"
#include "seen.h"

namespace subclass_aot {

// The keys by which operators find kernels in this thread: two that agree in them are the same to a program.
inline uint64_t keys_of(const c10::TensorImpl* impl, const c10::impl::LocalDispatchKeySet& local) {
  return ((impl->key_set() | local.included_) - local.excluded_).raw_repr();
}

// The metadata of one tensor: what torch's `TensorGuards` compares.
struct Metadata {
  PyTypeObject* cls;
  uint64_t keys;
  caffe2::TypeMeta dtype;
  c10::Device device{c10::kCPU};
  c10::SmallVector<int64_t, 5> size, stride; // -1 may be anything
  bool requires_grad;
  uint32_t number; // among the tensors of the call

  bool fits(PyObject* object, const c10::impl::LocalDispatchKeySet& local) const {
    if (Py_TYPE(object) != cls) {
      return false;
    }
    const at::Tensor& tensor = tensor_of(object);
    auto* impl = tensor.unsafeGetTensorImpl();
    if (keys_of(impl, local) != keys || impl->dtype() != dtype || impl->device() != device ||
        impl->requires_grad() != requires_grad || impl->has_symbolic_sizes_strides()) {
      return false;
    }
    auto now = impl->sizes();
    if (now.size() != size.size()) {
      return false;
    }
    auto strides = impl->strides();
    for (size_t i = 0; i < now.size(); i++) {
      if ((now[i] != size[i] && size[i] != -1) || (strides[i] != stride[i] && stride[i] != -1)) {
        return false;
      }
    }
    return true;
  }
};

// One tensor, and what it is made of.
struct Expected {
  Metadata metadata;
  int is_leaf = -1; // -1 may be either
  bool is_wrapper = false;
  std::vector<Ref> names; // of inner tensors
  std::vector<Expected> inner;
  std::vector<std::pair<Ref, Ref>> constants; // attributes, and what they are
  std::vector<Ref> absent; // attributes that are None

  int visit(visitproc visit, void* arg) const {
    for (auto& [name, constant] : constants) {
      Py_VISIT(constant.get());
    }
    for (auto& part : inner) {
      if (int result = part.visit(visit, arg)) {
        return result;
      }
    }
    return 0;
  }
};

class Table {
 public:
  // The leaves in a new list, or None where something is not as it was: of values in a tuple or a list, and others.
  Ref call(PyObject* const* args, size_t count) {
    TORCH_CHECK_TYPE(
        count >= 1 && (PyTuple_Check(args[0]) || PyList_Check(args[0])),
        "a table takes values in a tuple or a list, and others");
    auto** given = PySequence_Fast_ITEMS(args[0]);
    PyObject* const* others = args + 1;
    if (static_cast<size_t>(PySequence_Fast_GET_SIZE(args[0])) != values_.size() || count - 1 != others_.size()) {
      return Ref::of(Py_None);
    }
    // An attribute may run code of the user's, and that what is being checked here: it gets marks of its own.
    std::unique_ptr<Seen> own;
    if (busy_) {
      own = std::make_unique<Seen>(tensors_);
    }
    bool before = std::exchange(busy_, true);
    auto free = c10::make_scope_exit([&] { busy_ = before; });
    Filling list(checked(PyList_New(static_cast<Py_ssize_t>(leaves_))));
    Walk walk{
        c10::impl::tls_local_dispatch_key_set(), own ? *own : seen_, PySequence_Fast_ITEMS(list.get()), {}};
    walk.seen.begin();
    for (size_t i = 0; i < values_.size(); i++) {
      if (i + AHEAD < values_.size()) {
        fetch(given[i + AHEAD], values_[i + AHEAD].metadata);
      }
      if (!read(given[i], values_[i], walk)) {
        return Ref::of(Py_None);
      }
    }
    for (size_t i = 0; i < others_.size(); i++) {
      if (i + AHEAD < others_.size()) {
        fetch(others[i + AHEAD], others_[i + AHEAD]);
      }
      if (!fits(others[i], others_[i], walk)) {
        return Ref::of(Py_None);
      }
    }
    return list.full();
  }

  int visit(visitproc visit, void* arg) const {
    Py_VISIT(same_.get());
    for (auto& cls : classes_) {
      Py_VISIT(cls.get());
    }
    for (auto& expected : values_) {
      if (int result = expected.visit(visit, arg)) {
        return result;
      }
    }
    return 0;
  }

  // Table(values, descriptions, others, sizes, strides, same): see `_accelerator.pyi`.
  static std::unique_ptr<Table> make(PyObject* args) {
    PyObject *values, *descriptions, *others, *sizes, *strides, *same;
    parsed(PyArg_ParseTuple(
        args, "O!O!O!O!O!O:Table", &PyTuple_Type, &values, &PyTuple_Type, &descriptions, &PyTuple_Type, &others,
        &PyTuple_Type, &sizes, &PyTuple_Type, &strides, &same));
    Py_ssize_t count = PyTuple_GET_SIZE(values), more = PyTuple_GET_SIZE(others);
    TORCH_CHECK_TYPE(
        PyTuple_GET_SIZE(descriptions) == count && PyTuple_GET_SIZE(sizes) == more && PyTuple_GET_SIZE(strides) == more,
        "each value has a description, and each other tensor its size and stride");
    auto table = std::make_unique<Table>();
    table->same_ = Ref::of(same);
    Numbers numbers;
    std::vector<Ref> kept; // inner tensors, until all numbers are given
    for (Py_ssize_t i = 0; i < count; i++) {
      table->values_.push_back(
          table->expect(PyTuple_GET_ITEM(values, i), PyTuple_GET_ITEM(descriptions, i), numbers, kept));
    }
    for (Py_ssize_t i = 0; i < more; i++) {
      Metadata metadata = table->metadata_of(PyTuple_GET_ITEM(others, i), numbers);
      auto size = integers(PyTuple_GET_ITEM(sizes, i)), stride = integers(PyTuple_GET_ITEM(strides, i));
      TORCH_CHECK_VALUE(
          size.size() == metadata.size.size() && stride.size() == metadata.size.size(), "one number for each dim");
      metadata.size = std::move(size);
      metadata.stride = std::move(stride);
      table->others_.push_back(std::move(metadata));
    }
    table->tensors_ = numbers.given();
    table->seen_ = Seen(table->tensors_);
    return table;
  }

 private:
  static constexpr size_t AHEAD = 4; // how many tensors ahead the processor is told to fetch

  std::vector<Expected> values_;
  std::vector<Metadata> others_;
  std::vector<Ref> classes_; // which metadata borrows
  size_t leaves_ = 0, tensors_ = 0;
  Ref same_; // compares constants that are not the same object
  Seen seen_{0};
  bool busy_ = false;

  // What one call goes through.
  struct Walk {
    c10::impl::LocalDispatchKeySet local;
    Seen& seen;
    PyObject** leaves; // gets new references
    std::vector<Ref> wrappers; // inner ones, held until all is read: no other object may come to stand where one was
  };

  static void fetch(PyObject* object, const Metadata& metadata) {
    if (Py_TYPE(object) == metadata.cls) {
      __builtin_prefetch(tensor_of(object).unsafeGetTensorImpl());
    }
  }

  static bool fits(PyObject* object, const Metadata& metadata, Walk& walk) {
    return metadata.fits(object, walk.local) && walk.seen.number_of(object) == metadata.number;
  }

  bool read(PyObject* object, const Expected& expected, Walk& walk) const {
    if (!fits(object, expected.metadata, walk)) {
      return false;
    }
    if (expected.is_leaf != -1 && tensor_of(object).is_leaf() != static_cast<bool>(expected.is_leaf)) {
      return false;
    }
    if (!expected.is_wrapper) {
      *walk.leaves++ = Py_NewRef(object);
      return true;
    }
    if (!has_context(object, expected)) {
      return false;
    }
    for (size_t i = 0; i < expected.inner.size(); i++) {
      Ref inner = attribute(object, expected.names[i].get());
      if (!inner || !read(inner.get(), expected.inner[i], walk)) {
        return false;
      }
      if (expected.inner[i].is_wrapper) {
        walk.wrappers.push_back(std::move(inner));
      }
    }
    return true;
  }

  bool has_context(PyObject* object, const Expected& expected) const {
    for (auto& [name, constant] : expected.constants) {
      Ref now = attribute(object, name.get());
      if (!now || !is(now.get(), constant.get())) {
        return false;
      }
    }
    for (auto& name : expected.absent) {
      if (attribute(object, name.get()).get() != Py_None) {
        return false;
      }
    }
    return true;
  }

  bool is(PyObject* now, PyObject* constant) const {
    return now == constant ||
        checked(PyObject_CallFunctionObjArgs(same_.get(), now, constant, nullptr)).get() == Py_True;
  }

  // What an attribute is; nothing where there is none.
  static Ref attribute(PyObject* object, PyObject* name) {
    Ref found(PyObject_GetAttr(object, name));
    if (!found) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        throw python_error();
      }
      PyErr_Clear();
    }
    return found;
  }

  // ---- making a table of examples

  Metadata metadata_of(PyObject* example, Numbers& numbers) {
    TORCH_CHECK_TYPE(THPVariable_Check(example), "a table is of tensors, not of ", Py_TYPE(example)->tp_name);
    const at::Tensor& tensor = tensor_of(example);
    auto* impl = tensor.unsafeGetTensorImpl();
    TORCH_CHECK_TYPE(
        tensor.layout() == c10::kStrided && !impl->has_symbolic_sizes_strides(), "a table is of strided tensors");
    Metadata metadata;
    metadata.cls = Py_TYPE(example);
    metadata.keys = keys_of(impl, c10::impl::tls_local_dispatch_key_set());
    metadata.dtype = impl->dtype();
    metadata.device = impl->device();
    metadata.size.assign(impl->sizes().begin(), impl->sizes().end());
    metadata.stride.assign(impl->strides().begin(), impl->strides().end());
    metadata.requires_grad = impl->requires_grad();
    metadata.number = numbers.number_of(example);
    auto* cls = reinterpret_cast<PyObject*>(metadata.cls);
    if (std::none_of(classes_.begin(), classes_.end(), [&](const Ref& known) { return known.get() == cls; })) {
      classes_.push_back(Ref::of(cls));
    }
    return metadata;
  }

  // description: (is_leaf or None, None) of a leaf; of a wrapper (is_leaf or None, (names, descriptions, constants as a
  // dict, absent names))
  Expected expect(PyObject* example, PyObject* description, Numbers& numbers, std::vector<Ref>& kept) {
    PyObject *is_leaf, *wrapper;
    parsed(PyArg_ParseTuple(description, "OO", &is_leaf, &wrapper));
    Expected expected;
    expected.metadata = metadata_of(example, numbers);
    expected.is_leaf = is_leaf == Py_None ? -1 : is_leaf == Py_True;
    if (wrapper == Py_None) {
      leaves_++;
      return expected;
    }
    PyObject *names, *descriptions, *constants, *absent;
    parsed(PyArg_ParseTuple(
        wrapper, "O!O!O!O!", &PyTuple_Type, &names, &PyTuple_Type, &descriptions, &PyDict_Type, &constants,
        &PyTuple_Type, &absent));
    expected.is_wrapper = true;
    PyObject *name, *constant;
    for (Py_ssize_t at = 0; PyDict_Next(constants, &at, &name, &constant);) {
      expected.constants.emplace_back(interned(name), Ref::of(constant));
    }
    expected.absent = interned_all(absent);
    expected.names = interned_all(names);
    TORCH_CHECK_TYPE(expected.names.size() == static_cast<size_t>(PyTuple_GET_SIZE(descriptions)),
                     "each inner tensor has a description");
    for (size_t i = 0; i < expected.names.size(); i++) {
      Ref inner = checked(PyObject_GetAttr(example, expected.names[i].get()));
      expected.inner.push_back(expect(inner.get(), PyTuple_GET_ITEM(descriptions, i), numbers, kept));
      kept.push_back(std::move(inner));
    }
    return expected;
  }
};

} // namespace subclass_aot
