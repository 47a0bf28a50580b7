#include "manifest/address_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "manifest/validate.h"
#include "manifest/view_overlap.h"

namespace mooncake::manifest {

namespace {

auto SpaceOf(const BoundView& view) {
  return std::tie(view.instance_id, view.runtime->worker_id, view.runtime->device);
}

std::string SpaceText(const BoundView& view) {
  return fmt::format("('{}', '{}', '{}')", view.instance_id, view.runtime->worker_id,
                     view.runtime->device);
}

// An equivalence among the views of one byte range, so comparing neighbours is enough.
bool AreDeclaredAliases(const BoundView& a, const BoundView& b) {
  return a.runtime->address == b.runtime->address && a.runtime->nbytes == b.runtime->nbytes &&
         !a.fragment->aliases.empty() && a.fragment->aliases == b.fragment->aliases &&
         a.fragment->global_offset == b.fragment->global_offset &&
         a.fragment->local_shape == b.fragment->local_shape &&
         a.runtime->strides_bytes == b.runtime->strides_bytes &&
         EqualApartFromId(*a.tensor, *b.tensor);
}

Status RangesOverlap(std::string_view what, const BoundView& a, const BoundView& b) {
  return InvalidArgument(fmt::format("runtime binding {} ranges overlap: {} and {} in {}", what,
                                     a.fragment->placement_fragment_id,
                                     b.fragment->placement_fragment_id, SpaceText(a)));
}

// One past the last byte; a made view's does not leave 64 bits.
uint64_t EndOf(const BoundView& view) { return view.runtime->address + SpanBytes(*view.runtime); }

// Contiguous views whose ranges overlap one after another. Sorted by address, all views of an
// overlapping run are aliases of its first one, or the run has two neighbours that are not.
Status CheckContiguous(std::span<BoundView> views) {
  for (size_t i = 1; i < views.size(); ++i) {
    const BoundView& a = views[i - 1];
    const BoundView& b = views[i];
    if (b.runtime->address - a.runtime->address >= a.runtime->nbytes) continue;
    if (!AreDeclaredAliases(a, b)) return RangesOverlap("address", a, b);
  }
  return OkStatus();
}

// Views of which some are strided, so that spans may overlap where bytes do not.
Status CheckStrided(std::span<BoundView> views) {
  std::vector<const RuntimeBindingFragment*> distinct;
  for (size_t i = 0; i < views.size(); ++i) {
    // Aliases have equal address and size, so they are neighbours.
    if (i == 0 || !AreDeclaredAliases(views[i - 1], views[i])) distinct.push_back(views[i].runtime);
  }
  const std::optional<ViewPair> pair = FindOverlappingViews(distinct);
  if (!pair) return OkStatus();
  const auto view_of = [&](const RuntimeBindingFragment* runtime) -> const BoundView& {
    return *std::find_if(views.begin(), views.end(),
                         [runtime](const BoundView& v) { return v.runtime == runtime; });
  };
  return RangesOverlap("address", view_of(pair->a), view_of(pair->b));
}

// By (address, bytes, fragment id). Views lie all over memory: what is compared is kept beside
// them.
void SortByAddress(std::span<BoundView> views) {
  struct Key {
    uint64_t address = 0;
    uint64_t nbytes = 0;
    uint32_t position = 0;
  };
  std::vector<Key> keys;
  keys.reserve(views.size());
  for (uint32_t i = 0; i < views.size(); ++i) {
    keys.push_back({views[i].runtime->address, views[i].runtime->nbytes, i});
  }
  std::sort(keys.begin(), keys.end(), [views](const Key& a, const Key& b) {
    if (a.address != b.address) return a.address < b.address;
    if (a.nbytes != b.nbytes) return a.nbytes < b.nbytes;
    return views[a.position].fragment->placement_fragment_id <
           views[b.position].fragment->placement_fragment_id;
  });
  std::vector<BoundView> sorted;
  sorted.reserve(views.size());
  for (const Key& key : keys) sorted.push_back(views[key.position]);
  std::copy(sorted.begin(), sorted.end(), views.begin());
}

Status CheckAddresses(std::span<BoundView> views) {
  SortByAddress(views);
  for (size_t begin = 0, end = 0; begin < views.size(); begin = end) {
    uint64_t reached = EndOf(views[begin]);
    bool strided = views[begin].runtime->strided;
    for (end = begin + 1; end < views.size() && views[end].runtime->address < reached; ++end) {
      reached = std::max(reached, EndOf(views[end]));
      strided = strided || views[end].runtime->strided;
    }
    const std::span<BoundView> run = views.subspan(begin, end - begin);
    MC_RETURN_IF_ERROR(strided ? CheckStrided(run) : CheckContiguous(run));
  }
  return OkStatus();
}

// Distinct allocations of which one reaches into the next.
bool AnyAllocationsOverlap(std::span<const BoundView> views) {
  std::vector<std::pair<uint64_t, uint64_t>> allocations;  // (address, bytes)
  allocations.reserve(views.size());
  for (const BoundView& view : views) {
    allocations.emplace_back(view.runtime->storage_address, view.runtime->storage_nbytes);
  }
  std::sort(allocations.begin(), allocations.end());
  allocations.erase(std::unique(allocations.begin(), allocations.end()), allocations.end());
  for (size_t i = 1; i < allocations.size(); ++i) {
    const auto& [address, nbytes] = allocations[i - 1];
    if (allocations[i].first - address < nbytes) return true;
  }
  return false;
}

Status CheckAllocations(std::span<BoundView> views) {
  if (!AnyAllocationsOverlap(views)) return OkStatus();
  // By fragment id too, so that the same two are named whatever the order of bindings.
  std::sort(views.begin(), views.end(), [](const BoundView& a, const BoundView& b) {
    return std::tie(a.runtime->storage_address, a.runtime->storage_nbytes,
                    a.fragment->placement_fragment_id) <
           std::tie(b.runtime->storage_address, b.runtime->storage_nbytes,
                    b.fragment->placement_fragment_id);
  });
  for (size_t i = 1; i < views.size(); ++i) {
    const RuntimeBindingFragment& a = *views[i - 1].runtime;
    const RuntimeBindingFragment& b = *views[i].runtime;
    const bool same =
        a.storage_address == b.storage_address && a.storage_nbytes == b.storage_nbytes;
    if (same || b.storage_address - a.storage_address >= a.storage_nbytes) continue;
    return RangesOverlap("storage allocation", views[i - 1], views[i]);
  }
  return OkStatus();
}

}  // namespace

Status CheckAddressSpaces(std::vector<BoundView> views) {
  const auto in_order = [](const BoundView& a, const BoundView& b) {
    return SpaceOf(a) < SpaceOf(b);
  };
  if (!std::is_sorted(views.begin(), views.end(), in_order)) {
    std::sort(views.begin(), views.end(), in_order);
  }
  for (size_t begin = 0, end = 0; begin < views.size(); begin = end) {
    end = begin + 1;
    while (end < views.size() && SpaceOf(views[end]) == SpaceOf(views[begin])) ++end;
    const std::span<BoundView> space = std::span(views).subspan(begin, end - begin);
    MC_RETURN_IF_ERROR(CheckAddresses(space));
    MC_RETURN_IF_ERROR(CheckAllocations(space));
  }
  return OkStatus();
}

}  // namespace mooncake::manifest
