// The rows of weights as floats: what a product reads of a weight of any format, 32 columns at a time, in the order that
// takes the fewest instructions: see `ORDER`, in which the other operand is, too. Of formats with a scale for a whole
// row, the numbers are without it: see `scale`.
#pragma once

#include "dense.h"

#if defined(__x86_64__)
namespace subclass_aot {

#define SUBCLASS_AOT_F16C [[gnu::target("avx2,fma,f16c")]]
#define SUBCLASS_AOT_INLINE [[gnu::target("avx2,fma,f16c"), gnu::always_inline]] inline

constexpr int64_t BLOCK = 32; // columns

SUBCLASS_AOT_AVX2 inline float sum_of(__m256 lanes) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Eight floats of a dtype.
SUBCLASS_AOT_F16C inline __m256 load_floats(const float* from) {
  return _mm256_loadu_ps(from);
}

SUBCLASS_AOT_F16C inline __m256 load_floats(const at::BFloat16* from) {
  const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16));
}

SUBCLASS_AOT_F16C inline __m256 load_floats(const at::Half* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// Writes eight floats in a dtype, rounded to the nearest.
SUBCLASS_AOT_F16C inline void store_floats(float* to, __m256 x) {
  _mm256_storeu_ps(to, x);
}

SUBCLASS_AOT_F16C inline void store_floats(at::BFloat16* to, __m256 x) {
  const __m256i low = rounded(x);
  const __m128i eight = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), eight);
}

SUBCLASS_AOT_F16C inline void store_floats(at::Half* to, __m256 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

inline void check_fields(bool fit) {
  TORCH_CHECK(fit, "these are not the fields of such a weight");
}

struct Order {
  uint8_t columns[BLOCK]; // of a block, in the order of its numbers
};

constexpr Order order_of(uint8_t (*column)(int)) {
  Order found{};
  for (int i = 0; i < BLOCK; i++) {
    found.columns[i] = column(i);
  }
  return found;
}

// Codes of eight bits, and a scale for each row.
template <class T>
struct WithScales {
  const uint8_t* codes;
  const T* scales;
  int64_t outputs, columns;

  WithScales(at::TensorList fields, at::ScalarType of) : outputs(fields[0].size(0)), columns(fields[0].size(1)) {
    check_fields(fields.size() == 2 && fields[0].scalar_type() == of && fields[1].numel() == outputs);
    codes = static_cast<const uint8_t*>(fields[0].const_data_ptr());
    scales = fields[1].const_data_ptr<T>();
  }

  float scale(int64_t row) const {
    return static_cast<float>(scales[row]);
  }

  // Where the codes of a row are, from a column on.
  const uint8_t* at(int64_t row, int64_t begin) const {
    return codes + row * columns + begin;
  }

  static constexpr int64_t IN_A_LINE = 64; // columns
};

// `codes * scale`.
template <class T>
struct Int8Rows : WithScales<T> {
  Int8Rows(at::TensorList fields, at::ArrayRef<double>) : WithScales<T>(fields, at::kChar) {}

  static constexpr Order ORDER = order_of([](int i) { return static_cast<uint8_t>(i); });

  SUBCLASS_AOT_F16C static __m256 numbers(const uint8_t* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }

  template <class Sink>
  SUBCLASS_AOT_INLINE void expand(int64_t row, int64_t begin, int64_t count, Sink& sink) const {
    const uint8_t* from = this->at(row, begin);
    for (int64_t i = 0; i < count; i += BLOCK) {
      sink.take(i, numbers(from + i), numbers(from + i + 8), numbers(from + i + 16), numbers(from + i + 24));
    }
  }
};

// `codes * scale`, codes in E4M3: moved to where a half has exponent and mantissa, these are 2^8 times too small.
template <class T>
struct Float8Rows : WithScales<T> {
  Float8Rows(at::TensorList fields, at::ArrayRef<double>) : WithScales<T>(fields, at::kFloat8_e4m3fn) {}

  static constexpr Order ORDER = order_of([](int i) { return static_cast<uint8_t>(2 * i % BLOCK + i / 16); });

  float scale(int64_t row) const {
    return 256 * WithScales<T>::scale(row);
  }

  // Makes halves of codes that are in the high byte of a word.
  SUBCLASS_AOT_F16C static __m256i halves(__m256i codes) {
    const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f00));
    const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f00)); // there is no infinity
    const __m256i sign = _mm256_and_si256(codes, _mm256_set1_epi16(-0x8000));
    return _mm256_or_si256(_mm256_or_si256(_mm256_srli_epi16(magnitude, 1), sign), is_nan);
  }

  template <class Sink>
  SUBCLASS_AOT_INLINE void expand(int64_t row, int64_t begin, int64_t count, Sink& sink) const {
    const uint8_t* from = this->at(row, begin);
    for (int64_t i = 0; i < count; i += BLOCK) {
      const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
      const __m256i even = halves(_mm256_slli_epi16(pairs, 8)), odd = halves(pairs);
      sink.take(
          i, _mm256_cvtph_ps(_mm256_castsi256_si128(even)), _mm256_cvtph_ps(_mm256_extracti128_si256(even, 1)),
          _mm256_cvtph_ps(_mm256_castsi256_si128(odd)), _mm256_cvtph_ps(_mm256_extracti128_si256(odd, 1)));
    }
  }
};

