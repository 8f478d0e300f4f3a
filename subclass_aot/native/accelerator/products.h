// The product of one row and a weight in eight bits, as each step of decoding needs: its time goes into reading the
// codes, which torch's own kernel (2.13) does at half of what a core can read. See `products.py` for who calls it.
#pragma once

#include "common.h"
#include "dense.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_weight_int8pack_mm.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace subclass_aot {

#if defined(__x86_64__)
constexpr int64_t LANES = 8;
constexpr int64_t MULTIPLE = 32; // of the length of rows
constexpr int64_t IN_CACHE = 6144; // floats that stay in the first cache beside codes
constexpr int TOGETHER = 4; // rows, of longer ones
constexpr int64_t AHEAD = 2048; // bytes: by then the next codes have come
constexpr int64_t GRAIN = 131072; // codes, for which another thread pays

SUBCLASS_AOT_AVX2 inline float sum_of(__m256 lanes) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Writes the products of `x` and of some rows of codes.
template <int ROWS>
SUBCLASS_AOT_AVX2 inline void dots(const float* x, const int8_t* codes, int64_t length, float* out) {
  constexpr int CHAINS = ROWS == 1 ? 4 : 2; // sums that do not wait for each other
  __m256 sums[ROWS][CHAINS] = {};
  for (int64_t i = 0; i < length; i += CHAINS * LANES) {
#pragma GCC unroll 4
    for (int row = 0; row < ROWS; row++) {
      __builtin_prefetch(codes + row * length + i + AHEAD);
    }
#pragma GCC unroll 4
    for (int chain = 0; chain < CHAINS; chain++) {
      const int64_t at = i + chain * LANES;
      const __m256 floats = _mm256_loadu_ps(x + at);
#pragma GCC unroll 4
      for (int row = 0; row < ROWS; row++) {
        const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + row * length + at));
        const __m256 code = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
        sums[row][chain] = _mm256_fmadd_ps(floats, code, sums[row][chain]);
      }
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < ROWS; row++) {
    __m256 sum = _mm256_add_ps(sums[row][0], sums[row][1]);
#pragma GCC unroll 4
    for (int chain = 2; chain < CHAINS; chain++) {
      sum = _mm256_add_ps(sum, sums[row][chain]);
    }
    out[row] = sum_of(sum);
  }
}

// `x[rows, N] @ (codes[M, N] * scale[M, None]).t()`, with sums in float; of more than one row, by torch's kernel.
inline at::Tensor int8_mm(const at::Tensor& x, const at::Tensor& codes, const at::Tensor& scale) {
  const bool is_served = x.dim() == 2 && x.size(0) == 1 && x.scalar_type() == at::kBFloat16 && x.is_contiguous() &&
      codes.dim() == 2 && codes.scalar_type() == at::kChar && codes.is_contiguous() && codes.size(1) == x.size(1) &&
      codes.size(1) % MULTIPLE == 0 && scale.dim() == 1 && scale.scalar_type() == at::kBFloat16 &&
      scale.is_contiguous() && scale.size(0) == codes.size(0) && codes.device().is_cpu() && scale.device().is_cpu();
  if (!is_served) {
    return at::_weight_int8pack_mm(x, codes, scale);
  }
  const int64_t length = x.size(1), outputs = codes.size(0);
  at::Tensor out = at::empty({1, outputs}, x.options());
  const auto* given = x.const_data_ptr<at::BFloat16>();
  const std::vector<float> floats(given, given + length);
  const auto* code = codes.const_data_ptr<int8_t>();
  const auto* scales = scale.const_data_ptr<at::BFloat16>();
  auto* results = out.mutable_data_ptr<at::BFloat16>();
  at::parallel_for(0, outputs, GRAIN / std::max<int64_t>(length, 1) + 1, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    float sums[TOGETHER];
    for (; length > IN_CACHE && i + TOGETHER <= end; i += TOGETHER) { // `x` is read once for several rows
      dots<TOGETHER>(floats.data(), code + i * length, length, sums);
      for (int64_t j = 0; j < TOGETHER; j++) {
        results[i + j] = sums[j] * static_cast<float>(scales[i + j]);
      }
    }
    for (; i < end; i++) {
      dots<1>(floats.data(), code + i * length, length, sums);
      results[i] = sums[0] * static_cast<float>(scales[i]);
    }
  });
  return out;
}
#endif

// install_products() -> whether this processor has them
inline PyObject* install_products(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    // Never destroyed: when the process ends, the dispatcher may go first.
    static auto* library =
        new torch::Library(torch::Library::IMPL, "subclass_aot", DispatchKey::CPU, __FILE__, __LINE__);
    static bool is_first = true;
    if (std::exchange(is_first, false)) {
      library->impl("int8_mm", int8_mm);
      library->impl("int4_dense", int4_dense);
      library->impl("nf4_dense", nf4_dense);
    }
    Py_RETURN_TRUE;
  }
#endif
  Py_RETURN_FALSE;
  END_HANDLE_TH_ERRORS
}

inline PyMethodDef PRODUCT_FUNCTIONS[] = {{"install_products", install_products, METH_NOARGS, nullptr}, {nullptr}};

} // namespace subclass_aot
