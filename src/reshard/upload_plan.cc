#include "reshard/upload_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/url_encode.h"
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

struct ChosenBoxes {
  std::vector<BoxToUpload> boxes;     // by tensor, box
  std::vector<Candidate> candidates;  // of one box: by participant
};

// The group that the planner would read for this tensor.
const FragmentGroups::Group& ChosenGroup(const FragmentGroups& groups, bool dp_owned, int64_t dp) {
  if (dp_owned) return groups.groups()[0];
  const auto it = std::find_if(groups.groups().begin(), groups.groups().end(),
                               [dp](const auto& group) { return group.dp == dp; });
  MC_CHECK(it != groups.groups().end());
  return *it;
}

ChosenBoxes ChooseBoxes(const manifest::Placement& placement, const SourceIndex& index) {
  const int64_t dp = index.complete_dps()[0];
  const std::vector<uint32_t> part_of_fragment = PartsOfFragments(placement);
  const TensorList& tensors = *index.tensors();
  const FragmentsByTensor by_tensor =
      GroupByTensor(TensorsOf(placement.fragments, index.table()), tensors.size());
  ChosenBoxes chosen;
  FragmentGroups groups;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    groups.Load(*tensors[tensor], placement.fragments, by_tensor, tensor,
                /*prove_tiling=*/false);
    const auto entries = groups.of(ChosenGroup(groups, IsDpOwned(*tensors[tensor]), dp));
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i == 0 || entries[i].box != entries[i - 1].box) {
        chosen.boxes.push_back({placement.fragments[entries[i].fragment].nbytes,
                                static_cast<uint32_t>(chosen.candidates.size()), 0});
      }
      ++chosen.boxes.back().candidates;
      chosen.candidates.push_back({entries[i].fragment, part_of_fragment[entries[i].fragment]});
    }
  }
  for (const BoxToUpload& box : chosen.boxes) {
    const auto first = chosen.candidates.begin() + box.first_candidate;
    std::sort(first, first + box.candidates,
              [](const Candidate& a, const Candidate& b) { return a.part < b.part; });
  }
  return chosen;
}

// The fragments each part uploads, ascending.
std::vector<std::vector<uint32_t>> ShareOut(const ChosenBoxes& chosen, size_t part_count) {
  std::vector<uint32_t> order(chosen.boxes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const BoxToUpload& box_a = chosen.boxes[a];
    const BoxToUpload& box_b = chosen.boxes[b];
    return std::tuple(box_a.candidates > 1, ~box_a.nbytes) <
           std::tuple(box_b.candidates > 1, ~box_b.nbytes);
  });
  std::vector<uint64_t> bytes(part_count, 0);
  std::vector<std::vector<uint32_t>> fragments(part_count);
  for (uint32_t b : order) {
    const BoxToUpload& box = chosen.boxes[b];
    const auto candidates =
        std::span(chosen.candidates).subspan(box.first_candidate, box.candidates);
    const Candidate& owner = *std::min_element(
        candidates.begin(), candidates.end(),
        [&](const Candidate& a, const Candidate& c) { return bytes[a.part] < bytes[c.part]; });
    bytes[owner.part] += box.nbytes;
    fragments[owner.part].push_back(owner.fragment);
  }
  for (std::vector<uint32_t>& list : fragments) std::sort(list.begin(), list.end());
  return fragments;
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
  std::map<uint32_t, uint32_t> unit_of_root;
  for (uint32_t o = 0; o < objects->size(); ++o) {
    const auto next = static_cast<uint32_t>(unit_of_root.size());
    (*objects)[o].unit =
        unit_of_root.try_emplace(closure.Find(tensor_count + o), next).first->second;
  }
  return static_cast<uint32_t>(unit_of_root.size());
}

// The alias tuples that the stored contract can say: wherever one member is stored, all are, with
// the same box, and with descriptors that differ in the name alone.
class StorableAliases {
 public:
  explicit StorableAliases(const UploadPlan& plan) {
    for (const PayloadObject& object : plan.objects) {
      for (const UploadedFragment& uploaded : object.fragments) {
        const PlacementFragment& f = plan.placement->fragments[uploaded.fragment];
        if (f.aliases.empty()) continue;
        members_[f.aliases][{f.global_offset, f.local_shape, f.nbytes}].insert(f.tensor_id);
      }
    }
    for (const auto& [aliases, geometries] : members_) {
      if (Storable(plan.placement->tensors, aliases, geometries)) storable_.insert(aliases);
    }
  }

  bool Contains(const std::vector<std::string>& aliases) const {
    return storable_.contains(aliases);
  }

 private:
  using Aliases = std::vector<std::string>;
  using Geometry = std::tuple<manifest::Extents, manifest::Extents, uint64_t>;
  using Members = std::map<Geometry, std::set<std::string>>;

  static bool Storable(std::span<const TensorDescriptor> tensors, const Aliases& aliases,
                       const Members& geometries) {
    const std::set<std::string> wanted(aliases.begin(), aliases.end());
    for (const auto& [geometry, present] : geometries) {
      if (present != wanted) return false;
    }
    TensorDescriptor first = *manifest::FindTensor(tensors, aliases[0]);
    return std::all_of(aliases.begin(), aliases.end(), [&](const std::string& alias) {
      const TensorDescriptor& other = *manifest::FindTensor(tensors, alias);
      first.tensor_id = alias;
      return first == other;
    });
  }

  std::map<Aliases, Members> members_;
  std::set<Aliases> storable_;
};

}  // namespace

Result<UploadPlan> PlanUpload(const manifest::PlacementPtr& placement, std::string group_id,
                              uint64_t pack_threshold) {
  const SourceIndex index(placement);
  MC_RETURN_IF_ERROR(index.rank_status());
  MC_RETURN_IF_ERROR(index.choice_status());
  UploadPlan plan;
  plan.placement = placement;
  plan.group_id = std::move(group_id);
  const std::vector<std::vector<uint32_t>> shares =
      ShareOut(ChooseBoxes(*placement, index), placement->parts.size());
  for (uint32_t part = 0; part < shares.size(); ++part) {
    plan.participants.push_back({placement->parts[part].participant_id, 0, {}});
    AddObjects(*placement, part, shares[part], pack_threshold, &plan.objects);
  }
  std::sort(plan.objects.begin(), plan.objects.end(),
            [](const PayloadObject& a, const PayloadObject& b) { return a.name < b.name; });
  plan.unit_count = NumberUnits(*placement, index.table(), &plan.objects);
  for (uint32_t o = 0; o < plan.objects.size(); ++o) {
    ParticipantUpload& participant = plan.participants[plan.objects[o].participant];
    participant.objects.push_back(o);
    participant.nbytes += plan.objects[o].nbytes;
    plan.nbytes += plan.objects[o].nbytes;
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
  return text;
}

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
  manifest.tensors = placement.tensors;
  manifest.created_at = std::move(created_at);
  const StorableAliases aliases(plan);
  for (const PayloadObject& object : plan.objects) {
    for (const UploadedFragment& uploaded : object.fragments) {
      const PlacementFragment& source = placement.fragments[uploaded.fragment];
      manifest::StoredFragment& fragment = manifest.fragments.emplace_back();
      fragment.fragment_id = source.placement_fragment_id;
      fragment.tensor_id = source.tensor_id;
      fragment.global_offset = source.global_offset;
      fragment.local_shape = source.local_shape;
      fragment.object_key = plan.ObjectKey(object);
      fragment.object_offset = uploaded.object_offset;
      fragment.nbytes = source.nbytes;
      if (aliases.Contains(source.aliases)) fragment.aliases = source.aliases;
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
