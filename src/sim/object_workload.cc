#include "sim/object_workload.h"

#include <set>
#include <utility>

namespace mooncake::sim {
namespace {

// Of the keys every so many are pinned for good, or of one group.
constexpr uint64_t kPinnedEvery = 4;
constexpr uint64_t kGroupedEvery = 3;
// Pinned ones must not fill the cluster.
constexpr uint64_t kPinnedBytesMax = 4'000;

uint64_t NumberOf(const ObjectName& name) { return std::stoull(name.key.substr(4)); }
bool IsPinned(const ObjectName& name) { return NumberOf(name) % kPinnedEvery == 0; }
bool IsGrouped(const ObjectName& name) { return NumberOf(name) % kGroupedEvery == 1; }

}  // namespace

ObjectWorkload::ObjectWorkload(SimCluster& cluster, ObjectJudge& judge)
    : cluster_(cluster),
      judge_(judge),
      dice_(cluster.simulation().dice()),
      active_(dice_.Chance(700'000)),
      keys_(static_cast<uint64_t>(dice_.Between(4, 60))),
      bytes_max_(static_cast<uint64_t>(dice_.Chance(500'000) ? 300'000 : 20'000)) {
  for (const auto& [kind, weight] :
       {std::pair{Kind::kPut, 40U}, std::pair{Kind::kGet, 40U}, std::pair{Kind::kRange, 10U},
        std::pair{Kind::kLook, 6U}, std::pair{Kind::kRemove, 10U}, std::pair{Kind::kList, 2U}}) {
    const bool left_out = kind != Kind::kPut && dice_.Chance(150'000);
    weights_.emplace_back(kind, left_out ? 0 : weight * static_cast<uint32_t>(dice_.Between(1, 4)));
  }
}

std::string ObjectWorkload::PickTenant() { return dice_.Chance(700'000) ? "default" : "other"; }

ObjectName ObjectWorkload::PickName(const std::string& tenant_id) {
  return {tenant_id, "key " + std::to_string(dice_.Below(keys_))};
}

void ObjectWorkload::Count(const std::string& operation, const Status& status) {
  ++outcomes_[operation + " " + std::string(CodeName(status.code()))];
}

void ObjectWorkload::Act(client::ObjectClient& client, const std::string& tenant_id) {
  uint32_t total = 0;
  for (const auto& [kind, weight] : weights_) total += weight;
  uint64_t at = dice_.Below(total);
  Kind picked = Kind::kPut;
  for (const auto& [kind, weight] : weights_) {
    picked = kind;
    if (at < weight) break;
    at -= weight;
  }
  switch (picked) {
    case Kind::kPut:
      return Put(client, tenant_id);
    case Kind::kGet:
      (void)ReadAndCheck(client, PickName(tenant_id));
      return;
    case Kind::kRange:
      return ReadRange(client, PickName(tenant_id));
    case Kind::kLook: {
      const std::string key = PickName(tenant_id).key;
      const std::vector<std::string_view> keys = {key};
      Count("look", client.Exists(keys, dice_.Chance(300'000)).front().status());
      return;
    }
    case Kind::kRemove:
      return Remove(client, tenant_id);
    case Kind::kList:
      Count("list", client.List("key ", [](const v1::ObjectInfo&) { return true; }));
      return;
  }
}

void ObjectWorkload::Put(client::ObjectClient& client, const std::string& tenant_id) {
  client::PutOptions options;
  options.upsert = dice_.Chance(400'000);
  options.relaxed = dice_.Chance(400'000);
  options.all_or_nothing = dice_.Chance(200'000);
  options.no_eviction = dice_.Chance(100'000);
  options.config.set_replica_num(static_cast<uint32_t>(dice_.Between(1, 2)));
  if (dice_.Chance(200'000)) {
    options.config.set_soft_pin(v1::SOFT_PIN_ENABLE);
    options.config.set_soft_pin_ttl_ms(static_cast<uint64_t>(dice_.Between(0, 5'000)));
  }
  // What is pinned for good is put by itself.
  std::vector<ObjectName> names = {PickName(tenant_id)};
  const bool pinned = IsPinned(names.front());
  options.config.set_hard_pin(pinned);
  std::set<ObjectName> taken(names.begin(), names.end());
  for (int64_t more = pinned ? 0 : dice_.Between(0, 4); more > 0; --more) {
    const ObjectName name = PickName(tenant_id);
    if (!IsPinned(name) && taken.insert(name).second) names.push_back(name);
  }
  const uint64_t begun = judge_.Tick();
  std::vector<uint64_t> versions;
  std::vector<std::string> contents;
  std::vector<client::PutItem> items(names.size());
  for (const ObjectName& name : names) {
    const uint64_t bytes = 1 + dice_.Below(pinned ? kPinnedBytesMax : bytes_max_);
    versions.push_back(judge_.PutTried(name, bytes));
    contents.push_back(ObjectJudge::ContentOf(versions.back(), bytes));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    items[i].key = names[i].key;
    items[i].group_id = IsGrouped(names[i]) ? "group" : "";
    // In two pieces, the second of which may be empty.
    const size_t cut = dice_.Below(contents[i].size()) + 1;
    items[i].pieces = {{contents[i].data(), cut}};
    if (cut < contents[i].size()) {
      items[i].pieces.push_back({contents[i].data() + cut, contents[i].size() - cut});
    }
  }
  const std::vector<client::PutResult> results = client.Put(items, options);
  if (cluster_.simulation().CutOff()) return;
  for (size_t i = 0; i < names.size(); ++i) {
    Count("put", results[i].status);
    if (!results[i].status.ok() || results[i].existed) continue;
    judge_.PutTold(names[i], versions[i], begun,
                   {.durable = !options.relaxed, .upsert = options.upsert, .hard_pin = pinned});
  }
}

Status ObjectWorkload::ReadAndCheck(client::ObjectClient& client, const ObjectName& name) {
  const uint64_t begun = judge_.Tick();
  std::string memory;
  const std::vector<std::string_view> keys = {name.key};
  const client::ReadResult result = client
                                        .GetSized(keys,
                                                  [&memory](size_t, uint64_t bytes) {
                                                    memory.assign(bytes, '\0');
                                                    return memory.data();
                                                  })
                                        .front();
  if (cluster_.simulation().CutOff()) return Cancelled("the reader crashed");
  Count("get", result.status);
  if (result.status.ok()) {
    judge_.ReadTold(name, begun, memory, 0, memory.size());
  } else {
    judge_.ReadFailed(name, result.status);
  }
  return result.status;
}

void ObjectWorkload::ReadRange(client::ObjectClient& client, const ObjectName& name) {
  const std::vector<std::string_view> keys = {name.key};
  const auto located = client.Locate(keys, /*renew=*/true).front();
  if (!located.ok()) return Count("locate", located.status());
  const uint64_t begun = judge_.Tick();
  const uint64_t from = dice_.Below(located->bytes);
  std::string memory(1 + dice_.Below(located->bytes - from), '\0');
  const std::vector<client::RangeItem> items = {
      {name.key, from, {memory.data(), memory.size()}, located->object_id}};
  const client::ReadResult result = client.GetRanges(items).front();
  if (cluster_.simulation().CutOff()) return;
  Count("range", result.status);
  if (result.status.ok()) {
    judge_.ReadTold(name, begun, memory, from, located->bytes);
  } else {
    judge_.ReadFailed(name, result.status);
  }
}

void ObjectWorkload::Remove(client::ObjectClient& client, const std::string& tenant_id) {
  const ObjectName name = PickName(tenant_id);
  const uint64_t begun = judge_.Tick();
  judge_.RemoveTried(name);
  const std::vector<std::string_view> keys = {name.key};
  const Status removed = client.Remove(keys, /*force=*/dice_.Chance(500'000)).front();
  if (cluster_.simulation().CutOff()) return;
  Count("remove object", removed);
  if (removed.ok()) judge_.RemoveTold(name, begun);
}

}  // namespace mooncake::sim
