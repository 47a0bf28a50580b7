// Who a weight revision is, and what its objects are called.
//
// Plain values and pure functions. The group id and the keys live inside the tenant's key space:
// the tenant is part of no name. Every part of a name is UrlEncode'd (base/url_encode.h), so a
// group id splits at '/' without ambiguity.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/strong_id.h"

namespace mooncake::model {

// Ids that the Master gives: durable, counted from 1, never reused; 0 is "none".
using ImportId = StrongId<struct ImportIdTag>;
using ArenaId = StrongId<struct ArenaIdTag>;
// Of ordinary objects: given in growing order by whichever Master serves.
using ObjectId = StrongId<struct ObjectIdTag>;
using LeaseId = StrongId<struct LeaseIdTag>;
// The publisher's number of a revision within its lineage; 0 is a generation like any other.
using WeightGeneration = StrongId<struct WeightGenerationTag>;
// Counts the mutations of one revision's metadata, from 1; the fence of every mutation.
using MetadataGeneration = StrongId<struct MetadataGenerationTag>;

// A revision without its generation: the scope of ordering and replacement.
struct Lineage {
  std::string tenant_id;
  std::string name_space;  // the contract's `namespace`
  std::string resource_id;
  std::string revision;

  friend auto operator<=>(const Lineage&, const Lineage&) = default;
};

// Ordered part by part, each by its bytes, the generation last: a lineage's generations are
// neighbours.
struct WeightIdentity {
  std::string tenant_id;
  std::string name_space;  // the contract's `namespace`
  std::string resource_id;
  std::string revision;
  WeightGeneration weight_generation;

  Lineage lineage() const { return {tenant_id, name_space, resource_id, revision}; }
  friend auto operator<=>(const WeightIdentity&, const WeightIdentity&) = default;
};

// Longest tenant_id, namespace, resource_id, revision or participant id, in bytes of UTF-8.
inline constexpr size_t kIdentityPartBytesMax = 256;
// Longest payload name, in bytes (it is UrlEncode'd text already).
inline constexpr size_t kPayloadNameBytesMax = 4096;

// Well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
bool IsUtf8(std::string_view text);

// INVALID_ARGUMENT that names `field` unless the part is non-empty UTF-8 of at most
// kIdentityPartBytesMax bytes.
Status ValidateIdentityPart(std::string_view field, std::string_view part);
Status ValidateIdentity(const WeightIdentity& identity);
// For texts that are no identity (holders, reasons, ids of clients): UTF-8 of at most `bytes_max`
// bytes, possibly empty. What is logged must pass this, since the log's text fields are UTF-8.
Status ValidateText(std::string_view field, std::string_view text, size_t bytes_max);
// Non-empty, at most kPayloadNameBytesMax bytes, of the characters that UrlEncode leaves or makes.
Status ValidatePayloadName(std::string_view name);

// weights/<namespace>/<resource_id>/<revision>/<generation>
std::string GroupId(const WeightIdentity& identity);

// Names of a group's METADATA objects, below the group.
inline constexpr std::string_view kManifestName = "manifest";
inline constexpr std::string_view kAffinityName = "affinity";
std::string DigestsName(std::string_view participant_id);  // digests/<participant>

// <group>/<name>
std::string MetadataKey(std::string_view group_id, std::string_view name);
std::string ManifestKey(std::string_view group_id);  // <group>/manifest
// <group>/payload/<name>
std::string PayloadKey(std::string_view group_id, std::string_view payload_name);

// The revision whose manifest, METADATA or payload object would have this key; none of them:
// absent. Whether there is such a revision is another question.
std::optional<WeightIdentity> IdentityOfKey(std::string_view tenant_id, std::string_view key);

// For messages: "tenant default: weights/ns/model/rev/3".
std::string Describe(const WeightIdentity& identity);

}  // namespace mooncake::model

template <>
struct std::hash<mooncake::model::WeightIdentity> {
  size_t operator()(const mooncake::model::WeightIdentity& identity) const noexcept;
};
template <>
struct std::hash<mooncake::model::Lineage> {
  size_t operator()(const mooncake::model::Lineage& lineage) const noexcept;
};
