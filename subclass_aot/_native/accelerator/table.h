// A table compares the tensors of a call with those of the call that was traced, and reads their leaves. The twin is the
// code that `guards/tensor_guards.py` generates, around torch's own `TensorGuards`.
#pragma once

#include "common.h"

namespace subclass_aot {

// Gives the tensors of one call numbers, and finds those that come twice. One that did so before must do so again.
class Seen {
 public:
  explicit Seen(size_t count) {
    size_t size = 16;
    while (size < 2 * count) {
      size *= 2;
    }
    slots_.resize(size);
  }

  void begin() {
    if (++now_ == 0) { // after 2^32 calls: what is left of the first ones must not look like this one's
      std::fill(slots_.begin(), slots_.end(), Slot{});
      now_ = 1;
    }
    next_ = 0;
  }

  // The number of an object: that of the first time where it comes again.
  uint32_t number_of(const void* object) {
    size_t mask = slots_.size() - 1;
    size_t at = (reinterpret_cast<uintptr_t>(object) >> 4) * 0x9E3779B97F4A7C15ull >> 20 & mask;
    while (slots_[at].when == now_ && slots_[at].object != object) {
      at = (at + 1) & mask;
    }
    if (slots_[at].when != now_) {
      slots_[at] = {object, now_, next_};
    }
    next_++;
    return slots_[at].number;
  }

 private:
  struct Slot {
    const void* object = nullptr;
    uint32_t when = 0, number = 0;
  };
  std::vector<Slot> slots_;
  uint32_t now_ = 0, next_ = 0;
};

// The keys by which operators find kernels in this thread: two that agree in them are the same to a program.
inline uint64_t keys_of(const c10::TensorImpl* impl, const c10::impl::LocalDispatchKeySet& local) {
  return ((impl->key_set() | local.included_) - local.excluded_).raw_repr();
}

// What one tensor looks like: what torch's `TensorGuards` compares.
struct Look {
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
  Look look;
  int is_leaf = -1; // -1 may be either
  bool is_wrapper = false;
  int64_t offset = 0; // compared where it is not zero
  std::vector<Ref> names; // of inner tensors
  std::vector<Expected> inner;
  std::vector<std::pair<Ref, Ref>> constants; // attributes, and what they are
  std::vector<Ref> absent; // attributes that are None
  Py_ssize_t attributes = -1; // how many there are, where others may matter
  Ref check; // asks the class for its context
};

struct Table {
  std::vector<Expected> values;
  std::vector<Look> others;
  size_t leaves = 0, tensors = 0;
  Ref same; // compares constants that are not the same object
  Seen seen{0};
  bool busy = false;

  bool is(PyObject* now, PyObject* constant) const {
    if (now == constant) {
      return true;
    }
    Ref answer = checked(PyObject_CallFunctionObjArgs(same.get(), now, constant, nullptr));
    return answer.get() == Py_True;
  }

  // What one call goes through.
  struct Walk {
    c10::impl::LocalDispatchKeySet local;
    Seen& seen;
    PyObject** leaves; // gets new references
    std::vector<Ref> wrappers; // inner ones, held until all is read: no other object may come to stand where one was
  };

