// What the ordinary Store's calls answer, as lists for Python; and which failures are worth a line
// in the log.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "client/object_client.h"

namespace mooncake::python {

namespace nb = nanobind;

template <class T>
nb::list ListOf(const std::vector<T>& values) {
  nb::list list;
  for (const T& value : values) list.append(value);
  return list;
}

inline nb::list Same(size_t count, int code) { return ListOf(std::vector<int>(count, code)); }

// Whether a failure is nothing that the store's user can have meant or must expect.
inline bool IsUnexpected(const Status& status, bool of_transfer = false) {
  switch (status.code()) {
    case Code::kOk:
      return false;
    case Code::kNotFound:
    case Code::kNotReady:
    case Code::kBusy:
    case Code::kExhausted:
      return of_transfer;
    default:
      return true;
  }
}
inline bool IsUnexpected(const client::PutResult& result) {
  return IsUnexpected(result.status, result.of_transfer);
}
inline bool IsUnexpected(const client::ReadResult& result) {
  return IsUnexpected(result.status, result.of_transfer);
}
inline const Status& StatusOf(const Status& status) { return status; }
template <class Answer>
const Status& StatusOf(const Answer& answer) {
  return answer.status;
}

// The first of such failures is logged, once a batch.
template <class Results>
void LogFailures(const char* what, const Results& results) {
  size_t failed = 0;
  const Status* first = nullptr;
  for (const auto& result : results) {
    if (!IsUnexpected(result)) continue;
    if (first == nullptr) first = &StatusOf(result);
    ++failed;
  }
  if (first == nullptr) return;
  Log().warn("store: {} failed for {} of {} objects: {}", what, failed, results.size(),
             first->ToString());
}

}  // namespace mooncake::python
