// What the kernels for the Python key have to know of dispatch keys and schemas.
#pragma once

#include "common.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

namespace subclass_aot {

using c10::DispatchKey;
using c10::DispatchKeySet;

// Below the Python key, what stands above it is over: torch's own fallback excludes the same keys.
constexpr DispatchKeySet ABOVE = DispatchKeySet(DispatchKeySet::FULL) ^
    (DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Python) | DispatchKeySet(DispatchKey::Python));
constexpr DispatchKeySet ABOVE_LAZY_BITS = ABOVE.remove(DispatchKey::Conjugate).remove(DispatchKey::Negative);

#if TORCH_VERSION_MINOR >= 13
constexpr DispatchKeySet FAKE = DispatchKeySet(DispatchKey::Fake);
#else
constexpr DispatchKeySet FAKE = DispatchKeySet();
#endif

// Tensors that stand for something else than what is in their memory.
constexpr DispatchKeySet STRANGE = DispatchKeySet({
                                       DispatchKey::Functionalize,
                                       DispatchKey::Conjugate,
                                       DispatchKey::Negative,
                                       DispatchKey::ZeroTensor,
                                       DispatchKey::FuncTorchBatched,
                                       DispatchKey::BatchedNestedTensor,
                                       DispatchKey::Batched,
                                       DispatchKey::FuncTorchGradWrapper,
                                   }) |
    FAKE;

// Modes and transforms that are on in this thread by keys.
constexpr DispatchKeySet MODES = DispatchKeySet({
                                     DispatchKey::FuncTorchDynamicLayerFrontMode,
                                     DispatchKey::FuncTorchDynamicLayerBackMode,
                                     DispatchKey::FuncTorchVmapMode,
                                     DispatchKey::Functionalize,
                                     DispatchKey::PythonDispatcher,
                                 }) |
    FAKE;

// What the schema of an operator says of its arguments and results.
struct Effects {
  size_t arguments = 0, results = 0;
  c10::SmallVector<size_t, 4> written; // arguments that are the results, one by one
  int viewed = -1; // the argument that the first result is a view of

  // Why there can be no kernel for this operator; empty if there can.
  std::string read(const c10::FunctionSchema& schema) {
    arguments = schema.arguments().size();
    results = schema.returns().size();
    for (size_t i = 0; i < arguments; i++) {
      const auto& argument = schema.arguments()[i];
      const auto kind = argument.real_type()->str();
      if (kind.find("Tensor") != std::string::npos && kind != "Tensor" && kind != "Tensor?") {
        return "it takes lists of tensors";
      }
      if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) {
        if (argument.kwarg_only()) {
          return "it writes keyword arguments";
        }
        written.push_back(i);
      }
    }
    if (results == 0 || (!written.empty() && written.size() != results)) {
      return "its results are not what it writes";
    }
    for (size_t r = 0; r < results; r++) {
      const auto& result = schema.returns()[r];
      if (result.real_type()->str() != "Tensor") {
        return "it returns something else than tensors";
      }
      if (result.alias_info() == nullptr) {
        if (!written.empty()) {
          return "it writes and returns another tensor";
        }
        continue;
      }
      for (size_t i = 0; i < arguments; i++) {
        const auto* of = schema.arguments()[i].alias_info();
        if (of == nullptr || of->beforeSets() != result.alias_info()->beforeSets()) {
          continue;
        }
        if (of->isWrite() ? written[r] != i : r != 0) {
          return "it returns what it writes in another order";
        }
        if (!of->isWrite()) {
          viewed = static_cast<int>(i);
        }
      }
    }
    return "";
  }
};

} // namespace subclass_aot
