#include "reshard/upload_plan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/digest.h"
#include "base/url_encode.h"
#include "geometry/box.h"
#include "manifest/lookup.h"
#include "manifest/validate.h"
#include "reshard/fragment_groups.h"
#include "reshard/source_index.h"
#include "reshard/tensor_table.h"

namespace mooncake::reshard {

using manifest::PlacementFragment;
using manifest::TensorDescriptor;

namespace {

constexpr std::string_view kPackPrefix = "pack-";

std::string ObjectNameOf(const PlacementFragment& fragment) {
  std::string name = UrlEncode(fragment.placement_fragment_id);
  if (name.starts_with(kPackPrefix)) name.replace(0, 1, "%70");
  return name;
}

// One distinct box of the chosen replica, with the fragments that hold it.
struct BoxToUpload {
  uint64_t nbytes = 0;
  uint32_t first_candidate = 0;
  uint32_t candidates = 0;
};

struct Candidate {
  uint32_t fragment = 0;
  uint32_t part = 0;
};

// Holds a box too, but is not to upload it.
struct Bystander {
  uint32_t box = 0;  // position in ChosenBoxes::boxes
  Candidate holder;
};

struct ChosenBoxes {
  std::vector<BoxToUpload> boxes;     // by tensor, box
  std::vector<Candidate> candidates;  // of one box: by participant
  std::vector<Bystander> bystanders;  // that are in the scope of comparing

  std::span<const Candidate> of(const BoxToUpload& box) const {
    return std::span(candidates).subspan(box.first_candidate, box.candidates);
  }
  uint32_t first_fragment(const BoxToUpload& box) const {
    return candidates[box.first_candidate].fragment;
  }
};

// The group that the planner would read for this tensor.
const FragmentGroups::Group& ChosenGroup(const FragmentGroups& groups, bool dp_owned, int64_t dp) {
  if (dp_owned) return groups.groups()[0];
  const auto it = std::find_if(groups.groups().begin(), groups.groups().end(),
                               [dp](const auto& group) { return group.dp == dp; });
  MC_CHECK(it != groups.groups().end());
  return *it;
}

// The boxes that the entries hold, all holders of a box as its candidates. `entries` are by box.
class BoxCollector {
 public:
  BoxCollector(const manifest::Placement& placement, int64_t dp, ReplicaScope scope)
      : placement_(placement),
        dp_(dp),
        scope_(scope),
        part_of_fragment_(PartsOfFragments(placement)),
        box_of_fragment_(placement.fragments.size(), kNone) {}

