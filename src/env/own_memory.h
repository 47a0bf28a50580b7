// Whether addresses that somebody gave are memory of this process, so that a wrong one is an error
// and not the end of the process.
//
// The kernel is asked for the first and the last byte of each range (process_vm_readv of ourselves,
// one call for hundreds of ranges). Memory of devices that is mapped here may be refused to it
// though it can be used: the list of mappings decides then, which is read at most once a second.
// Not seen: a hole in the middle of a range, memory that is unmapped after it was looked at, and
// that memory must not be written while all of it can be read.
// Threads: every method from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "env/peer_memory.h"
#include "env/sync.h"

namespace mooncake::env {

struct OwnRange {
  const void* address = nullptr;
  uint64_t bytes = 0;  // 0: nothing is asked
};

class OwnMemory {
 public:
  OwnMemory();

  // One Status per range. INVALID_ARGUMENT: it is no memory that can be read (`write`: and
  // written). All OK where the kernel does not answer.
  std::vector<Status> Check(std::span<const OwnRange> ranges, bool write);

 private:
  struct Mapped {
    uint64_t end = 0;
    bool writable = false;
  };
  using Mappings = std::map<uint64_t, Mapped>;  // by begin, those that can be read

  bool ProbesSucceed(std::span<const OwnRange> ranges) const;
  std::optional<Mappings> ReadMappings();

  const std::optional<PeerProcess> self_;
  Mutex mutex_;
  Mappings mappings_;
  int64_t read_ms_ = 0;
};

}  // namespace mooncake::env
