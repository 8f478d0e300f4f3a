// The outer tensor of a wrapper: what `torch.Tensor._make_wrapper_subclass` makes, which has a storage of the right size
// and no memory.
#pragma once

#include "common.h"

namespace subclass_aot {

inline c10::DispatchKeySet outer_keys(caffe2::TypeMeta dtype, c10::Device device) {
  return c10::DispatchKeySet(c10::computeDispatchKey(c10::typeMetaToScalarType(dtype), c10::kStrided, device));
}

inline c10::Storage outer_storage(size_t nbytes, c10::Device device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t{},
      nbytes,
      c10::DataPtr(nullptr, device),
      c10::GetAllocator(c10::kMeta),
      /*resizable=*/true));
}

inline at::Tensor outer_tensor(
    c10::Storage storage,
    c10::DispatchKeySet keys,
    caffe2::TypeMeta dtype,
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, dtype);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(size, stride, offset);
  impl->set_python_dispatch(true);
  return tensor;
}

} // namespace subclass_aot
