// Which operators of which classes the kernels for the Python key serve: what Python has found, kept for later calls. All
// of it is read and changed with the GIL held.
#pragma once

#include "outer_cache.h"

#include <atomic>
#include <string>
#include <unordered_map>

namespace subclass_aot {

// The object of a tensor, borrowed; none, where Python has not seen the tensor.
inline PyObject* object_of(const c10::TensorImpl* impl) {
  return impl->pyobj_slot()->load_pyobj();
}

// How one operator on wrappers of one class is served.
struct Entry {
  PyTypeObject* cls; // borrowed: `watch` drops the entry when the class goes
  Ref watch;
  Ref dispatch; // the `__torch_dispatch__` that found this: another one wants to be asked
  std::vector<Ref> names; // inner tensors, in order
  std::vector<bool> optional; // which of them may be absent
  std::vector<Ref> attributes; // context, in order
  Ref origin; // the attribute of views that share fields, which Python serves
  Ref otherwise; // (proto, *inner) -> wrapper, for inner results that do not give the metadata of the wrapper
  Ref may_cache; // (wrapper, whether its class is new) -> whether its metadata may be cached; none, where it never may
  mutable OuterCache outer_cache; // what the rule has said
  bool asks_outer = false; // the class has a rule for the metadata of results, which `otherwise` asks
  bool lines_up = false; // a view, which is the same on each field that has, along each dim, the outer size or 1
  int along = -1; // the argument that names a dim along which each field has to have the outer size, or none
  bool keeps_metadata = false; // the result has the metadata of the first wrapper, whatever its first inner tensor
  bool heeds_lazy_bits = false; // inner operators look at conjugate and negative bits, as the class's rules do

  static void drop(const Entry* entry) {
    Gil gil; // a call that runs may have had it last, in any thread
    delete entry;
  }
};

// The classes that one operator has entries for.
class Served {
 public:
  bool empty() const { // without the GIL: most wrappers are none of ours
    return count_.load(std::memory_order_relaxed) == 0;
  }

  const std::shared_ptr<const Entry>* find(PyTypeObject* cls) const {
    auto found = entries_.find(cls);
    return found == entries_.end() ? nullptr : &found->second;
  }

  void add(std::shared_ptr<const Entry> entry) {
    auto* cls = entry->cls;
    entries_[cls] = std::move(entry);
    count_ = entries_.size();
  }

  void forget(PyTypeObject* cls) {
    auto found = entries_.find(cls);
    if (found != entries_.end()) {
      auto last = std::move(found->second); // what its going sets off finds a whole table
      entries_.erase(found);
      count_ = entries_.size();
    }
  }

  int64_t hits = 0; // operators that were served, with the GIL held
  bool takes_wrappers = false; // by the schema; else it stays empty

  static std::unordered_map<std::string, Served*>& all() { // by operator; kernels are never taken out, nor is this
    static auto* table = new std::unordered_map<std::string, Served*>();
    return *table;
  }

 private:
  std::unordered_map<PyTypeObject*, std::shared_ptr<const Entry>> entries_;
  std::atomic<size_t> count_{0};
};

inline void forget_class(PyTypeObject* cls) {
  for (auto& [name, served] : Served::all()) {
    served->forget(cls);
  }
}

// Called when a class goes, with its address, before another one can have that.
inline PyObject* class_gone(PyObject* address, PyObject*) {
  void* cls = PyLong_AsVoidPtr(address);
  if (cls != nullptr) {
    forget_class(static_cast<PyTypeObject*>(cls));
  }
  Py_RETURN_NONE;
}

inline Ref watch_class(PyTypeObject* cls) {
  static PyMethodDef gone = {"class_gone", class_gone, METH_O, nullptr};
  Ref address = checked(PyLong_FromVoidPtr(cls));
  Ref callback = checked(PyCFunction_New(&gone, address.get()));
  return checked(PyWeakref_NewRef(reinterpret_cast<PyObject*>(cls), callback.get()));
}

// serve(operator, cls, names, optional, attributes, origin, otherwise, may_cache, asks_outer, lines_up, along,
// keeps_metadata, heeds_lazy_bits): see `_accelerator.pyi`.
inline PyObject* serve(PyObject*, PyObject* args) {
  HANDLE_TH_ERRORS
  const char* name = nullptr;
  PyObject *cls, *names, *optional, *attributes, *origin, *otherwise, *may_cache;
  int asks_outer = 0, lines_up = 0, along = -1, keeps_metadata = 0, heeds_lazy_bits = 0;
  if (!PyArg_ParseTuple(
          args, "sO!O!O!O!OOOppipp:serve", &name, &PyType_Type, &cls, &PyTuple_Type, &names, &PyTuple_Type, &optional,
          &PyTuple_Type, &attributes, &origin, &otherwise, &may_cache, &asks_outer, &lines_up, &along,
          &keeps_metadata, &heeds_lazy_bits)) {
    return nullptr;
  }
  auto served = Served::all().find(name);
  TORCH_CHECK_VALUE(
      served != Served::all().end() && served->second->takes_wrappers, "there is no kernel for ", name);
  TORCH_CHECK_TYPE(
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), reinterpret_cast<PyTypeObject*>(THPVariableClass)),
      "operators serve tensors");
  TORCH_CHECK_VALUE(PyTuple_GET_SIZE(names) > 0, "a wrapper has inner tensors");
  TORCH_CHECK_VALUE(PyTuple_GET_SIZE(names) == PyTuple_GET_SIZE(optional), "each inner tensor may be absent, or not");
  std::shared_ptr<Entry> entry(new Entry(), Entry::drop);
  entry->cls = reinterpret_cast<PyTypeObject*>(cls);
  entry->dispatch = Ref::of(_PyType_Lookup(entry->cls, checked(PyUnicode_InternFromString("__torch_dispatch__")).get()));
  entry->names = interned_all(names);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(optional); i++) {
    entry->optional.push_back(PyTuple_GET_ITEM(optional, i) == Py_True);
  }
  entry->attributes = interned_all(attributes);
  entry->origin = interned(origin);
  entry->otherwise = Ref::of(otherwise);
  if (may_cache != Py_None) {
    entry->may_cache = Ref::of(may_cache);
  }
  entry->asks_outer = asks_outer;
  entry->lines_up = lines_up;
  entry->along = along;
  entry->keeps_metadata = keeps_metadata;
  entry->heeds_lazy_bits = heeds_lazy_bits;
  entry->watch = watch_class(entry->cls);
  served->second->add(std::move(entry));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// forget(cls)
inline PyObject* forget(PyObject*, PyObject* cls) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(PyType_Check(cls), "operators serve classes");
  forget_class(reinterpret_cast<PyTypeObject*>(cls));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

} // namespace subclass_aot
