#include "client/slab_cache.h"

#include <iterator>
#include <mutex>
#include <vector>

#include "env/clock.h"
#include "env/memory_file.h"

namespace mooncake::client {
namespace {

// How long a mapping is kept that nobody asked for.
constexpr int64_t kIdleMs = 60'000;

int64_t NowMs() { return env::SystemClock::Instance().MonotonicMs(); }

}  // namespace

std::shared_ptr<const env::Mapping> SlabCache::Find(const v1::Grant& grant,
                                                    const v1::NodeAddress& node) {
  const auto life = lives_.find(node.node_id());
  if (life == lives_.end() || life->second.instance_id != grant.instance_id()) return nullptr;
  const auto entry = life->second.slabs.find(grant.arena_id());
  if (entry == life->second.slabs.end()) return nullptr;
  entry->second.used_ms = NowMs();
  return entry->second.mapping;
}

void SlabCache::DropIdle(int64_t now_ms) {
  for (auto life = lives_.begin(); life != lives_.end();) {
    std::erase_if(life->second.slabs,
                  [now_ms](const auto& slab) { return slab.second.used_ms < now_ms - kIdleMs; });
    life = life->second.slabs.empty() ? lives_.erase(life) : std::next(life);
  }
}

Result<std::shared_ptr<const env::Mapping>> SlabCache::Map(const v1::Grant& grant,
                                                           const v1::NodeAddress& node,
                                                           const rpc::CallBounds& bounds) {
  {
    std::lock_guard lock(mutex_);
    if (auto found = Find(grant, node); found != nullptr) return found;
  }
  // Outside the lock: a node that does not answer holds up nobody else. Two that map the same slab
  // at once keep the later mapping.
  MC_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::NodeChannel> channel, nodes_.Get(node, bounds));
  MC_ASSIGN_OR_RETURN(env::UniqueFd fd, channel->OpenSlab(grant, bounds));
  MC_ASSIGN_OR_RETURN(const env::MemoryFile file,
                      env::MemoryFile::Adopt(std::move(fd), grant.arena_bytes()));
  MC_ASSIGN_OR_RETURN(env::Mapping mapped, file.Map(env::MapAccess::kReadOnly));
  auto mapping = std::make_shared<const env::Mapping>(std::move(mapped));
  const int64_t now_ms = NowMs();
  std::lock_guard lock(mutex_);
  DropIdle(now_ms);
  Life& life = lives_[node.node_id()];
  if (life.instance_id != grant.instance_id()) life = {grant.instance_id(), {}};
  life.slabs[grant.arena_id()] = {mapping, now_ms};
  return mapping;
}

size_t SlabCache::size() const {
  std::lock_guard lock(mutex_);
  size_t slabs = 0;
  for (const auto& [node_id, life] : lives_) slabs += life.slabs.size();
  return slabs;
}

}  // namespace mooncake::client
