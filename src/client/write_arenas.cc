#include "client/write_arenas.h"

#include <algorithm>
#include <string_view>

#include "env/memory_file.h"

namespace mooncake::client {
namespace {

// Index of the plan's object of that name.
Result<uint32_t> FindObject(const reshard::UploadPlan& plan, const std::string& name) {
  const auto found = std::lower_bound(plan.objects.begin(), plan.objects.end(), name,
                                      [](const reshard::PayloadObject& object,
                                         const std::string& key) { return object.name < key; });
  if (found == plan.objects.end() || found->name != name) {
    return Internal("the Master places payload " + name + ", which is not in the plan");
  }
  return static_cast<uint32_t>(found - plan.objects.begin());
}

}  // namespace

Status WriteArenas::Locate(const v1::GetImportReply& reply) {
  std::map<std::string, const v1::NodeAddress*> by_instance;
  for (const v1::NodeAddress& node : reply.nodes()) by_instance[node.instance_id()] = &node;
  for (const v1::Grant& grant : reply.grants()) {
    if (grant.access() != v1::ACCESS_WRITE || arenas_.contains(grant.arena_id())) continue;
    const auto node = by_instance.find(grant.instance_id());
    if (node == by_instance.end()) {
      return Internal("no address of node instance " + grant.instance_id() + " of arena " +
                      std::to_string(grant.arena_id()));
    }
    auto arena = std::make_shared<Arena>();
    arena->grant = grant;
    arena->node = *node->second;
    arenas_[grant.arena_id()] = std::move(arena);
  }
  for (const v1::ParticipantExtents& participant : reply.extents()) {
    for (const v1::PayloadExtent& payload : participant.payloads()) {
      MC_ASSIGN_OR_RETURN(const uint32_t object, FindObject(plan_, payload.name()));
      const v1::Extent& extent = payload.extent();
      const auto arena = arenas_.find(extent.arena_id());
      if (arena == arenas_.end()) {
        return Internal("no WRITE grant for arena " + std::to_string(extent.arena_id()) +
                        " of payload " + payload.name());
      }
      const uint64_t expected = plan_.objects[object].nbytes;
      const uint64_t arena_bytes = arena->second->grant.arena_bytes();
      if (extent.bytes() != expected || extent.offset() > arena_bytes ||
          expected > arena_bytes - extent.offset()) {
        return Internal("payload " + payload.name() + ": expected " + std::to_string(expected) +
                        " bytes inside an arena of " + std::to_string(arena_bytes) + ", got " +
                        std::to_string(extent.bytes()) + " at " + std::to_string(extent.offset()));
      }
      if (!places_.emplace(object, Place{arena->second, extent.offset()}).second) continue;
      ++arena->second->objects_left;
    }
  }
  return OkStatus();
}

Status WriteArenas::Reserve() const {
  uint64_t needed_bytes = 0;
  for (const auto& [id, arena] : arenas_) needed_bytes += arena->grant.arena_bytes();
  const rpc::CallBounds bounds = limits_.Bounds();
  for (const auto& [id, arena] : arenas_) {
    const Status reserved = Repeat(limits_, [&, &arena = *arena]() -> Status {
      MC_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::NodeChannel> node,
                          nodes_.Get(arena.node, bounds));
      return node->ReserveArena(arena.grant, bounds);
    });
    if (reserved.ok()) continue;
    return reserved.WithContext(std::to_string(needed_bytes) + " bytes are needed in " +
                                std::to_string(arenas_.size()) + " arenas");
  }
  return OkStatus();
}

Result<std::byte*> WriteArenas::Open(uint32_t object, const std::function<Status()>& opened) {
  const auto place = places_.find(object);
  if (place == places_.end()) {
    return Internal("the Master gave payload " + plan_.objects[object].name + " no place");
  }
  Arena& arena = *place->second.arena;
  std::lock_guard lock(arena.opening);
  if (arena.mapping.data() == nullptr) {
    const rpc::CallBounds bounds = limits_.Bounds();
    MC_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::NodeChannel> node,
                        nodes_.Get(arena.node, bounds));
    MC_ASSIGN_OR_RETURN(env::UniqueFd fd, node->OpenArena(arena.grant, bounds));
    MC_ASSIGN_OR_RETURN(const env::MemoryFile file,
                        env::MemoryFile::Adopt(std::move(fd), arena.grant.arena_bytes()));
    // All of it is going to be written: one call instead of a fault a page.
    MC_ASSIGN_OR_RETURN(env::Mapping mapping,
                        file.Map(env::MapAccess::kReadWrite, {.populate = true}));
    arena.mapping = std::move(mapping);
    MC_RETURN_IF_ERROR(opened());
  }
  return arena.mapping.data() + place->second.offset;
}

void WriteArenas::Close(uint32_t object) {
  Arena& arena = *places_.at(object).arena;
  std::lock_guard lock(arena.opening);
  if (--arena.objects_left == 0) arena.mapping = {};
}

void WriteArenas::Clear() {
  for (const auto& [id, arena] : arenas_) {
    std::lock_guard lock(arena->opening);
    arena->mapping = {};
  }
}

}  // namespace mooncake::client