  void Add(const FragmentGroups::Entry& entry) {
    if (entry.box != last_box_) {
      last_box_ = entry.box;
      chosen_.boxes.push_back({placement_.fragments[entry.fragment].nbytes,
                               static_cast<uint32_t>(chosen_.candidates.size()), 0});
    }
    ++chosen_.boxes.back().candidates;
    chosen_.candidates.push_back({entry.fragment, part_of_fragment_[entry.fragment]});
    box_of_fragment_[entry.fragment] = static_cast<uint32_t>(chosen_.boxes.size() - 1);
  }
  // After a tensor's last Add.
  Status EndTensor(const TensorDescriptor& tensor, const FragmentGroups& groups) {
    last_box_ = kNone;
    if (scope_ == ReplicaScope::kNone) return OkStatus();
    std::vector<uint32_t> chosen_of_box(groups.boxes().size(), kNone);
    for (const FragmentGroups::Entry& entry : groups.entries()) {
      const uint32_t chosen = box_of_fragment_[entry.fragment];
      if (chosen != kNone) chosen_of_box[entry.box] = chosen;
    }
    // Where dp owns the tensor, all its holders are of one replica.
    const bool any_dp = scope_ == ReplicaScope::kAll || IsDpOwned(tensor);
    for (const FragmentGroups::Entry& entry : groups.entries()) {
      if (box_of_fragment_[entry.fragment] != kNone) continue;
      if (!any_dp && entry.rank[0] != dp_) continue;
      if (chosen_of_box[entry.box] != kNone) {
        chosen_.bystanders.push_back(
            {chosen_of_box[entry.box], {entry.fragment, part_of_fragment_[entry.fragment]}});
      } else if (scope_ == ReplicaScope::kAll) {
        return CannotCompare(entry.fragment);
      }
    }
    return OkStatus();
  }
  ChosenBoxes Take() {
    for (const BoxToUpload& box : chosen_.boxes) {
      const auto first = chosen_.candidates.begin() + box.first_candidate;
      std::stable_sort(first, first + box.candidates,
                       [](const Candidate& a, const Candidate& b) { return a.part < b.part; });
    }
    return std::move(chosen_);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  Status CannotCompare(uint32_t position) const {
    const PlacementFragment& fragment = placement_.fragments[position];
    return InvalidArgument(
        "replicas cannot be compared: " + fragment.tensor_id + ": " +
        placement_.parts[part_of_fragment_[position]].participant_id + " holds " +
        geometry::UncheckedBox(fragment.global_offset, fragment.local_shape).ToString() +
        ", the replica that is uploaded is cut otherwise");
  }

  const manifest::Placement& placement_;
  const int64_t dp_;
  const ReplicaScope scope_;
  const std::vector<uint32_t> part_of_fragment_;
  std::vector<uint32_t> box_of_fragment_;  // position in chosen_.boxes
  uint32_t last_box_ = kNone;
  ChosenBoxes chosen_;
};

// Each box that the planner would read of an owned tensor, with all its owners, or all in `dp`
// where that dp rank holds it whole.
void AddOwned(const TensorDescriptor& tensor, const FragmentGroups& groups, int64_t dp,
              BoxCollector* boxes) {
  std::vector<const FragmentGroups::Entry*> chosen;
  std::span<const FragmentGroups::Entry> owners = groups.entries();
  for (const FragmentGroups::Group& group : groups.groups()) {
    if (group.dp != dp) continue;
    chosen = OwnersWithin(tensor, groups, group);
    if (!chosen.empty()) owners = groups.of(group);
  }
  if (chosen.empty()) chosen = FirstOwners(tensor, groups);
  std::vector<FragmentGroups::Entry> by_box(owners.begin(), owners.end());
  const auto less = [](const auto& a, const auto& b) { return a.box < b.box; };
  std::stable_sort(by_box.begin(), by_box.end(), less);
  for (const FragmentGroups::Entry* box : chosen) {
    const auto [first, last] = std::equal_range(by_box.begin(), by_box.end(), *box, less);
    for (auto entry = first; entry != last; ++entry) boxes->Add(*entry);
  }
}

Result<ChosenBoxes> ChooseBoxes(const manifest::Placement& placement, const SourceIndex& index,
                                ReplicaScope scope) {
  const int64_t dp = index.complete_dps()[0];
  const TensorList& tensors = *index.tensors();
  const FragmentsByTensor by_tensor =
      GroupByTensor(TensorsOf(placement.fragments, index.table()), tensors.size());
  BoxCollector boxes(placement, dp, scope);
  FragmentGroups groups;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    groups.Load(*tensors[tensor], placement.fragments, by_tensor, tensor,
                /*prove_tiling=*/false);
    if (groups.entries().empty()) continue;  // a tensor without elements
    if (tensors[tensor]->is_owned()) {
      AddOwned(*tensors[tensor], groups, dp, &boxes);
    } else {
      for (const FragmentGroups::Entry& entry :
           groups.of(ChosenGroup(groups, IsDpOwned(*tensors[tensor]), dp))) {
        boxes.Add(entry);
      }
    }
    MC_RETURN_IF_ERROR(boxes.EndTensor(*tensors[tensor], groups));
  }
  return boxes.Take();
}

// The alias tuples that the stored contract can say: wherever one member is stored, all are, with
// the same box, and with descriptors that differ in the name alone.
class StorableAliases {
 public:
  StorableAliases(const manifest::Placement& placement, const ChosenBoxes& chosen)
      : placement_(placement) {
    for (uint32_t b = 0; b < chosen.boxes.size(); ++b) {
      const PlacementFragment& f = placement.fragments[chosen.first_fragment(chosen.boxes[b])];
      if (!f.aliases.empty()) members_[f.aliases][GeometryOf(f)].emplace(f.tensor_id, b);
    }
    for (const auto& [aliases, geometries] : members_) {
      if (Storable(aliases, geometries)) storable_.insert(aliases);
    }
  }

