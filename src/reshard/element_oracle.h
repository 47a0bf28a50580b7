// An oracle for plans that knows nothing of planning: every element of a tensor holds its own
// global index, so a buffer's right content follows from the box alone.
//
// Tests only. Elements are little-endian numbers of the tensor's itemsize.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "manifest/lookup.h"
#include "manifest/validate.h"
#include "reshard/bind.h"
#include "reshard/lowering.h"
#include "reshard/plan.h"
#include "reshard/planner.h"
#include "reshard/upload_plan.h"

namespace mooncake::reshard {

using Bytes = std::vector<uint8_t>;

// What is added to every index of a tensor, so that tensors differ in content.
inline uint64_t SaltOf(const std::string& tensor_id) {
  return std::hash<std::string>()(tensor_id) % 251;
}

// The dense row-major bytes of one box, written element by element.
inline Bytes CutBox(const manifest::TensorDescriptor& tensor, const manifest::Extents& offset,
                    const manifest::Extents& shape) {
  const auto itemsize = static_cast<size_t>(tensor.itemsize);
  const uint64_t salt = SaltOf(tensor.tensor_id);
  Bytes bytes;
  if (geometry::VolumeOf(shape) == 0) return bytes;
  manifest::Extents at = offset;
  while (true) {
    uint64_t index = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      index = index * static_cast<uint64_t>(tensor.global_shape[d]) + static_cast<uint64_t>(at[d]);
    }
    index += salt;
    for (size_t b = 0; b < itemsize; ++b) bytes.push_back(static_cast<uint8_t>(index >> (8 * b)));
    size_t d = at.size();
    while (d > 0 && ++at[d - 1] == offset[d - 1] + shape[d - 1]) {
      at[d - 1] = offset[d - 1];
      --d;
    }
    if (d == 0) return bytes;
  }
}

template <class Fragment>
Bytes CutFragment(std::span<const manifest::TensorDescriptor* const> tensors,
                  const Fragment& fragment) {
  for (const manifest::TensorDescriptor* tensor : tensors) {
    if (tensor->tensor_id == fragment.tensor_id) {
      return CutBox(*tensor, fragment.global_offset, fragment.local_shape);
    }
  }
  MC_CHECK(false);
  return {};
}

// Empty when the plan fills every target fragment with the right bytes, each written once; else
// what is wrong.
inline std::string WhatIsWrong(const LogicalPlan& plan) {
  std::map<uint32_t, Bytes> sources;
  std::vector<Bytes> targets;
  std::vector<Bytes> writes;
  for (const auto& fragment : plan.target_fragments()) {
    targets.emplace_back(fragment.nbytes, uint8_t{0xee});
    writes.emplace_back(fragment.nbytes, uint8_t{0});
  }
  for (size_t i = 0; i < plan.operations().size(); ++i) {
    const PlannedOperation& operation = plan.operations()[i];
    const auto [source, is_new] = sources.try_emplace(operation.source);
    if (is_new) {
      source->second =
          plan.has_stored_source()
              ? CutFragment(plan.source_tensors(), plan.source_stored_fragments()[operation.source])
              : CutFragment(plan.source_tensors(),
                            plan.source_placement_fragments()[operation.source]);
    }
    const Bytes& from = source->second;
    Bytes& target = targets[operation.target];
    std::string fault;
    geometry::ForEachSegment(plan.region(i), [&](uint64_t s, uint64_t t, uint64_t n) {
      if (s + n > from.size() || t + n > target.size()) {
        fault = "operation " + std::to_string(i) + " leaves its fragments";
        return;
      }
      std::memcpy(target.data() + t, from.data() + s, n);
      for (uint64_t b = 0; b < n; ++b) ++writes[operation.target][t + b];
    });
    if (!fault.empty()) return fault;
  }
  for (size_t f = 0; f < targets.size(); ++f) {
    const manifest::PlacementFragment& fragment = plan.target_fragments()[f];
    for (uint8_t count : writes[f]) {
      if (count != 1) return fragment.tensor_id + ": a byte written " + std::to_string(count) + "x";
    }
    if (targets[f] != CutFragment(plan.target_tensors(), fragment)) {
      return fragment.tensor_id + ": wrong bytes";
    }
  }
  return "";
}

// The payload objects that the plan's writers would upload, by name.
inline std::map<std::string, Bytes> UploadedObjects(const UploadPlan& plan) {
  std::map<std::string, Bytes> objects;
  for (const PayloadObject& object : plan.objects) {
    Bytes& bytes = objects[object.name];
    bytes.assign(object.nbytes, uint8_t{0xdd});
    for (const UploadedFragment& uploaded : object.fragments) {
      const auto& fragment = plan.placement->fragments[uploaded.fragment];
      const auto* tensor = manifest::FindTensor(plan.placement->tensors, fragment.tensor_id);
      const Bytes cut = CutBox(*tensor, fragment.global_offset, fragment.local_shape);
      std::copy(cut.begin(), cut.end(),
                bytes.begin() + static_cast<ptrdiff_t>(uploaded.object_offset));
    }
  }
  return objects;
}