// Sixteen floats, as tables of their bytes, the lowest first, in each half of a register.
struct Sixteen {
  __m256i bytes[4];

  SUBCLASS_AOT_F16C explicit Sixteen(const float* levels) {
    alignas(16) uint8_t planes[4][16];
    for (int i = 0; i < 16; i++) {
      const uint32_t bits = c10::bit_cast<uint32_t>(levels[i]);
      for (int plane = 0; plane < 4; plane++) {
        planes[plane][i] = static_cast<uint8_t>(bits >> (8 * plane));
      }
    }
    for (int plane = 0; plane < 4; plane++) {
      bytes[plane] = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(planes[plane])));
    }
  }
};

// Two codes in a byte: those of even columns are in the low bits.
struct Pairs {
  const uint8_t* packed;
  int64_t outputs, columns, groups, group;

  Pairs(const at::Tensor& packed, const at::Tensor& scales)
      : outputs(packed.size(0)), columns(2 * packed.size(1)), groups(scales.size(1)), group(columns / groups) {
    check_fields(packed.scalar_type() == at::kByte && scales.size(0) == outputs && groups * group == columns);
    check_fields(group % BLOCK == 0);
    this->packed = packed.const_data_ptr<uint8_t>();
  }

  float scale(int64_t) const {
    return 1;
  }

  const uint8_t* at(int64_t row, int64_t begin) const {
    return packed + (row * columns + begin) / 2;
  }

  static constexpr int64_t IN_A_LINE = 128;

  // Each half of a register has the codes of even or of odd columns; then words of even and of odd places come apart.
  static constexpr Order ORDER =
      order_of([](int i) { return static_cast<uint8_t>(i / 16 * 16 + i / 8 % 2 * 2 + i / 4 % 2 + i % 4 * 4); });

