// The product of rows and a weight of any format: `x[rows, N] @ weight[M, N].t()`, with sums in float, without the
// dense weight in memory. See `tensors/quantizing/by_rows.py` for who calls it.
#pragma once

#include "rows.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#if defined(__x86_64__)
namespace subclass_aot {

constexpr int64_t DEPTH = 1024; // columns whose numbers stay in the first cache
constexpr int64_t AHEAD_ROWS = 2; // such parts of a row: by then the next codes have come
constexpr int WIDTH = 4; // rows of the weight at a time
constexpr int64_t FEW_ROWS = 16; // of more rows of `x`, torch's product of floats is faster
constexpr int64_t PANEL = 1 << 18; // floats of a weight that stay in the second cache
constexpr int64_t EACH = 65536; // codes, for which another thread pays

// Adds the products of `ROWS` rows of `x` and of four of a weight.
template <int ROWS>
SUBCLASS_AOT_F16C inline void add_dots(const float* x, int64_t stride, const float* weight, int64_t count, float* sums) {
  constexpr int CHAINS = ROWS == 1 ? 2 : 1; // sums that do not wait for each other
  __m256 found[ROWS][WIDTH][CHAINS] = {};
  for (int64_t i = 0; i < count; i += 8 * CHAINS) {
#pragma GCC unroll 2
    for (int chain = 0; chain < CHAINS; chain++) {
      const int64_t at = i + 8 * chain;
      __m256 given[ROWS];
#pragma GCC unroll 4
      for (int row = 0; row < ROWS; row++) {
        given[row] = _mm256_loadu_ps(x + row * stride + at);
      }
#pragma GCC unroll 4
      for (int j = 0; j < WIDTH; j++) {
        const __m256 of = _mm256_load_ps(weight + j * DEPTH + at);
#pragma GCC unroll 4
        for (int row = 0; row < ROWS; row++) {
          found[row][j][chain] = _mm256_fmadd_ps(given[row], of, found[row][j][chain]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < ROWS; row++) {
#pragma GCC unroll 4
    for (int j = 0; j < WIDTH; j++) {
      __m256 sum = found[row][j][0];
      if constexpr (CHAINS == 2) {
        sum = _mm256_add_ps(sum, found[row][j][1]);
      }
      sums[row * WIDTH + j] += sum_of(sum);
    }
  }
}

// Writes the numbers of a part of a row.
struct Written {
  float* out;

  SUBCLASS_AOT_INLINE void take(int64_t at, __m256 a, __m256 b, __m256 c, __m256 d) {
    _mm256_store_ps(out + at, a);
    _mm256_store_ps(out + at + 8, b);
    _mm256_store_ps(out + at + 16, c);
    _mm256_store_ps(out + at + 24, d);
  }
};

// Adds up their products with those of one row of `x`.
struct Dot {
  const float* x;
  __m256 sums[4] = {};

  SUBCLASS_AOT_INLINE void take(int64_t at, __m256 a, __m256 b, __m256 c, __m256 d) {
    sums[0] = _mm256_fmadd_ps(_mm256_loadu_ps(x + at), a, sums[0]);
    sums[1] = _mm256_fmadd_ps(_mm256_loadu_ps(x + at + 8), b, sums[1]);
    sums[2] = _mm256_fmadd_ps(_mm256_loadu_ps(x + at + 16), c, sums[2]);
    sums[3] = _mm256_fmadd_ps(_mm256_loadu_ps(x + at + 24), d, sums[3]);
  }

  SUBCLASS_AOT_F16C float sum() const {
    return sum_of(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
  }
};

// Fetches the codes of a part of a row that comes next: rows lie further apart than a processor looks ahead.
template <class Rows>
inline void fetch(const Rows& weight, int64_t row, int64_t begin) {
  if (row < weight.outputs) {
    const uint8_t* from = weight.at(row, begin);
    for (int64_t i = 0; i < std::min(DEPTH, weight.columns - begin); i += Rows::IN_A_LINE) {
      __builtin_prefetch(from + 64 * (i / Rows::IN_A_LINE));
    }
  }
}

// Writes the products of one row and of some rows of a weight.
template <class Rows, class T>
SUBCLASS_AOT_F16C void one_row(const Rows& weight, const float* x, int64_t begin, int64_t end, T* out) {
  const int64_t columns = weight.columns;
  for (int64_t row = begin; row < end; row++) {
    Dot dot{x};
    for (int64_t k = 0; k < columns; k += DEPTH) {
      const int64_t ahead = k + AHEAD_ROWS * DEPTH;
      fetch(weight, row + ahead / columns, ahead % columns);
      dot.x = x + k;
      weight.expand(row, k, std::min(DEPTH, columns - k), dot);
    }
    out[row] = static_cast<T>(dot.sum() * weight.scale(row));
  }
}

// Writes the products of a few rows and of some of a weight.
template <class Rows, class T>
SUBCLASS_AOT_F16C void few_rows(
    const Rows& weight, const float* x, int64_t rows, int64_t begin, int64_t end, T* out) {
  alignas(32) float numbers[WIDTH * DEPTH] = {};
  const int64_t columns = weight.columns;
  for (int64_t first = begin; first < end; first += WIDTH) {
    const int64_t count = std::min<int64_t>(WIDTH, end - first);
    float sums[FEW_ROWS * WIDTH] = {};
    for (int64_t k = 0; k < columns; k += DEPTH) {
      const int64_t depth = std::min(DEPTH, columns - k);
      const bool is_last = k + depth == columns;
      for (int64_t j = 0; j < count; j++) {
        fetch(weight, is_last ? first + j + WIDTH : first + j, is_last ? 0 : k + depth);
        Written written{numbers + j * DEPTH};
        weight.expand(first + j, k, depth, written);
      }
      int64_t row = 0;
      for (; row + 2 <= rows; row += 2) {
        add_dots<2>(x + row * columns + k, columns, numbers, depth, sums + row * WIDTH);
      }
      if (row < rows) {
        add_dots<1>(x + row * columns + k, columns, numbers, depth, sums + row * WIDTH);
      }
    }
    for (int64_t j = 0; j < count; j++) {
      const float scale = weight.scale(first + j);
      for (int64_t row = 0; row < rows; row++) {
        out[row * weight.outputs + first + j] = static_cast<T>(sums[row * WIDTH + j] * scale);
      }
    }
  }
}

// Writes the numbers of a row.
template <class Rows>
SUBCLASS_AOT_F16C void expand_row(const Rows& weight, int64_t row, float* out) {
  Written written{out};
  weight.expand(row, 0, weight.columns, written);
}

// Writes the products of many rows: some rows of the weight at a time are floats in memory.
template <class Rows, class T>
void more_rows(const Rows& weight, float* x, int64_t rows, T* out) {
  const int64_t columns = weight.columns, outputs = weight.outputs;
  const int64_t most = std::min(std::max<int64_t>(PANEL / columns, 16), outputs);
  const std::unique_ptr<float[], void (*)(void*)> panel(
      static_cast<float*>(std::aligned_alloc(64, most * columns * sizeof(float))), std::free);
  std::vector<float> part(rows * most);
  const at::TensorOptions floats(at::kFloat);
  const at::Tensor given = at::from_blob(x, {rows, columns}, floats);
  for (int64_t first = 0; first < outputs; first += most) {
    const int64_t count = std::min(most, outputs - first);
    at::parallel_for(0, count, EACH / columns + 1, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; j++) {
        expand_row(weight, first + j, panel.get() + j * columns);
      }
    });
    at::Tensor result = at::from_blob(part.data(), {rows, count}, floats);
    at::mm_out(result, given, at::from_blob(panel.get(), {count, columns}, floats).t());
    for (int64_t row = 0; row < rows; row++) {
      for (int64_t j = 0; j < count; j++) {
        out[row * outputs + first + j] = static_cast<T>(part[row * count + j] * weight.scale(first + j));
      }
    }
  }
}

template <template <class> class Rows, class T>
SUBCLASS_AOT_F16C void write_product(
    const at::Tensor& x, at::TensorList fields, at::ArrayRef<double> numbers, at::Tensor& out) {
  const Rows<T> weight(fields, numbers);
  const int64_t rows = x.size(0), columns = weight.columns;
  TORCH_CHECK(
      x.size(1) == columns && columns % BLOCK == 0 && out.size(1) == weight.outputs,
      "a row of x has ", x.size(1), " elements, and one of the weight ", columns);
  if (x.numel() == 0 || out.numel() == 0) {
    out.zero_();
    return;
  }
  std::vector<float> given(rows * columns);
  const T* from = x.const_data_ptr<T>();
  for (int64_t block = 0; block < rows * columns; block += BLOCK) {
    for (int64_t i = 0; i < BLOCK; i++) {
      given[block + i] = static_cast<float>(from[block + Rows<T>::ORDER.columns[i]]);
    }
  }
  T* to = out.mutable_data_ptr<T>();
  if (rows > FEW_ROWS) {
    more_rows(weight, given.data(), rows, to);
    return;
  }
  at::parallel_for(0, weight.outputs, EACH / columns + 1, [&](int64_t begin, int64_t end) {
    if (rows == 1) {
      one_row(weight, given.data(), begin, end, to);
    } else {
      few_rows(weight, given.data(), rows, begin, end, to);
    }
  });
}

// `x[rows, N]`, the fields of a weight `[M, N]`, the name of its class, and numbers that go with that -> `[rows, M]`
template <template <class> class Rows>
at::Tensor product(const at::Tensor& x, at::TensorList fields, at::ArrayRef<double> numbers = {}) {
  at::Tensor out = at::empty({x.size(0), fields[0].size(0)}, x.options());
  if (x.scalar_type() == at::kFloat) {
    write_product<Rows, float>(x, fields, numbers, out);
  } else if (x.scalar_type() == at::kBFloat16) {
    write_product<Rows, at::BFloat16>(x, fields, numbers, out);
  } else {
    write_product<Rows, at::Half>(x, fields, numbers, out);
  }
  return out;
}

inline at::Tensor weight_mm(
    const at::Tensor& x, at::TensorList fields, c10::string_view kind, at::ArrayRef<double> numbers) {
  TORCH_CHECK(x.dim() == 2 && x.is_contiguous(), "x has ", x.dim(), " dims, where it has 2 without gaps");
  check_fields(fields.size() >= 2);
  for (const at::Tensor& field : fields) {
    check_fields(field.is_contiguous() && field.device().is_cpu() && field.dim() >= 2);
  }
  at::NoGradGuard no_grad;
  if (kind == "Int8Weight") {
    return product<Int8Rows>(x, fields);
  }
  if (kind == "Float8Weight") {
    return product<Float8Rows>(x, fields);
  }
  if (kind == "Int4Weight") {
    return product<Int4Rows>(x, fields);
  }
  if (kind == "NF4Weight") {
    return product<NF4Rows>(x, fields, numbers);
  }
  TORCH_CHECK(kind == "Sparse24Weight", "there is no product with a ", kind);
  return product<Sparse24Rows>(x, fields);
}

} // namespace subclass_aot
#endif
