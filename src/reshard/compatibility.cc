#include "reshard/compatibility.h"

#include <optional>

namespace mooncake::reshard {

using manifest::TensorDescriptor;

Status CheckSameRevision(const std::string& resource_id, const std::string& revision,
                         uint64_t weight_generation, const manifest::Placement& target) {
  const auto differ = [](const char* field, const std::string& a, const std::string& b) {
    return InvalidArgument(std::string("source and target ") + field + " differ: " + a + " and " +
                           b);
  };
  if (resource_id != target.resource_id) {
    return differ("resource_id", resource_id, target.resource_id);
  }
  if (revision != target.revision) return differ("revision", revision, target.revision);
  if (weight_generation != target.weight_generation) {
    return differ("weight_generation", std::to_string(weight_generation),
                  std::to_string(target.weight_generation));
  }
  return OkStatus();
}

Status CheckCompatible(const TensorDescriptor& source, const TensorDescriptor& target) {
  if (source.layout_fingerprint != target.layout_fingerprint) {
    return InvalidArgument("layout mismatch for tensor " + target.tensor_id + ": source " +
                           source.layout_fingerprint + ", target " + target.layout_fingerprint);
  }
  const auto mismatch = [&](const char* field, const std::string& a, const std::string& b) {
    return InvalidArgument("tensor descriptor mismatch: " + target.tensor_id + ": " + field +
                           " is " + a + " in the source, " + b + " in the target");
  };
  const auto number = [](const std::optional<int64_t>& value) {
    return value ? std::to_string(*value) : std::string("none");
  };
  const auto shape = [](const manifest::Extents& extents) {
    std::string text = "(";
    for (int64_t extent : extents) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
    return text + ")";
  };
  if (source.global_shape != target.global_shape) {
    return mismatch("global_shape", shape(source.global_shape), shape(target.global_shape));
  }
  if (source.dtype != target.dtype) return mismatch("dtype", source.dtype, target.dtype);
  if (source.itemsize != target.itemsize) {
    return mismatch("itemsize", std::to_string(source.itemsize), std::to_string(target.itemsize));
  }
  if (source.layer_id != target.layer_id) {
    return mismatch("layer_id", number(source.layer_id), number(target.layer_id));
  }
  if (source.expert_id != target.expert_id) {
    return mismatch("expert_id", number(source.expert_id), number(target.expert_id));
  }
  if (source.extension == target.extension) return OkStatus();
  // What the bytes mean must agree; ownership and padding are how a side holds them.
  static const manifest::TensorExtension kNone;
  const manifest::TensorExtension& a = source.extension ? *source.extension : kNone;
  const manifest::TensorExtension& b = target.extension ? *target.extension : kNone;
  const char* differs = a.sections != b.sections           ? "sections"
                        : a.block_scales != b.block_scales ? "block_scales"
                        : a.packing != b.packing           ? "packing"
                                                           : nullptr;
  if (differs == nullptr) return OkStatus();
  return InvalidArgument("tensor descriptor mismatch: " + target.tensor_id + ": " + differs +
                         " of source and target differ");
}

}  // namespace mooncake::reshard