  // Gives `table[codes] * scale + offset` of 32 codes. Of a table in bfloat16 the lower bytes are zero.
  template <bool IS_SHORT, class Sink>
  SUBCLASS_AOT_INLINE static void look_up(
      const uint8_t* from, const Sixteen& table, __m256 scale, __m256 offset, int64_t at, Sink& sink) {
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    const __m256i apart = _mm256_srlv_epi32(twice, _mm256_set_epi32(4, 4, 4, 4, 0, 0, 0, 0));
    const __m256i codes = _mm256_and_si256(apart, _mm256_set1_epi8(15));
    const __m256i second = _mm256_shuffle_epi8(table.bytes[2], codes);
    const __m256i third = _mm256_shuffle_epi8(table.bytes[3], codes);
    const __m256i upper[2] = {_mm256_unpacklo_epi8(second, third), _mm256_unpackhi_epi8(second, third)};
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    __m256i found[4] = {
        _mm256_slli_epi32(upper[0], 16), _mm256_and_si256(upper[0], high), _mm256_slli_epi32(upper[1], 16),
        _mm256_and_si256(upper[1], high)};
    if constexpr (!IS_SHORT) {
      const __m256i zeroth = _mm256_shuffle_epi8(table.bytes[0], codes);
      const __m256i first = _mm256_shuffle_epi8(table.bytes[1], codes);
      const __m256i lower[2] = {_mm256_unpacklo_epi8(zeroth, first), _mm256_unpackhi_epi8(zeroth, first)};
      found[0] = _mm256_or_si256(found[0], _mm256_andnot_si256(high, lower[0]));
      found[1] = _mm256_or_si256(found[1], _mm256_srli_epi32(lower[0], 16));
      found[2] = _mm256_or_si256(found[2], _mm256_andnot_si256(high, lower[1]));
      found[3] = _mm256_or_si256(found[3], _mm256_srli_epi32(lower[1], 16));
    }
    sink.take(
        at, _mm256_fmadd_ps(_mm256_castsi256_ps(found[0]), scale, offset),
        _mm256_fmadd_ps(_mm256_castsi256_ps(found[1]), scale, offset),
        _mm256_fmadd_ps(_mm256_castsi256_ps(found[2]), scale, offset),
        _mm256_fmadd_ps(_mm256_castsi256_ps(found[3]), scale, offset));
  }
};

// `(codes - zero) * scale` in groups of a row.
template <class T>
struct Int4Rows : Pairs {
  const T *scales, *zeros;

  Int4Rows(at::TensorList fields, at::ArrayRef<double>) : Pairs(fields[0], fields[1]) {
    check_fields(fields.size() == 3 && fields[1].sizes() == fields[2].sizes());
    scales = fields[1].const_data_ptr<T>();
    zeros = fields[2].const_data_ptr<T>();
  }

  template <class Sink>
  SUBCLASS_AOT_INLINE void expand(int64_t row, int64_t begin, int64_t count, Sink& sink) const {
    static constexpr float NUMBERS[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Sixteen table(NUMBERS);
    const uint8_t* from = at(row, begin);
    for (int64_t i = 0, last; i < count; i = last) {
      const int64_t of = (begin + i) / group;
      last = std::min((of + 1) * group - begin, count);
      const float scale = static_cast<float>(scales[row * groups + of]);
      const float zero = static_cast<float>(zeros[row * groups + of]);
      const __m256 factor = _mm256_set1_ps(scale), offset = _mm256_set1_ps(-zero * scale);
      for (int64_t at = i; at < last; at += BLOCK) {
        look_up<true>(from + at / 2, table, factor, offset, at, sink);
      }
    }
  }
};

// A level times the scale of a block, `codes * step + center`, which is rounded as the dtype of those has it.
template <class T>
struct NF4Rows : Pairs {
  const int8_t* codes;
  const T *steps, *centers;
  Sixteen table;

  NF4Rows(at::TensorList fields, at::ArrayRef<double> numbers) : Pairs(fields[0], fields[1]), table(near(numbers)) {
    check_fields(fields.size() == 4 && fields[1].scalar_type() == at::kChar);
    check_fields(fields[2].numel() == outputs && fields[3].numel() == outputs);
    codes = fields[1].const_data_ptr<int8_t>();
    steps = fields[2].const_data_ptr<T>();
    centers = fields[3].const_data_ptr<T>();
  }

  static Sixteen near(at::ArrayRef<double> numbers) {
    check_fields(numbers.size() == 16);
    float levels[16];
    for (int i = 0; i < 16; i++) {
      levels[i] = static_cast<float>(static_cast<T>(static_cast<float>(numbers[i])));
    }
    return Sixteen(levels);
  }

  template <class Sink>
  SUBCLASS_AOT_INLINE void expand(int64_t row, int64_t begin, int64_t count, Sink& sink) const {
    const uint8_t* from = at(row, begin);
    constexpr int64_t MOST = 32; // scales at a time
    float scales[MOST];
    for (int64_t i = 0, last; i < count; i = last) {
      const int64_t first = (begin + i) / group, end = std::min(first + MOST, groups);
      last = std::min(end * group - begin, count);
      scales_of(row, first, end, scales);
      for (int64_t at = i; at < last;) {
        const int64_t of = (begin + at) / group, until = std::min((of + 1) * group - begin, last);
        const __m256 scale = _mm256_set1_ps(scales[of - first]);
        for (; at < until; at += BLOCK) {
          look_up<IS_SHORT>(from + at / 2, table, scale, _mm256_setzero_ps(), at, sink);
        }
      }
    }
  }

