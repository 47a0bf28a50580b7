#include "env/errno_status.h"

#include <cerrno>
#include <cstring>
#include <string>

namespace mooncake::env {
namespace {

Code CodeOfErrno(int error) {
  switch (error) {
    case ENOENT:
      return Code::kNotFound;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
      return Code::kExhausted;
    case EIO:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
    case EAGAIN:
    case EBUSY:
    case ETXTBSY:
    case ETIMEDOUT:
      return Code::kUnavailable;
    case EACCES:
    case EPERM:
    case EROFS:
    case EINVAL:
    case EEXIST:
    case ENOTDIR:
    case EISDIR:
    case ENOTEMPTY:
    case ENAMETOOLONG:
    case ELOOP:
      return Code::kInvalidArgument;
    case EOPNOTSUPP:
    case ENOSYS:
    case ENODEV:
      return Code::kUnsupported;
    default:
      return Code::kInternal;
  }
}

}  // namespace

Status ErrnoStatus(int error, std::string_view attempted) {
  MC_CHECK(error != 0);
  const char* name = strerrorname_np(error);
  const char* text = strerrordesc_np(error);
  std::string message = "cannot " + std::string(attempted) + ": ";
  message += text != nullptr ? text : "unknown error";
  message += " (" + (name != nullptr ? std::string(name) : "errno " + std::to_string(error)) + ")";
  return {CodeOfErrno(error), std::move(message)};
}

}  // namespace mooncake::env
