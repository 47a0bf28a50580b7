// Slabs of nodes of this host, mapped read-only, each once.
//
// A mapping belongs to one life of a node: when a node is met under another instance id, what was
// mapped of the earlier one goes. A slab that its node gave up reads as zeros, so that holding on
// to it costs addresses and no memory; mappings that nobody asked for in a while go when another is
// made.
//
// Threads: every method from any thread. What Map gave stays mapped for as long as it is held.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "client/session.h"
#include "env/mapping.h"
#include "env/sync.h"
#include "mooncake/v1/types.pb.h"

namespace mooncake::client {

class SlabCache {
 public:
  explicit SlabCache(NodeChannels& nodes) : nodes_(nodes) {}

  // `grant` is SLAB_READ and `node` the address that came with it. Errors as
  // NodeChannel::OpenSlab's.
  Result<std::shared_ptr<const env::Mapping>> Map(const v1::Grant& grant,
                                                  const v1::NodeAddress& node,
                                                  const rpc::CallBounds& bounds);

  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<const env::Mapping> mapping;
    int64_t used_ms = 0;
  };
  struct Life {
    std::string instance_id;
    std::map<uint64_t, Entry> slabs;
  };

  std::shared_ptr<const env::Mapping> Find(const v1::Grant& grant, const v1::NodeAddress& node);
  void DropIdle(int64_t now_ms);

  NodeChannels& nodes_;
  mutable env::Mutex mutex_;
  std::map<std::string, Life> lives_;  // by node id
};

}  // namespace mooncake::client
