// The memory that publishers wrote, kept open behind everybody's back: for bits that flip in
// memory, and for a writer that nobody fenced off.
//
// Owns a descriptor of its own for every arena that was opened to write. Threads: all on one.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "env/unique_fd.h"
#include "sim/sim_cluster.h"

namespace mooncake::sim {

class WrittenArenas {
 public:
  // Takes over the network's descriptor hook.
  explicit WrittenArenas(SimCluster& cluster);

  // Changes one bit of a payload of a READY revision whose memory is alive. False: there is none.
  bool FlipBit();

 private:
  SimCluster& cluster_;
  std::map<uint64_t, env::UniqueFd> by_arena_;
};

}  // namespace mooncake::sim
