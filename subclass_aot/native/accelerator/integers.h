// The product of codes of eight bits with codes of eight bits, for processors whose instructions for that saturate: as
// words of sixteen bits, of which two products fit into a sum of 32. So the result is exact, as torch's is.
#pragma once

#include "rows.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/empty.h>

#if defined(__x86_64__)
namespace subclass_aot {

constexpr int64_t WORDS = 1024; // of a row, that stay in the first cache
constexpr int BESIDE = 4; // rows of the second operand at a time
constexpr int64_t PRODUCTS = 1 << 19; // for which another thread pays

// Writes codes as words.
SUBCLASS_AOT_F16C inline void widen(const int8_t* codes, int64_t count, int16_t* out) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_cvtepi8_epi16(sixteen));
  }
  std::copy(codes + i, codes + count, out + i);
}

SUBCLASS_AOT_F16C inline int32_t sum_of_integers(__m256i lanes) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}

// Adds the products of `ROWS` rows and of four of the second operand.
template <int ROWS>
SUBCLASS_AOT_F16C inline void add_products(
    const int16_t* x, int64_t stride, const int16_t* codes, int64_t count, int32_t* sums) {
  __m256i found[ROWS][BESIDE] = {};
  for (int64_t i = 0; i < count; i += 16) {
    __m256i given[ROWS];
#pragma GCC unroll 2
    for (int row = 0; row < ROWS; row++) {
      given[row] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + row * stride + i));
    }
#pragma GCC unroll 4
    for (int j = 0; j < BESIDE; j++) {
      const __m256i of = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes + j * WORDS + i));
#pragma GCC unroll 2
      for (int row = 0; row < ROWS; row++) {
        found[row][j] = _mm256_add_epi32(found[row][j], _mm256_madd_epi16(given[row], of));
      }
    }
  }
#pragma GCC unroll 2
  for (int row = 0; row < ROWS; row++) {
#pragma GCC unroll 4
    for (int j = 0; j < BESIDE; j++) {
      sums[row * BESIDE + j] += sum_of_integers(found[row][j]);
    }
  }
}

// Writes the products of all rows with some of the second operand. `x` has a multiple of sixteen words in a row.
SUBCLASS_AOT_F16C inline void integer_columns(
    const int16_t* x, int64_t rows, int64_t stride, const int8_t* codes, int64_t columns, int64_t outputs,
    int64_t begin, int64_t end, int32_t* out) {
  alignas(32) int16_t words[BESIDE * WORDS] = {};
  std::vector<int32_t> sums(rows * BESIDE);
  for (int64_t first = begin; first < end; first += BESIDE) {
    const int64_t count = std::min<int64_t>(BESIDE, end - first);
    std::fill(sums.begin(), sums.end(), 0);
    for (int64_t k = 0; k < columns; k += WORDS) {
      const int64_t depth = std::min(WORDS, columns - k), padded = (depth + 15) / 16 * 16;
      for (int64_t j = 0; j < count; j++) {
        int16_t* to = words + j * WORDS;
        widen(codes + (first + j) * columns + k, depth, to);
        std::fill(to + depth, to + padded, 0);
      }
      int64_t row = 0;
      for (; row + 2 <= rows; row += 2) {
        add_products<2>(x + row * stride + k, stride, words, padded, &sums[row * BESIDE]);
      }
      if (row < rows) {
        add_products<1>(x + row * stride + k, stride, words, padded, &sums[row * BESIDE]);
      }
    }
    for (int64_t row = 0; row < rows; row++) {
      std::copy_n(&sums[row * BESIDE], count, out + row * outputs + first);
    }
  }
}

// `int8[rows, N] @ int8[N, M]`, the second as the transpose of rows that lie one after another -> `int32[rows, M]`
inline at::Tensor int_mm(const at::Tensor& x, const at::Tensor& codes) {
  static const bool torch_is_fast = __builtin_cpu_supports("avx512vnni") || __builtin_cpu_supports("avxvnni");
  const bool is_served = !torch_is_fast && x.dim() == 2 && codes.dim() == 2 && x.scalar_type() == at::kChar &&
      codes.scalar_type() == at::kChar && x.is_contiguous() && codes.t().is_contiguous() &&
      codes.size(0) == x.size(1) && x.numel() != 0 && codes.numel() != 0 && codes.device().is_cpu();
  if (!is_served) {
    return at::_int_mm(x, codes);
  }
  const int64_t rows = x.size(0), columns = x.size(1), outputs = codes.size(1);
  const int64_t stride = (columns + 15) / 16 * 16;
  std::vector<int16_t> given(rows * stride);
  for (int64_t row = 0; row < rows; row++) {
    widen(x.const_data_ptr<int8_t>() + row * columns, columns, &given[row * stride]);
  }
  at::Tensor out = at::empty({rows, outputs}, x.options().dtype(at::kInt));
  const auto* from = codes.const_data_ptr<int8_t>();
  auto* to = out.mutable_data_ptr<int32_t>();
  at::parallel_for(0, outputs, PRODUCTS / (rows * columns) + 1, [&](int64_t begin, int64_t end) {
    integer_columns(given.data(), rows, stride, from, columns, outputs, begin, end, to);
  });
  return out;
}

} // namespace subclass_aot
#endif