  // For each box the one that has its bytes: of the group's first member, or itself.
  std::vector<uint32_t> Primaries(const ChosenBoxes& chosen) const {
    std::vector<uint32_t> primary(chosen.boxes.size());
    std::iota(primary.begin(), primary.end(), 0u);
    for (const Aliases& aliases : storable_) {
      for (const auto& [geometry, members] : members_.at(aliases)) {
        for (const auto& [tensor_id, box] : members) primary[box] = members.at(aliases[0]);
      }
    }
    return primary;
  }

 private:
  using Aliases = std::vector<std::string>;
  using Geometry = std::tuple<manifest::Extents, manifest::Extents, uint64_t>;
  using Members = std::map<Geometry, std::map<std::string, uint32_t>>;  // tensor id -> box

  static Geometry GeometryOf(const PlacementFragment& f) {
    return {f.global_offset, f.local_shape, f.nbytes};
  }

  bool Storable(const Aliases& aliases, const Members& geometries) const {
    for (const auto& [geometry, present] : geometries) {
      if (!std::equal(
              present.begin(), present.end(), aliases.begin(), aliases.end(),
              [](const auto& member, const std::string& id) { return member.first == id; })) {
        return false;
      }
    }
    const TensorDescriptor& first = *manifest::FindTensor(placement_.tensors, aliases[0]);
    return std::all_of(aliases.begin(), aliases.end(), [&](const std::string& alias) {
      return EqualApartFromId(first, *manifest::FindTensor(placement_.tensors, alias));
    });
  }

  const manifest::Placement& placement_;
  std::map<Aliases, Members> members_;
  std::set<Aliases> storable_;
};

// Which part brings each box, and the fragments of each part, ascending.
struct Shares {
  std::vector<uint32_t> fragment_of_box;  // of a twin's box: the one that has its bytes
  std::vector<std::vector<uint32_t>> fragments_of_part;
};

Shares ShareOut(const ChosenBoxes& chosen, std::span<const uint32_t> primary, size_t part_count) {
  std::vector<uint32_t> order;
  for (uint32_t b = 0; b < chosen.boxes.size(); ++b) {
    if (primary[b] == b) order.push_back(b);
  }
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const BoxToUpload& box_a = chosen.boxes[a];
    const BoxToUpload& box_b = chosen.boxes[b];
    return std::tuple(box_a.candidates > 1, ~box_a.nbytes) <
           std::tuple(box_b.candidates > 1, ~box_b.nbytes);
  });
  std::vector<uint64_t> bytes(part_count, 0);
  Shares shares{std::vector<uint32_t>(chosen.boxes.size()),
                std::vector<std::vector<uint32_t>>(part_count)};
  for (uint32_t b : order) {
    const BoxToUpload& box = chosen.boxes[b];
    const auto candidates = chosen.of(box);
    const Candidate& owner = *std::min_element(
        candidates.begin(), candidates.end(),
        [&](const Candidate& a, const Candidate& c) { return bytes[a.part] < bytes[c.part]; });
    bytes[owner.part] += box.nbytes;
    shares.fragment_of_box[b] = owner.fragment;
    shares.fragments_of_part[owner.part].push_back(owner.fragment);
  }
  for (uint32_t b = 0; b < chosen.boxes.size(); ++b) {
    shares.fragment_of_box[b] = shares.fragment_of_box[primary[b]];
  }
  for (auto& list : shares.fragments_of_part) std::sort(list.begin(), list.end());
  return shares;
}

// Who must have the bytes of which uploaded fragment.
class ReplicaCollector {
 public:
  ReplicaCollector(const ChosenBoxes& chosen, std::span<const uint32_t> primary,
                   const Shares& shares)
      : chosen_(chosen), primary_(primary), shares_(shares) {
    // Of the few boxes that have twins: who holds the first name's.
    for (uint32_t b = 0; b < primary.size(); ++b) {
      if (primary[b] != b) tied_.insert(primary[b]);
    }
    ForEachHolder([this](uint32_t box, const Candidate& holder) {
      if (tied_.contains(box)) holds_first_name_.emplace(box, holder.part);
    });
  }

