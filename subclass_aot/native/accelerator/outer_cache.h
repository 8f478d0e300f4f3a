// The metadata of wrappers by that of their inner tensors and by their context: what the outer rule of a class has
// said, cached as Note [Cached outer metadata] in `wrapper/declare/outer_cache.py` says. All of it with the GIL.
#pragma once

#include "outer.h"

#include <algorithm>

namespace subclass_aot {

// The metadata of an inner tensor, and the context, in numbers and objects that are compared by value.
struct MetadataKey {
  c10::SmallVector<int64_t, 24> numbers;
  c10::SmallVector<PyObject*, 4> context; // borrowed

  void add(const c10::TensorImpl& tensor) {
    auto size = tensor.sizes(), stride = tensor.strides();
    numbers.push_back(static_cast<int64_t>(size.size()));
    numbers.append(size.begin(), size.end());
    numbers.append(stride.begin(), stride.end());
    numbers.push_back(tensor.storage_offset());
    numbers.push_back(static_cast<int64_t>(c10::typeMetaToScalarType(tensor.dtype())));
    numbers.push_back(static_cast<int64_t>(tensor.device().type()) * 256 + tensor.device().index());
  }

  // Adds a value of the context; false for one of which it is not known that equal ones are the same to a rule.
  bool add(PyObject* value) {
    if (value != Py_None && !PyLong_CheckExact(value) && !PyUnicode_CheckExact(value) && !PyBool_Check(value) &&
        !THPDtype_Check(value)) {
      return false;
    }
    context.push_back(value);
    return true;
  }
};

struct OuterMetadata {
  explicit OuterMetadata(const c10::TensorImpl& like)
      : size(like.sizes()), stride(like.strides()), offset(like.storage_offset()), dtype(like.dtype()),
        device(like.device()) {}

  c10::SmallVector<int64_t, 5> size, stride;
  int64_t offset;
  caffe2::TypeMeta dtype;
  c10::Device device;
};

class OuterCache {
 public:
  // Whether anything may be cached: the class has a version, and its wrappers have not other metadata each time.
  // What was said of another version is forgotten.
  bool on(PyTypeObject* cls) {
    if (cls->tp_version_tag != version_) {
      version_ = cls->tp_version_tag;
      auto last = std::exchange(known_, {}); // what its going sets off finds a whole table
    }
    return version_ != 0 && patience_.lasts();
  }

  // Whether nothing is known of this version of the class: not even whether what its rule says may be cached.
  bool is_new() const {
    return known_.empty();
  }

  unsigned int version() const {
    return version_;
  }

  const OuterMetadata* find(const MetadataKey& key) {
    for (size_t i = 0; i < known_.size(); i++) {
      if (is(known_[i], key)) {
        patience_.note(true);
        if (i > 0) { // the last ones to be looked for are the first to be found
          std::rotate(known_.begin(), known_.begin() + i, known_.begin() + i + 1);
        }
        return &known_.front().metadata;
      }
    }
    patience_.note(false);
    return nullptr;
  }

  void add(const MetadataKey& key, const c10::TensorImpl& made) {
    std::vector<Ref> context;
    for (auto* value : key.context) {
      context.push_back(Ref::of(value));
    }
    Known known{key.numbers, std::move(context), OuterMetadata(made)};
    if (known_.size() == MOST) {
      Known last = std::move(known_.back());
      known_.pop_back();
      known_.insert(known_.begin(), std::move(known));
      return; // what its going sets off finds a whole table
    }
    known_.insert(known_.begin(), std::move(known));
  }

 private:
  struct Known {
    c10::SmallVector<int64_t, 24> numbers;
    std::vector<Ref> context;
    OuterMetadata metadata;
  };

  static bool is(const Known& known, const MetadataKey& key) {
    if (known.numbers != key.numbers || known.context.size() != key.context.size()) {
      return false;
    }
    for (size_t i = 0; i < key.context.size(); i++) {
      PyObject *mine = known.context[i].get(), *theirs = key.context[i];
      if (mine == theirs) {
        continue;
      }
      if (Py_TYPE(mine) != Py_TYPE(theirs) || !(PyLong_CheckExact(mine) || PyUnicode_CheckExact(mine)) ||
          PyObject_RichCompareBool(mine, theirs, Py_EQ) != 1) {
        return false;
      }
    }
    return true;
  }

  static constexpr size_t MOST = 32;
  std::vector<Known> known_;
  unsigned int version_ = 0;
  Patience patience_;
};

} // namespace subclass_aot
