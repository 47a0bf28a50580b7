// How failures of the C++ side reach Python: a Status becomes an exception here and nowhere else.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "base/status.h"

namespace mooncake::python {

// ValueError.
[[noreturn]] void Refuse(const std::string& message);

// Of a contract or planner function: INVALID_ARGUMENT is a ValueError with the bare message;
// anything else would be a fault of ours, RuntimeError.
[[noreturn]] void Throw(const Status& status);

inline void ThrowIfError(const Status& status) {
  if (!status.ok()) Throw(status);
}

template <class T>
T ValueOrThrow(Result<T> result) {
  if (!result.ok()) Throw(result.status());
  return *std::move(result);
}

}  // namespace mooncake::python