  std::vector<Replica> Collect() const {
    std::vector<Replica> replicas;
    ForEachHolder([&](uint32_t box, const Candidate& holder) {
      const uint32_t uploaded = shares_.fragment_of_box[box];
      const bool same_memory =
          primary_[box] != box && holds_first_name_.contains({primary_[box], holder.part});
      if (holder.fragment != uploaded && !same_memory) {
        replicas.push_back({holder.fragment, uploaded});
      }
    });
    std::sort(replicas.begin(), replicas.end(),
              [](const Replica& a, const Replica& b) { return a.fragment < b.fragment; });
    return replicas;
  }

 private:
  template <class Visit>
  void ForEachHolder(Visit visit) const {
    for (uint32_t b = 0; b < chosen_.boxes.size(); ++b) {
      for (const Candidate& candidate : chosen_.of(chosen_.boxes[b])) visit(b, candidate);
    }
    for (const Bystander& bystander : chosen_.bystanders) visit(bystander.box, bystander.holder);
  }

  const ChosenBoxes& chosen_;
  const std::span<const uint32_t> primary_;
  const Shares& shares_;
  std::set<uint32_t> tied_;
  std::set<std::pair<uint32_t, uint32_t>> holds_first_name_;  // box, part
};

// Tells every participant what it fingerprints.
void AssignReplicas(const std::vector<uint32_t>& part_of_fragment, UploadPlan* plan) {
  for (const Replica& replica : plan->replicas) {
    plan->participants[part_of_fragment[replica.fragment]].replicas.push_back(replica.fragment);
    plan->participants[part_of_fragment[replica.of]].compared.push_back(replica.of);
  }
  for (ParticipantUpload& participant : plan->participants) {
    std::vector<uint32_t>& compared = participant.compared;
    std::sort(compared.begin(), compared.end());
    compared.erase(std::unique(compared.begin(), compared.end()), compared.end());
  }
}

void AddObjects(const manifest::Placement& placement, uint32_t part,
                std::span<const uint32_t> fragments, uint64_t pack_threshold,
                std::vector<PayloadObject>* objects) {
  PayloadObject pack;
  pack.participant = part;
  for (uint32_t f : fragments) {  // ascending: by fragment id
    const PlacementFragment& fragment = placement.fragments[f];
    if (fragment.nbytes < pack_threshold) {
      pack.fragments.push_back({f, pack.nbytes});
      pack.nbytes += fragment.nbytes;
    } else {
      objects->push_back({ObjectNameOf(fragment), fragment.nbytes, part, 0, {{f, 0}}});
    }
  }
  if (pack.fragments.empty()) return;
  pack.name = std::string(kPackPrefix) + UrlEncode(placement.parts[part].participant_id);
  objects->push_back(std::move(pack));
}

// Disjoint sets over tensors and objects: what must stay together.
class Closure {
 public:
  explicit Closure(size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0u); }
  uint32_t Find(uint32_t x) {
    while (parent_[x] != x) x = parent_[x] = parent_[parent_[x]];
    return x;
  }
  void Join(uint32_t a, uint32_t b) { parent_[Find(a)] = Find(b); }

 private:
  std::vector<uint32_t> parent_;
};

// Numbers the units of `objects` (sorted by name) and returns how many there are.
uint32_t NumberUnits(const manifest::Placement& placement, const TensorTable& table,
                     std::vector<PayloadObject>* objects) {
  const auto tensor_count = static_cast<uint32_t>(placement.tensors.size());
  Closure closure(tensor_count + objects->size());
  for (uint32_t o = 0; o < objects->size(); ++o) {
    for (const UploadedFragment& uploaded : (*objects)[o].fragments) {
      const PlacementFragment& fragment = placement.fragments[uploaded.fragment];
      closure.Join(tensor_count + o, *table.Find(fragment.tensor_id));
      for (const std::string& alias : fragment.aliases) {
        closure.Join(tensor_count + o, *table.Find(alias));
      }
    }
  }
  // A weight and its block scales are one unit.
  for (const TensorDescriptor& tensor : placement.tensors) {
    if (tensor.extension == nullptr || !tensor.extension->block_scales) continue;
    closure.Join(*table.Find(tensor.tensor_id),
                 *table.Find(tensor.extension->block_scales->scale_tensor_id));
  }
  std::map<uint32_t, uint32_t> unit_of_root;
  for (uint32_t o = 0; o < objects->size(); ++o) {
    const auto next = static_cast<uint32_t>(unit_of_root.size());
    (*objects)[o].unit =
        unit_of_root.try_emplace(closure.Find(tensor_count + o), next).first->second;
  }
  return static_cast<uint32_t>(unit_of_root.size());
}

}  // namespace