  bool read(PyObject* object, const Expected& expected, Walk& walk) const {
    if (!expected.look.fits(object, walk.local) || walk.seen.number_of(object) != expected.look.number) {
      return false;
    }
    if (expected.is_leaf != -1 && tensor_of(object).is_leaf() != static_cast<bool>(expected.is_leaf)) {
      return false;
    }
    if (!expected.is_wrapper) {
      *walk.leaves++ = Py_NewRef(object);
      return true;
    }
    if (expected.offset != 0 && tensor_of(object).storage_offset() != expected.offset) {
      return false;
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
    if (expected.check) {
      Ref answer = checked(PyObject_CallOneArg(expected.check.get(), object));
      if (answer.get() != Py_True) {
        return false;
      }
    }
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
    if (expected.attributes != -1) {
      Ref table = checked(PyObject_GenericGetDict(object, nullptr));
      return PyDict_GET_SIZE(table.get()) == expected.attributes;
    }
    return true;
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

  // The leaves in a new list, or None where something is not as it was.
  Ref run(PyObject* const* given, size_t count, PyObject* const* rest, size_t more) {
    if (count != values.size() || more != others.size()) {
      return Ref::of(Py_None);
    }
    // An attribute may run code of the user's, and that what is being checked here: it gets marks of its own.
    std::unique_ptr<Seen> own;
    if (busy) {
      own = std::make_unique<Seen>(tensors);
    }
    bool before = std::exchange(busy, true);
    auto free = c10::make_scope_exit([&] { busy = before; });
    Ref list = checked(PyList_New(static_cast<Py_ssize_t>(leaves)));
    Seen& marks = own ? *own : seen;
    Walk walk{c10::impl::tls_local_dispatch_key_set(), marks, PySequence_Fast_ITEMS(list.get()), {}};
    marks.begin();
    for (size_t i = 0; i < count; i++) {
      if (i + AHEAD < count && Py_TYPE(given[i + AHEAD]) == values[i + AHEAD].look.cls) {
        __builtin_prefetch(tensor_of(given[i + AHEAD]).unsafeGetTensorImpl());
      }
      if (!read(given[i], values[i], walk)) {
        return Ref::of(Py_None);
      }
    }
    for (size_t i = 0; i < more; i++) {
      if (i + AHEAD < more && Py_TYPE(rest[i + AHEAD]) == others[i + AHEAD].cls) {
        __builtin_prefetch(tensor_of(rest[i + AHEAD]).unsafeGetTensorImpl());
      }
      if (!others[i].fits(rest[i], walk.local) || marks.number_of(rest[i]) != others[i].number) {
        return Ref::of(Py_None);
      }
    }
    return list;
  }

  static constexpr size_t AHEAD = 4; // how many tensors ahead the processor is told to fetch
};

// ---- making a table of examples

inline Look look_of(PyObject* example, Seen& seen) {
  TORCH_CHECK_TYPE(THPVariable_Check(example), "a table is of tensors, not of ", Py_TYPE(example)->tp_name);
  const at::Tensor& tensor = tensor_of(example);
  auto* impl = tensor.unsafeGetTensorImpl();
  TORCH_CHECK_TYPE(
      tensor.layout() == c10::kStrided && !impl->has_symbolic_sizes_strides(), "a table is of strided tensors");
  Look look;
  look.cls = Py_TYPE(example);
  look.keys = keys_of(impl, c10::impl::tls_local_dispatch_key_set());
  look.dtype = impl->dtype();
  look.device = impl->device();
  look.size.assign(impl->sizes().begin(), impl->sizes().end());
  look.stride.assign(impl->strides().begin(), impl->strides().end());
  look.requires_grad = impl->requires_grad();
  look.number = seen.number_of(example);
  return look;
}

struct TableObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Table* table;
  std::vector<Ref>* kept; // classes, which looks borrow
};

// description: (is_leaf or None, None) of a leaf; of a wrapper (is_leaf or None, (names, descriptions, constants as a
// dict, absent names, offset, number of attributes or -1, check or None))
inline Expected expected_of(PyObject* example, PyObject* description, Table& table, Seen& seen, std::vector<Ref>& kept) {
  PyObject *is_leaf, *wrapper;
  if (!PyArg_ParseTuple(description, "OO", &is_leaf, &wrapper)) {
    throw python_error();
  }
  Expected expected;
  expected.look = look_of(example, seen);
  kept.push_back(Ref::of(reinterpret_cast<PyObject*>(expected.look.cls)));
  table.tensors++;
  expected.is_leaf = is_leaf == Py_None ? -1 : is_leaf == Py_True;
  if (wrapper == Py_None) {
    table.leaves++;
    return expected;
  }
  PyObject *names, *descriptions, *constants, *absent, *check;
  Py_ssize_t offset = 0;
  if (!PyArg_ParseTuple(
          wrapper, "O!O!O!O!nnO", &PyTuple_Type, &names, &PyTuple_Type, &descriptions, &PyDict_Type, &constants,
          &PyTuple_Type, &absent, &offset, &expected.attributes, &check)) {
    throw python_error();
  }
  expected.is_wrapper = true;
  expected.offset = offset;
  if (check != Py_None) {
    expected.check = Ref::of(check);
  }
  PyObject *name, *constant;
  for (Py_ssize_t at = 0; PyDict_Next(constants, &at, &name, &constant);) {
    expected.constants.emplace_back(interned(name), Ref::of(constant));
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(absent); i++) {
    expected.absent.push_back(interned(PyTuple_GET_ITEM(absent, i)));
  }
  TORCH_CHECK_TYPE(PyTuple_GET_SIZE(names) == PyTuple_GET_SIZE(descriptions), "each inner tensor has a description");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
    expected.names.push_back(interned(PyTuple_GET_ITEM(names, i)));
    Ref inner = checked(PyObject_GetAttr(example, expected.names.back().get()));
    expected.inner.push_back(expected_of(inner.get(), PyTuple_GET_ITEM(descriptions, i), table, seen, kept));
    kept.push_back(std::move(inner)); // until all numbers are given
  }
  return expected;
}

inline PyObject* run_table(PyObject* self, PyObject* const* args, size_t flags, PyObject*) {
  HANDLE_TH_ERRORS
  Table* table = reinterpret_cast<TableObject*>(self)->table;
  auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  TORCH_CHECK_TYPE(
      table != nullptr && count >= 1 && (PyTuple_Check(args[0]) || PyList_Check(args[0])),
      "a table takes values in a tuple or a list, and others");
  auto values = static_cast<size_t>(PySequence_Fast_GET_SIZE(args[0]));
  return table->run(PySequence_Fast_ITEMS(args[0]), values, args + 1, count - 1).release();
  END_HANDLE_TH_ERRORS
}

// Table(values, descriptions, others, sizes, strides, same): see `_accelerator.pyi`.
inline PyObject* new_table(PyTypeObject* type, PyObject* args, PyObject*) {
  HANDLE_TH_ERRORS
  PyObject *values, *descriptions, *others, *sizes, *strides, *same;
  if (!PyArg_ParseTuple(
          args, "O!O!O!O!O!O:Table", &PyTuple_Type, &values, &PyTuple_Type, &descriptions, &PyTuple_Type, &others,
          &PyTuple_Type, &sizes, &PyTuple_Type, &strides, &same)) {
    return nullptr;
  }
  Py_ssize_t count = PyTuple_GET_SIZE(values), more = PyTuple_GET_SIZE(others);
  TORCH_CHECK_TYPE(
      PyTuple_GET_SIZE(descriptions) == count && PyTuple_GET_SIZE(sizes) == more && PyTuple_GET_SIZE(strides) == more,
      "each value has a description, and each other tensor its size and stride");
  auto table = std::make_unique<Table>();
  auto kept = std::make_unique<std::vector<Ref>>();
  Seen seen(1 << 16);
  seen.begin();
  for (Py_ssize_t i = 0; i < count; i++) {
    table->values.push_back(
        expected_of(PyTuple_GET_ITEM(values, i), PyTuple_GET_ITEM(descriptions, i), *table, seen, *kept));
  }
  for (Py_ssize_t i = 0; i < more; i++) {
    Look look = look_of(PyTuple_GET_ITEM(others, i), seen);
    auto size = integers(PyTuple_GET_ITEM(sizes, i)), stride = integers(PyTuple_GET_ITEM(strides, i));
    TORCH_CHECK_VALUE(size.size() == look.size.size() && stride.size() == look.size.size(), "one number for each dim");
    look.size = std::move(size);
    look.stride = std::move(stride);
    kept->push_back(Ref::of(reinterpret_cast<PyObject*>(look.cls)));
    table->tensors++;
    table->others.push_back(std::move(look));
  }
  table->same = Ref::of(same);
  table->seen = Seen(table->tensors);
  std::vector<Ref> classes; // each once, and no tensor of the example
  for (auto& ref : *kept) {
    bool is_new = PyType_Check(ref.get());
    for (auto& known : classes) {
      is_new = is_new && known.get() != ref.get();
    }
    if (is_new) {
      classes.push_back(Ref::of(ref.get()));
    }
  }
  auto* made = reinterpret_cast<TableObject*>(type->tp_alloc(type, 0));
  if (made != nullptr) {
    made->vectorcall = run_table;
    made->kept = new std::vector<Ref>(std::move(classes));
    made->table = table.release();
  }
  return reinterpret_cast<PyObject*>(made);
  END_HANDLE_TH_ERRORS
}

inline int visit_expected(const Expected& expected, visitproc visit, void* arg) {
  for (auto& [name, constant] : expected.constants) {
    Py_VISIT(constant.get());
  }
  Py_VISIT(expected.check.get());
  for (auto& inner : expected.inner) {
    if (int result = visit_expected(inner, visit, arg)) {
      return result;
    }
  }
  return 0;
}

inline int visit_table(PyObject* self, visitproc visit, void* arg) {
  auto* object = reinterpret_cast<TableObject*>(self);
  Py_VISIT(Py_TYPE(self));
  if (object->table != nullptr) {
    Py_VISIT(object->table->same.get());
    for (auto& cls : *object->kept) {
      Py_VISIT(cls.get());
    }
    for (auto& expected : object->table->values) {
      if (int result = visit_expected(expected, visit, arg)) {
        return result;
      }
    }
  }
  return 0;
}

inline int clear_table(PyObject* self) {
  auto* object = reinterpret_cast<TableObject*>(self);
  delete std::exchange(object->table, nullptr);
  delete std::exchange(object->kept, nullptr);
  return 0;
}

inline void delete_table(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear_table(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

} // namespace subclass_aot
