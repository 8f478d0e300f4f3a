// Dense weights of those in four bits: one pass over memory, where torch's operators take one each. The results are
// those of the operators to the last bit: see `Int4Tiles.transposed` and `NF4Weight.to_plain`.
#pragma once

#include "common.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>

#if defined(__x86_64__)
#include <immintrin.h>

namespace subclass_aot {

#define SUBCLASS_AOT_AVX2 [[gnu::target("avx2,fma")]]
#define SUBCLASS_AOT_AVX512 [[gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")]]

constexpr int64_t DENSE_GRAIN = 65536; // elements, for which another thread pays
constexpr int64_t COLUMNS = 16; // of one tile, one after another: they lie in a row, and tiles far from each other
constexpr int64_t TILES_AHEAD = 4; // by then their codes have come

inline float to_float(at::BFloat16 value) {
  return static_cast<float>(value);
}

// Rounds eight floats to the nearest bfloat16, in the low half of each lane.
SUBCLASS_AOT_AVX2 inline __m256i rounded(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i near = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256 is_number = _mm256_cmp_ps(x, x, _CMP_ORD_Q);
  return _mm256_blendv_epi8(_mm256_set1_epi32(0x7fc0), near, _mm256_castps_si256(is_number));
}

// The same, as floats.
SUBCLASS_AOT_AVX2 inline __m256 near_bfloat16(__m256 x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(rounded(x), 16));
}

SUBCLASS_AOT_AVX2 inline void store(at::BFloat16* out, __m256 low, __m256 high) {
  const __m256i both = _mm256_packus_epi32(rounded(low), rounded(high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(both, 0b11011000));
}

// Whether sixteen floats are one register, as in the functions below whose names end in 512. Torch's own kernels go by
// the same, which `ATEN_CPU_CAPABILITY` sets.
inline bool has_512() {
  static const bool has = at::get_cpu_capability() == "AVX512";
  return has;
}

// Rounds sixteen floats to the nearest bfloat16.
SUBCLASS_AOT_AVX512 inline __m256i rounded_512(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i near = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(near, is_nan, _mm512_set1_epi32(0x7fc0)));
}

// `(code - 8) * scale + middle` of sixteen codes.
SUBCLASS_AOT_AVX2 inline void scaled(__m128i codes, const float* scale, const float* middle, at::BFloat16* out) {
  const __m256i eight = _mm256_set1_epi32(8);
  const __m256 low = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_cvtepu8_epi32(codes), eight));
  const __m256 high = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8)), eight));
  store(
      out, _mm256_fmadd_ps(low, _mm256_loadu_ps(scale), _mm256_loadu_ps(middle)),
      _mm256_fmadd_ps(high, _mm256_loadu_ps(scale + 8), _mm256_loadu_ps(middle + 8)));
}

// The same. A table has the numbers of the codes; the low four bits of a byte are its index.
SUBCLASS_AOT_AVX512 inline void scaled_512(
    __m128i codes, __m512 numbers, const float* scale, const float* middle, at::BFloat16* out) {
  const __m512 of = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes), numbers);
  const __m512 dense = _mm512_fmadd_ps(of, _mm512_loadu_ps(scale), _mm512_loadu_ps(middle));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), rounded_512(dense));
}

// A column of a tile: the low bits of each byte are of the first half of the rows.
SUBCLASS_AOT_AVX2 inline void int4_column(
    const uint8_t* pairs, const float* scale, const float* middle, at::BFloat16* out, int64_t half) {
  const __m128i low_bits = _mm_set1_epi8(15);
  for (int64_t i = 0; i < half; i += 16) {
    const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs + i));
    scaled(_mm_and_si128(sixteen, low_bits), scale + i, middle + i, out + i);
    const __m128i high = _mm_and_si128(_mm_srli_epi16(sixteen, 4), low_bits);
    scaled(high, scale + half + i, middle + half + i, out + half + i);
  }
}

SUBCLASS_AOT_AVX512 inline void int4_column_512(
    const uint8_t* pairs, const float* scale, const float* middle, at::BFloat16* out, int64_t half) {
  const __m512 numbers = _mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8);
  for (int64_t i = 0; i < half; i += 16) {
    const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs + i));
    scaled_512(sixteen, numbers, scale + i, middle + i, out + i);
    scaled_512(_mm_srli_epi16(sixteen, 4), numbers, scale + half + i, middle + half + i, out + half + i);
  }
}

