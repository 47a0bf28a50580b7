#include "sim/workload.h"

#include <utility>

#include "env/sync.h"
#include "manifest/lookup.h"

namespace mooncake::sim {
namespace {

constexpr int64_t kOperationTimeoutMs = 20'000;

cluster::TestLayout PickLayout(Dice& dice) {
  cluster::TestLayout layout;
  layout.tp = dice.Between(1, 3);
  layout.pp = dice.Between(1, 2);
  layout.dp = dice.Chance(200'000) ? 2 : 1;
  if (layout.tp > 1 && dice.Chance(300'000)) {
    layout.dims[std::string(kTensorMark) + ".up"] = 0;
  }
  return layout;
}

std::vector<std::string> ParticipantsOf(const manifest::Placement& placement) {
  std::vector<std::string> names;
  for (const auto& part : placement.parts) names.push_back(part.participant_id);
  return names;
}

}  // namespace

Workload::Workload(SimCluster& cluster, Judge& judge, ObjectWorkload& objects)
    : cluster_(cluster),
      judge_(judge),
      objects_(objects),
      dice_(cluster.simulation().dice()),
      large_(dice_.Chance(300'000)) {
  for (const auto& [kind, weight] : {std::pair{Kind::kPublish, 30U},
                                     {Kind::kLoad, 40U},
                                     {Kind::kRemove, 12U},
                                     {Kind::kLook, 8U},
                                     {Kind::kList, 4U},
                                     {Kind::kObject, objects.active() ? 100U : 0U},
                                     {Kind::kIdle, 6U}}) {
    const bool left_out = kind != Kind::kPublish && dice_.Chance(150'000);
    weights_.emplace_back(kind, left_out ? 0 : weight * static_cast<uint32_t>(dice_.Between(1, 4)));
  }
}

Workload::Kind Workload::PickKind() {
  uint32_t total = 0;
  for (const auto& [kind, weight] : weights_) total += weight;
  uint64_t at = dice_.Below(total);
  for (const auto& [kind, weight] : weights_) {
    if (at < weight) return kind;
    at -= weight;
  }
  return Kind::kIdle;
}

Status Workload::Failed(const std::string& operation, const Status& why) {
  const std::string key = operation + " " + std::string(CodeName(why.code()));
  ++counts_.failures[key];
  counts_.examples.try_emplace(key, why.message());
  return why;
}

void Workload::RunClient(Process& process) {
  client::StoreClientOptions options;
  options.retry_ms = dice_.Between(200, 6'000);
  // Some clients are slow between any two steps, also slower than their leases last.
  const uint32_t dawdles = dice_.Chance(300'000) ? 100'000 : 0;
  options.step_observer = [this, dawdles](std::string_view) {
    if (dice_.Chance(dawdles)) env::PauseMs(dice_.Between(1, 4'000), {});
    return OkStatus();
  };
  const std::unique_ptr<client::StoreClient> client = cluster_.NewClient(options);
  const std::string tenant_id = objects_.PickTenant();
  client::ObjectClientOptions object_options;
  object_options.tenant_id = tenant_id;
  object_options.retry_ms = options.retry_ms;
  object_options.chunk_bytes = dice_.Chance(300'000) ? 5'000 : 1u << 20;
  // Some read over the network, as from another host.
  object_options.share_memory = dice_.Chance(600'000);
  const std::unique_ptr<client::ObjectClient> objects =
      objects_.active() ? cluster_.NewObjectClient(object_options) : nullptr;
  while (!stopping_ && !process.crashed()) {
    switch (PickKind()) {
      case Kind::kPublish:
        Publish(*client);
        break;
      case Kind::kLoad: {
        const std::vector<model::WeightIdentity> published = judge_.Published();
        if (!published.empty()) (void)LoadAndCheck(*client, dice_.Pick(published));
        break;
      }
      case Kind::kRemove:
        Remove(*client);
        break;
      case Kind::kLook:
        Look(*client);
        break;
      case Kind::kList:
        List(*client);
        break;
      case Kind::kObject:
        objects_.Act(*objects, tenant_id);
        break;
      case Kind::kIdle:
        env::PauseMs(dice_.Between(1, 500), {});
        break;
    }
    env::PauseMs(dice_.Between(0, 20), {});
  }
}

Content Workload::NewContent() {
  Content content;
  content.identity = cluster::TestIdentity(next_generation_++);
  content.identity.revision = dice_.Chance(500'000) ? "main" : "other";
  return content;
}

// Waiting work first, so that partners meet.
Workload::Job Workload::NextJob() {
  if (!jobs_.empty() && dice_.Chance(800'000)) {
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }
  Job job;
  job.content = NewContent();
  job.layout = PickLayout(dice_);
  const uint64_t fashion = dice_.Below(10);
  if (fashion < 3 && !used_.empty()) {
    // A name that was published already: again, or something else under it.
    job.content = dice_.Pick(used_);
    if (dice_.Chance(500'000)) job.content.variant += 1;
  } else if (fashion < 6) {
    // Two bring it together; either may never come.
    const auto placement = cluster::MakeLayout(job.content.identity, job.layout, SimModel(large_));
    const std::vector<std::string> all = ParticipantsOf(*placement);
    if (all.size() > 1) {
      const auto middle =
          all.begin() + static_cast<std::ptrdiff_t>(1 + dice_.Below(all.size() - 1));
      Job other = job;
      job.participants.assign(all.begin(), middle);
      other.participants.assign(middle, all.end());
      jobs_.push_back(other);
    }
  } else if (fashion < 7) {
    // Two bring all of it.
    jobs_.push_back(job);
  }
  used_.push_back(job.content);
  return job;
}

void Workload::Publish(client::StoreClient& client) {
  const Job job = NextJob();
  ++counts_.publishes;
  judge_.PublishTried(job.content);
  const auto placement = cluster::MakeLayout(job.content.identity, job.layout, SimModel(large_));
  const Result<std::unique_ptr<client::Importer>> importer =
      client.BeginImport({job.content.identity, placement, job.participants, {}});
  if (!importer.ok()) {
    (void)Failed("begin", importer.status());
    return;
  }
  const bool gives_up = dice_.Chance(50'000);
  for (const std::string& participant : (*importer)->participants()) {
    for (const auto& fragment : manifest::FindPart(*placement, participant)->fragments) {
      if (gives_up && dice_.Chance(300'000)) {
        if (dice_.Chance(500'000)) (void)(*importer)->Abort("the workload gives up");
        return;
      }
      const reshard::Bytes bytes = BytesOf(job.content, *placement, fragment);
      const Status put = (*importer)->PutFragment(participant, fragment.placement_fragment_id,
                                                  {bytes.data(), bytes.size(), {}});
      if (!put.ok()) {
        (void)Failed("put", put);
        return;
      }
    }
  }
  const Result<client::ImportReport> report =
      (*importer)->Finish({.timeout_ms = kOperationTimeoutMs, .cancel = {}, .keep_waiting = {}});
  if (!report.ok()) {
    (void)Failed("finish", report.status());
    return;
  }
  if (cluster_.simulation().CutOff()) return;
  ++counts_.published;
  // Who brings replicas alone, which nobody compares unless asked, says nothing of the content.
  if (report->bytes_uploaded + report->bytes_compared == 0) return;
  judge_.PublishTold(job.content);
}

Status Workload::LoadAndCheck(client::StoreClient& client, const model::WeightIdentity& identity) {
  ++counts_.loads;
  const auto target = cluster::MakeLayout(identity, PickLayout(dice_), SimModel(large_));
  const manifest::PlacementPart& part = dice_.Pick(target->parts);
  const reshard::BoundMemory memory = reshard::BindMemory(*target, part);
  const Result<client::LoadReport> report = client.Load(identity, {{target, memory.binding}});
  if (cluster_.simulation().CutOff()) return Cancelled("the reader crashed");
  if (!report.ok()) {
    judge_.LoadFailed(identity, report.status());
    return Failed("load", report.status());
  }
  ++counts_.loaded;
  // All of it is one variant's: never a blend.
  std::string wrong = "read, though nobody published it";
  for (const uint32_t variant : judge_.VariantsOf(identity)) {
    wrong.clear();
    for (size_t f = 0; f < part.fragments.size() && wrong.empty(); ++f) {
      if (memory.buffers[f] != BytesOf({identity, variant}, *target, part.fragments[f])) {
        wrong = part.fragments[f].tensor_id + " of " + part.participant_id + " has wrong bytes";
      }
    }
    if (wrong.empty()) break;
  }
  judge_.LoadTold(identity, wrong);
  return OkStatus();
}

void Workload::Remove(client::StoreClient& client) {
  const std::vector<model::WeightIdentity> tried = judge_.Tried();
  if (tried.empty()) return;
  const model::WeightIdentity identity = dice_.Pick(tried);
  ++counts_.removes;
  judge_.RemoveTried(identity);
  client::RemoveOptions options;
  options.wait_until_deleted = dice_.Chance(500'000);
  options.wait.timeout_ms = kOperationTimeoutMs;
  const auto removed = client.Remove(identity, options);
  if (!removed.ok()) {
    (void)Failed("remove", removed.status());
    return;
  }
  if (cluster_.simulation().CutOff()) return;
  ++counts_.removed;
  judge_.RemoveTold(identity);
}

void Workload::Look(client::StoreClient& client) {
  const std::vector<model::WeightIdentity> tried = judge_.Tried();
  // The answer passes the judge on the network.
  if (!tried.empty()) (void)client.GetMetadata(dice_.Pick(tried));
}

void Workload::List(client::StoreClient& client) {
  client::ListRequest request;
  request.page_size = static_cast<uint32_t>(dice_.Between(1, 20));
  for (int pages = 0; pages < 20; ++pages) {
    const Result<client::ListPage> page = client.List(request);
    if (!page.ok() || page->next_page_token.empty()) return;
    request.page_token = page->next_page_token;
  }
}

}  // namespace mooncake::sim
