#include "manifest/address_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <tuple>

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

Status CheckAddresses(std::span<BoundView> views) {
  std::sort(views.begin(), views.end(), [](const BoundView& a, const BoundView& b) {
    return std::tie(a.runtime->address, a.runtime->nbytes, a.fragment->placement_fragment_id) <
           std::tie(b.runtime->address, b.runtime->nbytes, b.fragment->placement_fragment_id);
  });
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

Status CheckAllocations(std::span<BoundView> views) {
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
  std::sort(views.begin(), views.end(),
            [](const BoundView& a, const BoundView& b) { return SpaceOf(a) < SpaceOf(b); });
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
