// What revisions of the simulated world hold: a small model whose every element follows from whose
// revision it is, which tensor, and where in it.
#pragma once

#include <cstdint>
#include <string>

#include "cluster/test_layouts.h"
#include "reshard/element_oracle.h"

namespace mooncake::sim {

// One publisher's bytes for one identity. Another variant is somebody else's model of that name.
struct Content {
  model::WeightIdentity identity;
  uint32_t variant = 0;

  friend auto operator<=>(const Content&, const Content&) = default;
};

// Eight bytes an element, so that no two elements of the world are alike by chance. A name that
// must never be in the Master's log begins them all.
inline constexpr const char* kTensorMark = "TENSORMARK";

inline std::vector<cluster::TestTensor> SimModel(bool large) {
  const std::string mark = kTensorMark;
  std::vector<cluster::TestTensor> tensors = {{mark + ".embed", {24, 16}, 8, 0, 0},
                                              {mark + ".norm", {16}, 8, -1, 0},
                                              {mark + ".up", {20, 12}, 8, 1, 1}};
  // Over 256 KiB a fragment in halves, too: objects of their own, of several digest blocks.
  if (large) tensors.push_back({mark + ".large", {300, 256}, 8, 0, 1});
  return tensors;
}

inline uint64_t Mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

inline uint64_t KeyOf(const Content& content, const std::string& tensor_id) {
  uint64_t key = Mixed(content.identity.weight_generation.value * 1'000 + content.variant + 1);
  for (const char c : content.identity.revision + "/" + tensor_id) {
    key = Mixed(key * 257 + static_cast<uint8_t>(c));
  }
  return key;
}

inline reshard::Bytes BytesOf(const Content& content, const manifest::Placement& placement,
                              const manifest::PlacementFragment& fragment) {
  const auto* tensor = manifest::FindTensor(placement.tensors, fragment.tensor_id);
  reshard::Bytes bytes = reshard::CutBox(*tensor, fragment.global_offset, fragment.local_shape);
  const uint64_t key = KeyOf(content, fragment.tensor_id);
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    uint64_t element = 0;
    std::memcpy(&element, bytes.data() + at, 8);
    element = Mixed(element ^ key);
    std::memcpy(bytes.data() + at, &element, 8);
  }
  return bytes;
}

}  // namespace mooncake::sim
