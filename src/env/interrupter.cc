#include "env/interrupter.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>

#include "env/errno_status.h"

namespace mooncake::env {

Result<Interrupter> Interrupter::Create() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "create an eventfd");
  return Interrupter(std::move(fd));
}

void Interrupter::Interrupt() const {
  const uint64_t one = 1;
  // The only failure is a full counter, which is readable already.
  [[maybe_unused]] const ssize_t ignored = ::write(fd_.get(), &one, sizeof one);
}

bool Interrupter::interrupted() const {
  pollfd item{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&item, 1, 0) == 1;
}

}  // namespace mooncake::env