Result<UploadPlan> PlanUpload(const manifest::PlacementPtr& placement, std::string group_id,
                              uint64_t pack_threshold, ReplicaScope scope) {
  const SourceIndex index(placement);
  MC_RETURN_IF_ERROR(index.rank_status());
  MC_RETURN_IF_ERROR(index.choice_status());
  UploadPlan plan;
  plan.placement = placement;
  plan.group_id = std::move(group_id);
  MC_ASSIGN_OR_RETURN(const ChosenBoxes chosen, ChooseBoxes(*placement, index, scope));
  const std::vector<uint32_t> primary = StorableAliases(*placement, chosen).Primaries(chosen);
  const Shares shares = ShareOut(chosen, primary, placement->parts.size());
  for (uint32_t b = 0; b < chosen.boxes.size(); ++b) {
    if (primary[b] == b) continue;
    plan.twins.push_back({chosen.first_fragment(chosen.boxes[b]), shares.fragment_of_box[b]});
  }
  std::sort(plan.twins.begin(), plan.twins.end(),
            [](const auto& a, const auto& b) { return a.fragment < b.fragment; });
  if (scope != ReplicaScope::kNone) {
    plan.replicas = ReplicaCollector(chosen, primary, shares).Collect();
  }
  for (uint32_t part = 0; part < placement->parts.size(); ++part) {
    plan.participants.push_back({placement->parts[part].participant_id, 0, {}, {}, {}});
    AddObjects(*placement, part, shares.fragments_of_part[part], pack_threshold, &plan.objects);
  }
  std::sort(plan.objects.begin(), plan.objects.end(),
            [](const PayloadObject& a, const PayloadObject& b) { return a.name < b.name; });
  if (!plan.replicas.empty()) AssignReplicas(PartsOfFragments(*placement), &plan);
  plan.unit_count = NumberUnits(*placement, index.table(), &plan.objects);
  for (uint32_t o = 0; o < plan.objects.size(); ++o) {
    ParticipantUpload& participant = plan.participants[plan.objects[o].participant];
    participant.objects.push_back(o);
    participant.nbytes += plan.objects[o].nbytes;
    plan.nbytes += plan.objects[o].nbytes;
  }
  if (plan.nbytes == 0) {
    return InvalidArgument("a placement without elements has nothing to store: " +
                           placement->placement_id);
  }
  plan.plan_sha256 = ToHex(Sha256Of(UploadPlanText(plan)));
  return plan;
}

std::string UploadPlanText(const UploadPlan& plan) {
  const auto number = [](uint64_t value) { return " " + std::to_string(value); };
  std::string text =
      "mooncake-upload-plan 1\nplacement " + UrlEncode(plan.placement->placement_id) + "\n";
  for (const ParticipantUpload& participant : plan.participants) {
    text += "participant " + UrlEncode(participant.participant_id) +
            number(participant.objects.size()) + number(participant.nbytes) + "\n";
    for (uint32_t o : participant.objects) {
      const PayloadObject& object = plan.objects[o];
      text += "object " + object.name + number(object.nbytes) + number(object.unit) + "\n";
      for (const UploadedFragment& uploaded : object.fragments) {
        const PlacementFragment& fragment = plan.placement->fragments[uploaded.fragment];
        text += "fragment " + UrlEncode(fragment.placement_fragment_id) +
                number(uploaded.object_offset) + number(fragment.nbytes) + "\n";
      }
    }
  }
  const auto id = [&plan](uint32_t fragment) {
    return UrlEncode(plan.placement->fragments[fragment].placement_fragment_id);
  };
  for (const AliasTwin& twin : plan.twins) {
    text += "twin " + id(twin.fragment) + " " + id(twin.of) + "\n";
  }
  for (const Replica& replica : plan.replicas) {
    text += "replica " + id(replica.fragment) + " " + id(replica.of) + "\n";
  }
  return text;
}

