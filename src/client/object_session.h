// What all operations of one ObjectClient share: the Master, the nodes and what is known of them,
// copy threads. Threads: every method from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/object_client.h"
#include "client/put_keeper.h"
#include "client/session.h"
#include "client/slab_cache.h"
#include "env/own_memory.h"
#include "env/sync.h"
#include "model/identity.h"
#include "transfer/piece_pool.h"

namespace mooncake::client {

// Instances of nodes of which something was learned.
class InstanceSet {
 public:
  bool Has(const std::string& instance_id) const {
    std::lock_guard lock(mutex_);
    return ids_.contains(instance_id);
  }
  void Add(const std::string& instance_id) {
    std::lock_guard lock(mutex_);
    ids_.insert(instance_id);
  }

 private:
  mutable env::Mutex mutex_;
  std::set<std::string> ids_;
};

struct ObjectSession {
  ObjectSession(std::shared_ptr<rpc::MasterApi> master,
                std::shared_ptr<rpc::NodeConnector> connector, ObjectClientOptions resolved)
      : options(std::move(resolved)),
        calls(master, options.client_id),
        keeper(std::move(master), options.client_id),
        nodes(std::move(connector)),
        slabs(nodes),
        pool(options.threads) {}

  CallLimits Limits() const { return {options.retry_ms, {}}; }
  // Whether the node can share memory with this process.
  bool Shares(const v1::NodeAddress& node) const {
    return options.share_memory && node.host_id() == options.host_id;
  }

  const ObjectClientOptions options;
  MasterCalls calls;
  PutKeeper keeper;
  NodeChannels nodes;
  SlabCache slabs;
  env::OwnMemory memory;
  InstanceSet without_pull;   // answered that they cannot read this process's memory
  InstanceSet without_slabs;  // answered that they hand out no slabs
  std::atomic<uint64_t> next_put_id{1};
  transfer::PiecePool pool;
};

// Requests about many keys are cut at this many, and at this many bytes of keys.
inline constexpr size_t kRequestKeysMax = 4096;
inline constexpr uint64_t kRequestKeyBytesMax = uint64_t{8} << 20;

// The end of the request that begins with entry `begin` of `count`; `key_bytes(i)` is the size of
// entry i's key.
template <class KeyBytes>
size_t EndOfRequest(size_t begin, size_t count, const KeyBytes& key_bytes) {
  uint64_t bytes = 0;
  size_t end = begin;
  while (end < count && end - begin < kRequestKeysMax) {
    bytes += key_bytes(end);
    if (end > begin && bytes > kRequestKeyBytesMax) break;
    ++end;
  }
  return end;
}

// Why an item's pieces cannot be used, one Status per item: an address is 0, or of no memory.
// `write`: they are filled.
template <class Item>
std::vector<Status> CheckPieces(env::OwnMemory& memory, std::span<const Item> items, bool write) {
  std::vector<Status> statuses(items.size());
  std::vector<env::OwnRange> ranges;
  std::vector<size_t> owners;
  for (size_t i = 0; i < items.size(); ++i) {
    for (const auto& piece : items[i].pieces) {
      if (piece.bytes == 0) continue;
      ranges.push_back({piece.address, piece.bytes});
      owners.push_back(i);
    }
  }
  const std::vector<Status> checked = memory.Check(ranges, write);
  for (size_t r = 0; r < ranges.size(); ++r) {
    if (!checked[r].ok() && statuses[owners[r]].ok()) statuses[owners[r]] = checked[r];
  }
  return statuses;
}

using model::KeyText;

}  // namespace mooncake::client