inline void int4_rows(
    const uint8_t* packed, const at::BFloat16* scales, at::BFloat16* out, int64_t rows, int64_t columns, int64_t tile,
    int64_t group, int64_t begin, int64_t end) {
  const auto column = has_512() ? int4_column_512 : int4_column;
  std::vector<float> scale(rows), middle(rows);
  int64_t of = -1;
  for (int64_t n = begin, last; n < end; n = last) {
    if (n / group != of) {
      of = n / group;
      for (int64_t m = 0; m < rows; m++) {
        scale[m] = to_float(scales[2 * (of * rows + m)]);
        middle[m] = to_float(scales[2 * (of * rows + m) + 1]);
      }
    }
    last = std::min({n + COLUMNS, (of + 1) * group, end});
    for (int64_t first = 0; first < rows; first += tile) {
      const uint8_t* pairs = packed + (first * columns + n * tile) / 2;
      if (first + TILES_AHEAD * tile < rows) {
        for (int64_t i = 0; i < (last - n) * tile / 2; i += 64) {
          __builtin_prefetch(pairs + TILES_AHEAD * tile * columns / 2 + i);
        }
      }
      for (int64_t at = n; at < last; at++, pairs += tile / 2) {
        column(pairs, &scale[first], &middle[first], out + at * rows + first, tile / 2);
      }
    }
  }
}

// `uint8[M / tile, N, tile / 2]` and `bfloat16[N / group, M, 2]` -> `bfloat16[N, M]`
inline at::Tensor int4_dense(const at::Tensor& packed, const at::Tensor& scales) {
  TORCH_CHECK(packed.dim() == 3 && scales.dim() == 3, "these are no tiles, which have three dims");
  const int64_t rows = scales.size(1), columns = packed.size(1), tile = 2 * packed.size(2);
  TORCH_CHECK(
      packed.is_contiguous() && scales.is_contiguous() && packed.scalar_type() == at::kByte &&
          scales.scalar_type() == at::kBFloat16 && tile % 32 == 0 && packed.size(0) * tile == rows &&
          scales.size(2) == 2 && scales.size(0) > 0 && columns % scales.size(0) == 0,
      "these are no tiles of 32 rows, or of a multiple of that, in bfloat16");
  at::Tensor out = at::empty({columns, rows}, scales.options());
  const auto* codes = packed.const_data_ptr<uint8_t>();
  const auto* given = scales.const_data_ptr<at::BFloat16>();
  auto* results = out.mutable_data_ptr<at::BFloat16>();
  at::parallel_for(0, columns, DENSE_GRAIN / std::max<int64_t>(rows, 1) + 1, [&](int64_t begin, int64_t end) {
    int4_rows(codes, given, results, rows, columns, tile, columns / scales.size(0), begin, end);
  });
  return out;
}

// Sixteen levels, each times the scale, as their low and high bytes.
struct Levels {
  __m256i low, high;
};

SUBCLASS_AOT_AVX2 inline Levels levels_of(const float* levels, float scale) {
  alignas(32) at::BFloat16 products[16];
  const __m256 factor = _mm256_set1_ps(scale);
  store(products, _mm256_mul_ps(_mm256_loadu_ps(levels), factor), _mm256_mul_ps(_mm256_loadu_ps(levels + 8), factor));
  const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(products));
  const __m256i bytes = _mm256_set1_epi16(255);
  const __m256i low = _mm256_packus_epi16(_mm256_and_si256(both, bytes), _mm256_and_si256(both, bytes));
  const __m256i high = _mm256_packus_epi16(_mm256_srli_epi16(both, 8), _mm256_srli_epi16(both, 8));
  // Each half has its eight values twice: put all sixteen into each.
  return {
      _mm256_permute4x64_epi64(low, 0b10001000), _mm256_permute4x64_epi64(high, 0b10001000)};
}

SUBCLASS_AOT_AVX2 inline void nf4_block(
    const uint8_t* pairs, const float* levels, float scale, at::BFloat16* out, int64_t half) {
  const Levels table = levels_of(levels, scale);
  const __m128i low_bits = _mm_set1_epi8(15);
  for (int64_t i = 0; i < half; i += 16) {
    const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs + i));
    const __m128i even = _mm_and_si128(sixteen, low_bits);
    const __m128i odd = _mm_and_si128(_mm_srli_epi16(sixteen, 4), low_bits);
    const __m256i in_order = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
    const __m256i low = _mm256_shuffle_epi8(table.low, in_order), high = _mm256_shuffle_epi8(table.high, in_order);
    const __m256i first = _mm256_unpacklo_epi8(low, high), second = _mm256_unpackhi_epi8(low, high);
    auto* to = reinterpret_cast<__m256i*>(out + 2 * i);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(first, second, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(first, second, 0x31));
  }
}

