// The arenas that an import writes: opened and mapped when the first of their objects is written,
// unmapped when the last one is, so that a writer never maps the whole model at once.
//
// Owns the mappings. Never allocates a place: extents and grants are the Master's.
// Threads: Locate before anything else; then every method from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "client/session.h"
#include "env/mapping.h"
#include "env/sync.h"
#include "mooncake/v1/master.pb.h"
#include "reshard/upload_plan.h"

namespace mooncake::client {

class WriteArenas {
 public:
  // `retry_ms`: how long a node may take to open an arena.
  WriteArenas(const reshard::UploadPlan& plan, NodeChannels& nodes, int64_t retry_ms)
      : plan_(plan), nodes_(nodes), limits_{retry_ms, {}} {}

  // Takes in what GetImport answered for some of the plan's participants. INTERNAL when an extent
  // does not fit its object or its arena.
  Status Locate(const v1::GetImportReply& reply);

  // No arena will lack space afterwards (rpc/node_channel.h). EXHAUSTED: the needed bytes of all of
  // them, and the node's answer about the first that does not fit.
  Status Reserve() const;

  // Where the object (an index into the plan's objects) is written. `opened` is called once for
  // every arena that was opened for it.
  Result<std::byte*> Open(uint32_t object, const std::function<Status()>& opened);
  // The object is whole: its bytes are not touched through this any more.
  void Close(uint32_t object);

  // Unmaps what is left.
  void Clear();

 private:
  struct Arena {
    v1::Grant grant;
    v1::NodeAddress node;
    env::Mutex opening;
    env::Mapping mapping;       // under `opening`
    uint32_t objects_left = 0;  // under `opening`
  };
  struct Place {
    std::shared_ptr<Arena> arena;
    uint64_t offset = 0;
  };

  const reshard::UploadPlan& plan_;
  NodeChannels& nodes_;
  const CallLimits limits_;
  std::map<uint64_t, std::shared_ptr<Arena>> arenas_;
  std::unordered_map<uint32_t, Place> places_;  // by object
};

}  // namespace mooncake::client