namespace {

// How the ranks of the placement hold a tensor is none of a stored copy's business.
TensorDescriptor StoredForm(TensorDescriptor tensor) {
  if (tensor.extension == nullptr) return tensor;
  manifest::TensorExtension kept = *tensor.extension;
  kept.ownership.clear();
  kept.padded_shape.reset();
  const bool base_shape =
      !tensor.global_shape.empty() && geometry::VolumeOf(tensor.global_shape) != 0;
  if (base_shape && kept == manifest::TensorExtension()) {
    tensor.extension = nullptr;
  } else {
    tensor.extension = std::make_shared<const manifest::TensorExtension>(std::move(kept));
  }
  return tensor;
}

manifest::StoredFragment StoredForm(const PlacementFragment& source, std::string object_key,
                                    uint64_t object_offset) {
  manifest::StoredFragment fragment;
  fragment.fragment_id = source.placement_fragment_id;
  fragment.tensor_id = source.tensor_id;
  fragment.global_offset = source.global_offset;
  fragment.local_shape = source.local_shape;
  fragment.object_key = std::move(object_key);
  fragment.object_offset = object_offset;
  fragment.nbytes = source.nbytes;
  return fragment;
}

}  // namespace

Result<manifest::StoredManifestPtr> BuildStoredManifest(const UploadPlan& plan,
                                                        std::string namespace_name,
                                                        std::string created_at) {
  const manifest::Placement& placement = *plan.placement;
  manifest::StoredManifest manifest;
  manifest.namespace_name = std::move(namespace_name);
  manifest.resource_id = placement.resource_id;
  manifest.revision = placement.revision;
  manifest.weight_generation = placement.weight_generation;
  manifest.group_id = plan.group_id;
  manifest.manifest_key = plan.group_id + "/manifest";
  for (const TensorDescriptor& tensor : placement.tensors) {
    manifest.tensors.push_back(StoredForm(tensor));
  }
  manifest.created_at = std::move(created_at);
  std::unordered_map<uint32_t, std::vector<uint32_t>> twins_of;
  for (const AliasTwin& twin : plan.twins) twins_of[twin.of].push_back(twin.fragment);
  for (const PayloadObject& object : plan.objects) {
    for (const UploadedFragment& uploaded : object.fragments) {
      std::vector<uint32_t> names{uploaded.fragment};
      if (const auto it = twins_of.find(uploaded.fragment); it != twins_of.end()) {
        names.insert(names.end(), it->second.begin(), it->second.end());
      }
      for (const uint32_t name : names) {
        const PlacementFragment& source = placement.fragments[name];
        manifest.fragments.push_back(
            StoredForm(source, plan.ObjectKey(object), uploaded.object_offset));
        if (names.size() == 1) continue;
        manifest.fragments.back().aliases = source.aliases;
        manifest.fragments.back().shares_range = true;
      }
    }
  }
  std::sort(manifest.fragments.begin(), manifest.fragments.end(), [](const auto& a, const auto& b) {
    return std::tie(a.tensor_id, a.fragment_id) < std::tie(b.tensor_id, b.fragment_id);
  });
  return manifest::MakeStoredManifest(std::move(manifest));
}

model::AffinitySummary BuildAffinitySummary(const UploadPlan& plan) {
  std::vector<model::AffinityMember> members;
  for (const PayloadObject& object : plan.objects) {
    members.push_back({object.name, object.nbytes, object.unit});
  }
  return model::SummarizeAffinity(std::move(members));
}

std::string BuildPayloadKeyDigest(const UploadPlan& plan) {
  std::vector<std::string> keys;
  for (const PayloadObject& object : plan.objects) keys.push_back(plan.ObjectKey(object));
  return model::PayloadKeyDigest({keys.begin(), keys.end()});
}

}  // namespace mooncake::reshard