// The same. A table has all levels twice, so that only the low four bits of an index count: of a byte, these are its
// even code; shifted by twelve, its odd code begins at the next index.
SUBCLASS_AOT_AVX512 inline void nf4_block_512(
    const uint8_t* pairs, const float* levels, float scale, at::BFloat16* out, int64_t half) {
  const __m512 products = _mm512_mul_ps(_mm512_loadu_ps(levels), _mm512_set1_ps(scale));
  const __m512i table = _mm512_broadcast_i64x4(rounded_512(products));
  for (int64_t i = 0; i < half; i += 16) {
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs + i)));
    const __m512i at = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
    _mm512_storeu_si512(out + 2 * i, _mm512_permutexvar_epi16(at, table));
  }
}

// Writes `codes * step + center` of a row, rounded after each operation.
SUBCLASS_AOT_AVX2 inline void nf4_scales(
    const int8_t* codes, at::BFloat16 step, at::BFloat16 center, float* out, int64_t blocks) {
  const __m256 steps = _mm256_set1_ps(to_float(step)), centers = _mm256_set1_ps(to_float(center));
  int64_t b = 0;
  for (; b + 8 <= blocks; b += 8) {
    const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + b));
    const __m256 stepped = near_bfloat16(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)), steps));
    _mm256_storeu_ps(out + b, near_bfloat16(_mm256_add_ps(stepped, centers)));
  }
  for (; b < blocks; b++) {
    const float stepped = at::BFloat16(static_cast<float>(codes[b]) * to_float(step));
    out[b] = at::BFloat16(stepped + to_float(center));
  }
}

inline void nf4_rows(
    const uint8_t* packed, const int8_t* codes, const at::BFloat16* step, const at::BFloat16* center,
    const float* levels, at::BFloat16* out, int64_t columns, int64_t blocks, int64_t begin, int64_t end) {
  const auto of_block = has_512() ? nf4_block_512 : nf4_block;
  const int64_t block = columns / blocks;
  std::vector<float> scales(blocks);
  for (int64_t m = begin; m < end; m++) {
    nf4_scales(codes + m * blocks, step[m], center[m], scales.data(), blocks);
    for (int64_t b = 0; b < blocks; b++) {
      const int64_t first = m * columns + b * block;
      of_block(packed + first / 2, levels, scales[b], out + first, block / 2);
    }
  }
}

// `uint8[M, N / 2]`, `int8[M, blocks]`, `bfloat16[M, 1]` twice and sixteen levels -> `bfloat16[M, N]`
inline at::Tensor nf4_dense(
    const at::Tensor& packed, const at::Tensor& codes, const at::Tensor& step, const at::Tensor& center,
    at::ArrayRef<double> levels) {
  TORCH_CHECK(packed.dim() == 2 && codes.dim() == 2, "this is no weight in blocks, which has two dims");
  const int64_t rows = packed.size(0), columns = 2 * packed.size(1), blocks = codes.size(1);
  TORCH_CHECK(
      packed.is_contiguous() && codes.is_contiguous() && step.is_contiguous() && center.is_contiguous() &&
          packed.scalar_type() == at::kByte && codes.scalar_type() == at::kChar &&
          step.scalar_type() == at::kBFloat16 && center.scalar_type() == at::kBFloat16 && step.numel() == rows &&
          center.numel() == rows && codes.size(0) == rows && blocks > 0 && columns % (32 * blocks) == 0 &&
          levels.size() == 16,
      "this is no weight in blocks of 32 codes, or of a multiple of that, in bfloat16");
  at::Tensor out = at::empty({rows, columns}, step.options());
  alignas(32) float of[16];
  for (size_t i = 0; i < 16; i++) {
    of[i] = at::BFloat16(static_cast<float>(levels[i]));
  }
  const auto* pairs = packed.const_data_ptr<uint8_t>();
  const auto* scales = codes.const_data_ptr<int8_t>();
  const auto* steps = step.const_data_ptr<at::BFloat16>();
  const auto* centers = center.const_data_ptr<at::BFloat16>();
  auto* results = out.mutable_data_ptr<at::BFloat16>();
  at::parallel_for(0, rows, DENSE_GRAIN / std::max<int64_t>(columns, 1) + 1, [&](int64_t begin, int64_t end) {
    nf4_rows(pairs, scales, steps, centers, of, results, columns, blocks, begin, end);
  });
  return out;
}

} // namespace subclass_aot
#endif
