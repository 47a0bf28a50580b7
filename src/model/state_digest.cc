#include "model/state_digest.h"

#include <bit>

namespace mooncake::model {

void StateDigest::Number(uint64_t value) {
  uint8_t bytes[8];
  for (size_t i = 0; i < sizeof(bytes); ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
  hash_.Update(bytes, sizeof(bytes));
}

void StateDigest::Real(double value) { Number(std::bit_cast<uint64_t>(value)); }

void StateDigest::Text(std::string_view text) {
  Number(text.size());
  hash_.Update(text);
}

void StateDigest::Identity(const WeightIdentity& identity) {
  Text(identity.tenant_id);
  Text(identity.name_space);
  Text(identity.resource_id);
  Text(identity.revision);
  Number(identity.weight_generation.value);
}

void StateDigest::Policy(const StoragePolicy& policy) {
  Number(static_cast<uint64_t>(policy.preferred_residency));
  Real(policy.mixed_hot_ratio);
  Number(static_cast<uint64_t>(policy.migration_mode));
}

void StateDigest::Metadata(const MetadataObject& object) {
  Text(object.name);
  Number(object.bytes);
  Hash(object.sha256);
  Text(object.node_id);
}

void StateDigest::Address(const NodeAddress& address) {
  Text(address.node_id);
  Text(address.instance_id);
  Text(address.host_id);
  Text(address.socket_path);
  // Only where there is one: states from before it have the digest that they had.
  if (!address.tcp_address.empty()) Text(address.tcp_address);
}

}  // namespace mooncake::model
