// Status and Result: how every failure of the world travels.
//
// A Status is a code plus a message that carries the values that disagree. No exceptions cross a
// function boundary inside src/; the Python binding maps codes to exception classes. A programmer's
// error is an MC_CHECK (check.h), never a Status.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace mooncake {

// On the wire and in the log: never renumber.
enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument = 1,
  kNotFound = 2,
  kNotReady = 3,
  kConflict = 4,
  kStaleGeneration = 5,
  kBusy = 6,
  kLeaseExpired = 7,
  kDurabilityFailed = 8,
  kPolicyUnsatisfiable = 9,
  kUnavailable = 10,
  kExhausted = 11,
  kCorrupt = 12,
  kUnsupported = 13,
  kCancelled = 14,
  kOutcomeUnknown = 15,
  kInternal = 16,
  kPermissionDenied = 17,
};
inline constexpr uint8_t kCodeMax = 17;

// "INVALID_ARGUMENT", ... as the RFC spells them.
std::string_view CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {
    MC_CHECK(code != Code::kOk);
  }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // "NOT_FOUND: no revision weights/d/m/r/1"; "OK".
  std::string ToString() const;

  // The same code with "context: " in front of the message; OK stays OK.
  Status WithContext(std::string_view context) const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }
inline Status InvalidArgument(std::string m) { return {Code::kInvalidArgument, std::move(m)}; }
inline Status NotFound(std::string m) { return {Code::kNotFound, std::move(m)}; }
inline Status NotReady(std::string m) { return {Code::kNotReady, std::move(m)}; }
inline Status Conflict(std::string m) { return {Code::kConflict, std::move(m)}; }
inline Status StaleGeneration(std::string m) { return {Code::kStaleGeneration, std::move(m)}; }
inline Status Busy(std::string m) { return {Code::kBusy, std::move(m)}; }
inline Status LeaseExpired(std::string m) { return {Code::kLeaseExpired, std::move(m)}; }
inline Status DurabilityFailed(std::string m) { return {Code::kDurabilityFailed, std::move(m)}; }
inline Status PolicyUnsatisfiable(std::string m) {
  return {Code::kPolicyUnsatisfiable, std::move(m)};
}
inline Status Unavailable(std::string m) { return {Code::kUnavailable, std::move(m)}; }
inline Status Exhausted(std::string m) { return {Code::kExhausted, std::move(m)}; }
inline Status Corrupt(std::string m) { return {Code::kCorrupt, std::move(m)}; }
inline Status Unsupported(std::string m) { return {Code::kUnsupported, std::move(m)}; }
inline Status Cancelled(std::string m) { return {Code::kCancelled, std::move(m)}; }
inline Status OutcomeUnknown(std::string m) { return {Code::kOutcomeUnknown, std::move(m)}; }
inline Status Internal(std::string m) { return {Code::kInternal, std::move(m)}; }
inline Status PermissionDenied(std::string m) { return {Code::kPermissionDenied, std::move(m)}; }

// Either a value or a Status that is not OK.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(Status status) : state_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    MC_CHECK(!std::get<Status>(state_).ok());
  }
  Result(T value) : state_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 1; }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }

  T& value() & { return MC_CHECK(ok()), std::get<T>(state_); }
  const T& value() const& { return MC_CHECK(ok()), std::get<T>(state_); }
  T&& value() && { return MC_CHECK(ok()), std::get<T>(std::move(state_)); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<Status, T> state_;
};

}  // namespace mooncake

#define MC_CONCAT_INNER(a, b) a##b
#define MC_CONCAT(a, b) MC_CONCAT_INNER(a, b)

// Returns the Status of `expr` from the enclosing function unless it is OK.
#define MC_RETURN_IF_ERROR(expr)                                                  \
  do {                                                                            \
    if (::mooncake::Status mc_status = (expr); !mc_status.ok()) return mc_status; \
  } while (false)

// MC_ASSIGN_OR_RETURN(auto x, F()): x = value of F(), or return F()'s Status.
#define MC_ASSIGN_OR_RETURN(lhs, expr)                                                        \
  auto MC_CONCAT(mc_result_, __LINE__) = (expr);                                              \
  if (!MC_CONCAT(mc_result_, __LINE__).ok()) return MC_CONCAT(mc_result_, __LINE__).status(); \
  lhs = *std::move(MC_CONCAT(mc_result_, __LINE__))
