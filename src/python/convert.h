// Strict reading of Python values, as the contracts demand it: exact str and int (no subclasses, no
// bool, no numpy scalars), containers that are sequences, integers that fit in 64 bits.
//
// Every refusal is a ValueError that names the field. The GIL is held throughout.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "manifest/types.h"

namespace mooncake::python {

namespace nb = nanobind;

// Attribute names, interned once. One list, so that a misspelt name does not compile.
#define MOONCAKE_NAMES(X)                                                                        \
  X(_handle) X(address) X(aliases) X(alias_group_of) X(alias_groups) X(content_sha256)           \
  X(created_at) X(device) X(dim) X(dp) X(dp_size) X(dtype) X(endpoint) X(ep) X(ep_size)          \
  X(expert_id) X(expert_ids) X(fragment_id) X(fragments) X(generation) X(global_offset)          \
  X(global_shape) X(group_id) X(inner_bytes) X(instance_id) X(itemsize) X(kind) X(kind_of)       \
  X(kinds) X(layer_id) X(layer_ids) X(layout_fingerprint) X(lease_id) X(local_shape)             \
  X(manifest_key) X(max_segments_per_region) X(max_total_lowered_segments)                       \
  X(max_transfer_regions) X(nbytes) X(object_key) X(object_offset) X(offsets)      \
  X(operation_indices) X(operations) X(outer_loop_counts) X(overlap_offset) X(overlap_shape)     \
  X(parallel_axes) X(participant_id) X(participant_of) X(participants) X(parts)                  \
  X(pipeline_stage_id) X(pipeline_stage_ids) X(placement_digest) X(placement_fragment_id)        \
  X(placement_fragment_ids) X(placement_id) X(placement_set_id) X(planning_limits) X(pp)         \
  X(pp_size) X(rank) X(ranks) X(resource_id) X(revision) X(shapes) X(shard_dims) X(source)       \
  X(source_base_offset) X(source_executors) X(source_manifest) X(source_pipeline_stage_id)       \
  X(source_placement) X(source_pp) X(source_strides) X(source_tensors) X(storage_address)        \
  X(storage_nbytes) X(storage_offset_bytes) X(strides_bytes) X(target) X(target_base_offset)     \
  X(target_executors) X(target_pipeline_stage_id) X(target_placement) X(target_pp)               \
  X(target_strides) X(target_tensors) X(tensor_id) X(tensor_ids) X(tensor_of) X(tensors)         \
  X(topology) X(topology_id) X(tp) X(tp_size) X(weight_generation) X(worker_id)

struct Names {
#define MOONCAKE_DECLARE_NAME(name) PyObject* name;
  MOONCAKE_NAMES(MOONCAKE_DECLARE_NAME)
#undef MOONCAKE_DECLARE_NAME
  PyObject* namespace_name;  // "namespace", a keyword of C++
};
const Names& N();

nb::object Get(nb::handle object, PyObject* name);
// Into a frozen dataclass; skipped when it is the same object already.
void Set(nb::handle object, PyObject* name, nb::handle value);

// A class of the Python face, imported when first needed (the face imports this module first).
class PyClass {
 public:
  constexpr PyClass(const char* module, const char* name) : module_(module), name_(name) {}

  nb::handle type();
  bool IsInstance(nb::handle object);
  const char* name() const { return name_; }
  // A new instance without its constructor having run.
  nb::object Make();

 private:
  const char* module_;
  const char* name_;
  PyObject* type_ = nullptr;
};

// The UTF-8 of a str, which must outlive it; UnicodeEncodeError (a ValueError) for lone surrogates.
std::string_view Utf8(nb::handle text);
std::string Text(nb::handle value, const char* name);
std::optional<std::string> OptionalText(nb::handle value, const char* name);
int64_t Int(nb::handle value, std::string_view name, int64_t min);
std::optional<int64_t> OptionalInt(nb::handle value, const char* name, int64_t min);
uint64_t U64(nb::handle value, std::string_view name, uint64_t min);

// `value` as an exact tuple; ValueError "<name> <complaint>" when it is no sequence, or is text or
// bytes.
nb::tuple AsTuple(nb::handle value, std::string_view name, std::string_view complaint);
// INTS of the contract: AsTuple, then every item. Sets *tuple (when asked) to what to store.
manifest::Extents Ints(nb::handle value, const char* name, int64_t min, nb::tuple* tuple = nullptr);
// ITEMS of the contract.
nb::tuple Items(nb::handle value, std::string_view name, PyClass& item_class);

nb::tuple ToTuple(const manifest::Extents& values);
nb::str ToStr(std::string_view text);
nb::object ToInt(const std::optional<int64_t>& value);  // None when absent

}  // namespace mooncake::python
