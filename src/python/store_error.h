// mooncake._core.StoreError(code name, message): a store's failure as an exception, for callers
// that want no numbers. BindStore makes the class.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "base/status.h"

namespace mooncake::python {

[[noreturn]] void ThrowStoreError(const Status& status);

inline void ThrowUnlessOk(const Status& status) {
  if (!status.ok()) ThrowStoreError(status);
}

template <class T>
T TakeOrThrow(Result<T> result) {
  if (!result.ok()) ThrowStoreError(result.status());
  return *std::move(result);
}

}  // namespace mooncake::python
