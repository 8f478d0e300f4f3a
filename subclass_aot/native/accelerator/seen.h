// Which tensors of a call are one.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace subclass_aot {

// Gives the tensors of the call that was traced numbers: to each that of the first time where it comes again.
class Numbers {
 public:
  uint32_t number_of(const void* object) {
    return first_.emplace(object, next_++).first->second;
  }

  size_t given() const {
    return next_;
  }

 private:
  std::unordered_map<const void*, uint32_t> first_;
  uint32_t next_ = 0;
};

// Gives the tensors of a later call the same numbers, as long as there are no more of them, and forgets them at once.
class Seen {
 public:
  explicit Seen(size_t count) {
    size_t size = 16;
    while (size < 2 * count) {
      size *= 2;
    }
    slots_.resize(size);
  }

  void begin() {
    if (++now_ == 0) { // after 2^32 calls: what is left of the first ones must not look like this one's
      std::fill(slots_.begin(), slots_.end(), Slot{});
      now_ = 1;
    }
    next_ = 0;
  }

  uint32_t number_of(const void* object) {
    size_t mask = slots_.size() - 1;
    size_t at = (reinterpret_cast<uintptr_t>(object) >> 4) * 0x9E3779B97F4A7C15ull >> 20 & mask;
    while (slots_[at].when == now_ && slots_[at].object != object) {
      at = (at + 1) & mask;
    }
    if (slots_[at].when != now_) {
      slots_[at] = {object, now_, next_};
    }
    next_++;
    return slots_[at].number;
  }

 private:
  struct Slot {
    const void* object = nullptr;
    uint32_t when = 0, number = 0;
  };
  std::vector<Slot> slots_;
  uint32_t now_ = 0, next_ = 0;
};

} // namespace subclass_aot
