// Space of a disk that is taken while there is plenty, so that what must be written when the disk
// is full can be: a file of no content that is removed then.
//
// Owns the file. Another writer of the same disk may be quicker to take what is given back.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace mooncake::env {

class DiskReserve {
 public:
  // 0 bytes: there is none, and Keep is always OK.
  DiskReserve(std::string path, uint64_t bytes) : path_(std::move(path)), bytes_(bytes) {}

  // Takes the space, unless it is taken already. EXHAUSTED, with the needed and the free bytes: the
  // disk has less than twice that, and nothing is taken.
  Status Keep();
  // Gives it back. False: there was nothing to give.
  bool Release();

 private:
  const std::string path_;
  const uint64_t bytes_;
  bool kept_ = false;
};

}  // namespace mooncake::env
