// errno as a Status: the code a caller can act on, and a message with what was attempted.
#pragma once

#include <string_view>

#include "base/status.h"

namespace mooncake::env {

// "cannot open /a/b: No such file or directory (ENOENT)". `error` must not be 0.
//
//   NOT_FOUND         ENOENT
//   EXHAUSTED         ENOSPC EDQUOT EFBIG EMFILE ENFILE ENOMEM ENOBUFS
//   UNAVAILABLE       EIO ECONNREFUSED ECONNRESET EPIPE ENOTCONN EAGAIN EBUSY ETXTBSY ETIMEDOUT
//   INVALID_ARGUMENT  EACCES EPERM EROFS EINVAL EEXIST ENOTDIR EISDIR ENOTEMPTY ENAMETOOLONG ELOOP
//   UNSUPPORTED       EOPNOTSUPP ENOSYS ENODEV
//   INTERNAL          anything else
Status ErrnoStatus(int error, std::string_view attempted);

}  // namespace mooncake::env
