// A catalogue with a few words to fill it, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "pool/catalog.h"

namespace mooncake::pool {

class TestPool {
 public:
  Catalog catalog;
  int64_t now_ms = 1000;

  void Apply(const Event& event) {
    const Status status = catalog.Apply(event, now_ms);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  void AddSlab(uint64_t id, const std::string& node_id = "n1", uint64_t bytes = 64 * 1024,
               const std::string& tenant = "t") {
    Apply(SlabAdded{ArenaId(id), tenant, node_id, bytes});
  }
  NewObject Object(uint64_t id, const std::string& key, uint64_t bytes,
                   std::vector<std::pair<uint64_t, uint64_t>> places,
                   const std::string& group = "") const {
    NewObject object{ObjectId(id), key, bytes, group, {}};
    for (const auto& [slab, offset] : places) object.replicas.push_back({ArenaId(slab), offset});
    return object;
  }
  PutsStarted Started(std::vector<NewObject> objects, const std::string& tenant = "t") const {
    PutsStarted started;
    started.client_id = "c";
    started.put_id = 1;
    started.tenant_id = tenant;
    started.objects = std::move(objects);
    return started;
  }
  // A readable object wherever there is room.
  uint64_t Put(const std::string& key, uint64_t bytes, const std::string& group = "",
               bool hard_pin = false, SoftPin soft = SoftPin::kPreserve, uint64_t soft_ttl_ms = 0) {
    for (const auto& [slab_id, handle] : catalog.slabs()) {
      const auto offset = catalog.slab(handle).space.Find(ExtentBytes(bytes));
      if (!offset) continue;
      const uint64_t id = catalog.next_object_id().value;
      PutsStarted started = Started({Object(id, key, bytes, {{slab_id.value, *offset}}, group)});
      started.hard_pin = hard_pin;
      started.soft_pin = soft;
      started.soft_pin_ttl_ms = soft_ttl_ms;
      Apply(started);
      Apply(PutsEnded{{ObjectId(id)}});
      return id;
    }
    ADD_FAILURE() << "no room for " << bytes;
    return 0;
  }
};

}  // namespace mooncake::pool
