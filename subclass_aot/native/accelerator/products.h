// Products with weights in eight bits, as each step of decoding needs: their time goes into reading the codes, which
// torch's own kernel (2.13) does at half of what a core can read. See `products.py` for who calls it.
#pragma once

#include "common.h"
#include "integers.h"
#include "many_rows.h"

#include <ATen/ops/_weight_int8pack_mm.h>
#include <torch/library.h>

namespace subclass_aot {

#if defined(__x86_64__)
// `x[rows, N] @ (codes[M, N] * scale[M, None]).t()`. Of several rows, torch's kernel is as fast where it has AVX-512.
inline at::Tensor int8_mm(const at::Tensor& x, const at::Tensor& codes, const at::Tensor& scale) {
  const bool is_served = x.dim() == 2 && x.scalar_type() == at::kBFloat16 && x.is_contiguous() && codes.dim() == 2 &&
      codes.scalar_type() == at::kChar && codes.is_contiguous() && codes.size(1) == x.size(1) &&
      codes.size(1) % BLOCK == 0 && scale.dim() == 1 && scale.scalar_type() == at::kBFloat16 &&
      scale.is_contiguous() && scale.size(0) == codes.size(0) && codes.device().is_cpu() && scale.device().is_cpu();
  if (!is_served || (x.size(0) != 1 && has_512())) {
    return at::_weight_int8pack_mm(x, codes, scale);
  }
  return product<Int8Rows>(x, {codes, scale});
}
#endif

// install_products() -> whether this processor has them
inline PyObject* install_products(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    // Never destroyed: when the process ends, the dispatcher may go first.
    static auto* library =
        new torch::Library(torch::Library::IMPL, "subclass_aot", DispatchKey::CPU, __FILE__, __LINE__);
    static bool is_first = true;
    if (std::exchange(is_first, false)) {
      library->impl("int8_mm", int8_mm);
      library->impl("int4_dense", int4_dense);
      library->impl("nf4_dense", nf4_dense);
      library->impl("weight_mm", weight_mm);
      library->impl("int_mm", int_mm);
    }
    Py_RETURN_TRUE;
  }
#endif
  Py_RETURN_FALSE;
  END_HANDLE_TH_ERRORS
}

inline PyMethodDef PRODUCT_FUNCTIONS[] = {{"install_products", install_products, METH_NOARGS, nullptr}, {nullptr}};

} // namespace subclass_aot
