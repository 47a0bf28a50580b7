// Parts as a placement makes them: many at once, that share their tensors.
//
// Internal to the folder.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "manifest/types.h"

namespace mooncake::manifest {

// Tensors whose constructor has run, numbered in the order they came. One that many parts share is
// checked once.
class MadeTensors {
 public:
  using Pointer = SharedTensors::Pointer;

  // The number of the tensor in canonical form; `given` itself where it is canonical already.
  Result<uint32_t> Make(const Pointer& given);
  const Pointer& operator[](uint32_t number) const { return made_[number]; }
  size_t size() const { return made_.size(); }

 private:
  std::vector<Pointer> made_;
  std::vector<Pointer> given_;  // alive, so that no other comes to lie where one of them lay
  std::unordered_map<const TensorDescriptor*, uint32_t> numbers_;
};

struct MadePart {
  PlacementPart part;
  std::vector<uint32_t> tensor_numbers;  // of part.tensors
  std::vector<uint32_t> tensor_of;       // position in part.tensors of each fragment's tensor
  bool any_aliases = false;
};

// As the public MakePart (validate.h). Its fragments carry their tensors' own ids, not copies.
Result<MadePart> MakePart(PlacementPart fields, MadeTensors& tensors);

}  // namespace mooncake::manifest