// Real memory for every fragment of one part that holds elements, with a binding to it.
struct BoundMemory {
  std::vector<Bytes> buffers;
  manifest::RuntimeBindingPtr binding;
};

inline BoundMemory BindMemory(const manifest::Placement& placement,
                              const manifest::PlacementPart& part) {
  BoundMemory memory;
  manifest::RuntimeBinding binding;
  binding.resource_id = placement.resource_id;
  binding.placement_id = placement.placement_id;
  binding.placement_digest = placement.digest;
  binding.instance_id = "instance";
  binding.generation = 1;
  binding.lease_id = "lease";
  binding.revision = placement.revision;
  binding.participant_id = part.participant_id;
  for (const manifest::PlacementFragment& fragment : part.fragments) {
    if (fragment.is_empty()) {
      memory.buffers.emplace_back();
      continue;
    }
    Bytes& buffer = memory.buffers.emplace_back(fragment.nbytes, uint8_t{0xee});
    const auto* tensor = manifest::FindTensor(part.tensors, fragment.tensor_id);
    manifest::RuntimeBindingFragment bound;
    bound.placement_fragment_id = fragment.placement_fragment_id;
    bound.fragment_id = "runtime-" + fragment.placement_fragment_id;
    bound.address = reinterpret_cast<uint64_t>(buffer.data());
    bound.nbytes = fragment.nbytes;
    bound.worker_id = "worker";
    bound.endpoint = "endpoint";
    bound.device = "cpu";
    bound.itemsize = tensor->itemsize;
    bound.local_shape = fragment.local_shape;
    bound.strides_bytes = *manifest::CanonicalStridesBytes(fragment.local_shape, tensor->itemsize);
    bound.storage_address = bound.address;
    bound.storage_nbytes = bound.nbytes;
    binding.fragments.push_back(std::move(bound));
  }
  memory.binding = *manifest::MakeRuntimeBinding(std::move(binding));
  return memory;
}

// Loads one participant of `target` from the objects of `upload`, through binding and lowering.
// Empty when its memory then holds the right bytes.
inline std::string WhatIsWrongAfterLoading(const UploadPlan& upload,
                                           const std::map<std::string, Bytes>& objects,
                                           const manifest::StoredManifestPtr& stored,
                                           const manifest::PlacementPtr& target, size_t part_index,
                                           const LoweringLimits& limits) {
  const manifest::PlacementPart& part = target->parts[part_index];
  const Result<LogicalPlanPtr> plan = PlanStoredToLocalTarget(stored, target, part.participant_id);
  if (!plan.ok()) return plan.status().ToString();
  const BoundMemory memory = BindMemory(*target, part);
  const Result<BoundPlanPtr> bound = BindStoredToLocalTarget(*plan, *memory.binding);
  if (!bound.ok()) return bound.status().ToString();
  Result<Lowering> lowering = Lowering::Begin(*bound, limits);
  if (!lowering.ok()) return lowering.status().ToString();
  uint64_t moved = 0;
  std::string fault;
  for (CopyBatch batch; lowering->Next(&batch);) {
    if (batch.copies.size() > limits.max_batch_operations ||
        batch.nbytes > limits.max_batch_bytes) {
      return "batch of " + std::to_string(batch.copies.size()) + " copies, " +
             std::to_string(batch.nbytes) + " bytes exceeds its limits";
    }
    const SourceObject& object = (*bound)->objects()[batch.object];
    const Bytes& source = objects.at(std::string(object.name));
    uint64_t batch_bytes = 0;
    for (const LoweredCopy& copy : batch.copies) {
      if (copy.region.source_end() > object.end_byte ||
          copy.region.source_base_offset < object.first_byte) {
        return "a copy leaves the object's declared bytes";
      }
      geometry::ForEachSegment(copy.region, [&](uint64_t s, uint64_t t, uint64_t n) {
        if (s + n > source.size()) {
          fault = "a copy leaves its object";
          return;
        }
        std::memcpy(reinterpret_cast<uint8_t*>(t), source.data() + s, n);
        batch_bytes += n;
      });
    }
    if (batch_bytes != batch.nbytes) return "a batch miscounts its bytes";
    moved += batch_bytes;
  }
  if (!fault.empty()) return fault;
  uint64_t needed = 0;
  for (size_t f = 0; f < part.fragments.size(); ++f) {
    const auto& fragment = part.fragments[f];
    const auto* tensor = manifest::FindTensor(part.tensors, fragment.tensor_id);
    if (memory.buffers[f] != CutBox(*tensor, fragment.global_offset, fragment.local_shape)) {
      return fragment.tensor_id + ": wrong bytes in memory";
    }
    needed += fragment.nbytes;
  }
  if (moved != needed) return "moved " + std::to_string(moved) + " of " + std::to_string(needed);
  if (upload.nbytes == 0) return "nothing uploaded";
  return "";
}

}  // namespace mooncake::reshard
