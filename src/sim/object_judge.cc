#include "sim/object_judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "mooncake/v1/log.pb.h"
#include "mooncake/v1/master.pb.h"
#include "pool/events.h"
#include "sim/sim_content.h"

namespace mooncake::sim {
namespace {

constexpr std::string_view kLookup = "LookupObjects\n";

std::string TextOf(const ObjectName& name) { return name.tenant_id + ":" + name.key; }

}  // namespace

std::string ObjectJudge::ContentOf(uint64_t version, uint64_t bytes) {
  std::string content(bytes, '\0');
  for (uint64_t at = 0; at < bytes; ++at) {
    content[at] = static_cast<char>(Mixed(version * 0x10001 + at / 8) >> (at % 8 * 8));
  }
  return content;
}

uint64_t ObjectJudge::PutTried(const ObjectName& name, uint64_t bytes) {
  Facts& facts = objects_[name];
  facts.pinned = 0;
  facts.versions[next_version_].bytes = bytes;
  return next_version_++;
}

void ObjectJudge::EndBefore(Facts& facts, uint64_t begun, uint64_t but) {
  for (auto& [version, known] : facts.versions) {
    if (version == but || known.told == 0 || known.told >= begun || known.gone != 0) continue;
    known.gone = Tick();
  }
}

void ObjectJudge::PutTold(const ObjectName& name, uint64_t version, uint64_t begun,
                          const PutFacts& told) {
  Facts& facts = objects_[name];
  facts.versions[version].told = Tick();
  // A relaxed one may be forgotten with a crash, and then the old one is back.
  if (told.durable && told.upsert) EndBefore(facts, begun, version);
  const bool alone = facts.versions.rbegin()->first == version;
  if (!told.durable || !told.hard_pin || !alone) return;
  const std::shared_ptr<master::Master> master = cluster_.master();
  if (master == nullptr) return;
  const master::ReplicatedState& state = master->state();
  const pool::Object* object = state.pool.FindReadable(name.tenant_id, name.key);
  if (object == nullptr) return;
  facts.instances.clear();
  for (const pool::Replica& replica : object->replicas()) {
    const objects::Node* node = state.objects.FindNode(state.pool.slab(replica.slab).node_id);
    if (node != nullptr) facts.instances.insert(node->address.instance_id);
  }
  facts.pinned = version;
}

void ObjectJudge::RemoveTried(const ObjectName& name) { objects_[name].pinned = 0; }

void ObjectJudge::RemoveTold(const ObjectName& name, uint64_t begun) {
  EndBefore(objects_[name], begun, 0);
}

void ObjectJudge::ReadTold(const ObjectName& name, uint64_t begun, std::string_view bytes,
                           uint64_t from, uint64_t size) {
  bool known = false;
  bool gone = true;
  for (const auto& [version, facts] : objects_[name].versions) {
    if (facts.bytes != size) continue;
    if (std::string_view(ContentOf(version, size)).substr(from, bytes.size()) != bytes) continue;
    known = true;
    gone = gone && facts.gone != 0 && facts.gone < begun;
  }
  judge_.Check(Rule::kReaderGetsItsBytes, known,
               fmt::format("{}: {} bytes from {} of an object of {} are nobody's", TextOf(name),
                           bytes.size(), from, size));
  judge_.Check(Rule::kAcknowledgedIsKept, !known || !gone,
               TextOf(name) + " was read after its removal or replacement was told");
}

void ObjectJudge::ReadFailed(const ObjectName& name, const Status& why) {
  const bool says_damage = why.code() == Code::kCorrupt || why.code() == Code::kInternal;
  judge_.Check(Rule::kReadyIsReadable, judge_.damaged() || !says_damage,
               TextOf(name) + " cannot be read: " + why.ToString());
}

void ObjectJudge::OnMasterRequest(const std::string& request) {
  if (!request.starts_with(kLookup)) return;
  // The first of equal ones: its holder counts from before it asked.
  arrived_ns_.try_emplace(request, cluster_.simulation().now_ns());
}

void ObjectJudge::OnMasterAnswer(const std::string& request, const std::string& answer) {
  if (!request.starts_with(kLookup)) return;
  const auto arrived = arrived_ns_.find(request);
  if (arrived == arrived_ns_.end()) return;
  const int64_t arrived_ns = arrived->second;
  arrived_ns_.erase(arrived);
  v1::LookupObjectsReply reply;
  MC_CHECK(reply.ParseFromString(answer));
  if (reply.lease_ms() == 0) return;
  for (const v1::ObjectEntry& entry : reply.entries()) {
    if (entry.status().code() != 0) continue;
    int64_t& until_ns = protected_until_ns_[entry.object_id()];
    until_ns =
        std::max(until_ns, arrived_ns + static_cast<int64_t>(reply.lease_ms()) * kMillisecond);
  }
}

void ObjectJudge::OnLogRecord(std::string_view payload) {
  v1::LogBatch batch;
  MC_CHECK(batch.ParseFromArray(payload.data(), static_cast<int>(payload.size())));
  const int64_t now_ns = cluster_.simulation().now_ns();
  for (const v1::LogEvent& event : batch.events()) {
    v1::PutEvent put;
    if (event.kind() != v1::EVENT_KIND_PUT || !put.ParseFromString(event.body())) continue;
    if (!put.has_dropped() ||
        put.dropped().cause() != static_cast<uint32_t>(pool::DropCause::kEvicted)) {
      continue;
    }
    for (const uint64_t id : put.dropped().object_ids()) {
      const auto lease = protected_until_ns_.find(id);
      judge_.Check(
          Rule::kLeaseProtects, lease == protected_until_ns_.end() || lease->second <= now_ns,
          fmt::format(
              "object {} is evicted, {} ms before its lease ends", id,
              lease == protected_until_ns_.end() ? 0 : (lease->second - now_ns) / kMillisecond));
    }
  }
}

std::vector<ObjectName> ObjectJudge::MustBeThere() const {
  std::vector<ObjectName> names;
  for (const auto& [name, facts] : objects_) {
    const bool lives = std::any_of(
        facts.instances.begin(), facts.instances.end(),
        [this](const std::string& instance) { return cluster_.InstanceIsAlive(instance); });
    if (facts.pinned != 0 && lives) names.push_back(name);
  }
  return names;
}

void ObjectJudge::ReadAtRest(const ObjectName& name, const Status& status) {
  judge_.Check(Rule::kAcknowledgedIsKept, status.ok() || judge_.damaged(),
               TextOf(name) + " is pinned, was told durable, its node lives, and reading it says " +
                   status.ToString());
}

}  // namespace mooncake::sim
