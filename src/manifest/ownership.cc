#include "manifest/ownership.h"

#include <algorithm>
#include <compare>
#include <string>

namespace mooncake::manifest {

namespace {

std::strong_ordering CompareBoxes(const HeldBox& a, const HeldBox& b) {
  if (const auto c = a.tiling <=> b.tiling; c != 0) return c;
  if (const auto c = std::lexicographical_compare_three_way(a.offset.begin(), a.offset.end(),
                                                            b.offset.begin(), b.offset.end());
      c != 0) {
    return c;
  }
  return std::lexicographical_compare_three_way(a.shape.begin(), a.shape.end(), b.shape.begin(),
                                                b.shape.end());
}

}  // namespace

std::vector<OwnedTiling> TilingsOf(std::vector<HeldBox> held) {
  std::erase_if(held, [](const HeldBox& box) {
    return std::find(box.shape.begin(), box.shape.end(), 0) != box.shape.end();
  });
  std::sort(held.begin(), held.end(), [](const HeldBox& a, const HeldBox& b) {
    const auto c = CompareBoxes(a, b);
    return c != 0 ? c < 0 : a.owner < b.owner;
  });
  std::vector<OwnedTiling> tilings;
  for (size_t i = 0; i < held.size(); ++i) {
    const HeldBox& box = held[i];
    if (i == 0 || box.tiling != held[i - 1].tiling) tilings.emplace_back();
    if (i == 0 || CompareBoxes(box, held[i - 1]) != 0) {
      tilings.back().push_back({.offset = {box.offset.begin(), box.offset.end()},
                                .shape = {box.shape.begin(), box.shape.end()},
                                .owners = {}});
    }
    tilings.back().back().owners.emplace_back(box.owner);
  }
  return tilings;
}

}  // namespace mooncake::manifest