 private:
  static constexpr bool IS_SHORT = std::is_same_v<T, at::BFloat16>;

  SUBCLASS_AOT_F16C void scales_of(int64_t row, int64_t first, int64_t end, float* out) const {
    const int8_t* of = codes + row * groups;
    if constexpr (IS_SHORT) {
      nf4_scales(of + first, steps[row], centers[row], out, end - first);
    } else {
      for (int64_t i = first; i < end; i++) {
        const T stepped = static_cast<T>(static_cast<float>(of[i]) * static_cast<float>(steps[row]));
        out[i - first] = static_cast<float>(static_cast<T>(static_cast<float>(stepped) + static_cast<float>(centers[row])));
      }
    }
  }
};

// Two of every four elements, and their places.
template <class T>
struct Sparse24Rows {
  const T* kept;
  const uint8_t* places;
  int64_t outputs, columns;

  Sparse24Rows(at::TensorList fields, at::ArrayRef<double>)
      : outputs(fields[0].size(0)), columns(4 * fields[0].size(1)) {
    check_fields(fields.size() == 2 && fields[0].dim() == 3 && fields[0].size(2) == 2);
    check_fields(fields[1].sizes() == fields[0].sizes() && fields[1].scalar_type() == at::kByte);
    kept = fields[0].const_data_ptr<T>();
    places = fields[1].const_data_ptr<uint8_t>();
  }

  float scale(int64_t) const {
    return 1;
  }

  const uint8_t* at(int64_t row, int64_t begin) const {
    return reinterpret_cast<const uint8_t*>(kept + (row * columns + begin) / 2);
  }

  static constexpr int64_t IN_A_LINE = 128 / sizeof(T);

  // Of eight fours, first all that are in the first place, then all in the second, and so on.
  static constexpr Order ORDER = order_of([](int i) { return static_cast<uint8_t>(i / 8 + i % 8 * 4); });

  struct Both {
    __m256 first, second; // of eight fours
  };

  SUBCLASS_AOT_F16C static Both both_of(const T* from) {
    if constexpr (std::is_same_v<T, at::BFloat16>) {
      const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
      const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
      return {_mm256_castsi256_ps(_mm256_slli_epi32(all, 16)), _mm256_castsi256_ps(_mm256_and_si256(all, high))};
    } else {
      const __m256 low = load_floats(from), high = load_floats(from + 8);
      const __m256d first = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
      const __m256d second = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
      return {
          _mm256_castpd_ps(_mm256_permute4x64_pd(first, 0xd8)), _mm256_castpd_ps(_mm256_permute4x64_pd(second, 0xd8))};
    }
  }

  template <int PLACE>
  SUBCLASS_AOT_F16C static __m256 at_place(const Both& both, __m256i first, __m256i second) {
    const __m256i place = _mm256_set1_epi32(PLACE);
    const __m256 one = _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(first, place)), both.first);
    const __m256 other = _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(second, place)), both.second);
    return _mm256_or_ps(one, other);
  }

  template <class Sink>
  SUBCLASS_AOT_INLINE void expand(int64_t row, int64_t begin, int64_t count, Sink& sink) const {
    const int64_t start = (row * columns + begin) / 2;
    for (int64_t i = 0; i < count; i += BLOCK) {
      const Both both = both_of(kept + start + i / 2);
      const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(places + start + i / 2));
      const __m256i words = _mm256_cvtepu16_epi32(pairs);
      const __m256i first = _mm256_and_si256(words, _mm256_set1_epi32(255)), second = _mm256_srli_epi32(words, 8);
      sink.take(
          i, at_place<0>(both, first, second), at_place<1>(both, first, second), at_place<2>(both, first, second),
          at_place<3>(both, first, second));
    }
  }
};

} // namespace subclass_aot
#endif
