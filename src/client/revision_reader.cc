#include "client/revision_reader.h"

#include <algorithm>

#include "base/log.h"
#include "base/probe.h"
#include "client/steps.h"
#include "codec/values.h"
#include "manifest/json.h"

namespace mooncake::client {
namespace {

// Without a release the lease ends by its TTL.
constexpr int64_t kReleaseRetryMs = 2'000;
// Names asked for in one call.
constexpr size_t kNamesPerCall = 8192;

Status Disagrees(const std::string& what, const std::string& expected, const std::string& got) {
  return Corrupt(what + ": expected " + expected + ", got " + got);
}

}  // namespace

Result<std::unique_ptr<RevisionReader>> RevisionReader::Open(std::shared_ptr<Session> session,
                                                             const model::WeightIdentity& identity,
                                                             std::stop_token cancel) {
  MC_RETURN_IF_ERROR(model::ValidateIdentity(identity));
  std::unique_ptr<RevisionReader> reader(new RevisionReader(std::move(session), std::move(cancel)));
  MC_RETURN_IF_ERROR(reader->Acquire(identity));
  MC_RETURN_IF_ERROR(reader->session_->Step(load_step::kLeased));
  MC_RETURN_IF_ERROR(reader->LocateMetadata());
  return reader;
}

RevisionReader::~RevisionReader() {
  if (lease_id_ == 0) return;
  kept_.reset();
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(lease_id_);
  const Status status =
      session_->calls
          .Command(&rpc::MasterApi::ReleaseLease, std::move(release), {kReleaseRetryMs, {}})
          .status();
  if (!status.ok()) {
    MC_PROBE("client.lease_left_behind");
    Log().info("client: lease {} is left to its TTL: {}", lease_id_, status.ToString());
  }
}

Status RevisionReader::Acquire(const model::WeightIdentity& identity) {
  v1::OpenRevisionRequest open;
  codec::ToProto(identity, open.mutable_identity());
  open.set_ttl_ms(session_->options.lease_ttl_ms);
  open.set_holder(session_->options.holder);
  MC_ASSIGN_OR_RETURN(const v1::OpenRevisionReply reply,
                      session_->calls.Command(&rpc::MasterApi::OpenRevision, std::move(open),
                                              session_->Limits(cancel_)));
  lease_id_ = reply.lease_id();
  kept_ = session_->keeper.KeepRevision(lease_id_, session_->options.lease_ttl_ms);
  MC_ASSIGN_OR_RETURN(metadata_, codec::FromProto(reply.metadata()));
  if (metadata_.identity != identity) {
    return Internal("asked for " + model::Describe(identity) + ", got " +
                    model::Describe(metadata_.identity));
  }
  return OkStatus();
}

Status RevisionReader::LocateMetadata() {
  v1::LocateObjectsRequest locate;
  locate.set_lease_id(lease_id_);
  locate.set_metadata_objects(true);
  MC_ASSIGN_OR_RETURN(
      const v1::LocateObjectsReply reply,
      session_->calls.Ask(&rpc::MasterApi::LocateObjects, locate, session_->Limits(cancel_)));
  std::vector<model::MetadataObject> digests;  // the reply has them in participant order
  for (const v1::MetadataObject& proto : reply.metadata_objects()) {
    MC_ASSIGN_OR_RETURN(model::MetadataObject object, codec::FromProto(proto));
    if (object.name != model::kManifestName && object.name != model::kAffinityName) {
      digests.push_back(object);
    }
    objects_[object.name] = std::move(object);
  }
  if (const Sha256Digest root = model::DigestsRoot(digests);
      root != metadata_.digests_root_sha256) {
    return Disagrees("digests objects of " + model::Describe(metadata_.identity),
                     "a root of SHA-256 " + ToHex(metadata_.digests_root_sha256), ToHex(root));
  }
  for (const v1::NodeAddress& node : reply.nodes()) {
    for (const v1::Grant& grant : reply.grants()) {
      if (grant.access() == v1::ACCESS_METADATA_READ && grant.instance_id() == node.instance_id()) {
        nodes_[node.node_id()] = LocatedArena{grant, node};
      }
    }
  }
  return OkStatus();
}

Result<std::string> RevisionReader::ReadObject(const std::string& name) {
  const auto object = objects_.find(name);
  if (object == objects_.end()) {
    return Corrupt("METADATA object " + name + " of " + model::Describe(metadata_.identity) +
                   " is missing");
  }
  std::string content;
  const CallLimits limits = session_->Limits(cancel_);
  const rpc::CallBounds bounds = limits.Bounds();
  MC_RETURN_IF_ERROR(Repeat(limits, [&]() -> Status {
    const auto node = nodes_.find(object->second.node_id);
    if (node == nodes_.end()) {
      return Unavailable("node " + object->second.node_id + " of METADATA object " + name +
                         " is not registered");
    }
    MC_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::NodeChannel> channel,
                        session_->nodes.Get(node->second.node, bounds));
    Result<std::string> read = channel->ReadMetadata(node->second.grant, name, bounds);
    if (read.ok()) {
      content = *std::move(read);
      return OkStatus();
    }
    if (read.status().code() == Code::kNotFound) {
      // The Master's record of it says that it must be there.
      return Corrupt("METADATA object " + name + " of " + model::Describe(metadata_.identity) +
                     " is missing on node " + node->second.node.node_id() + ": " +
                     read.status().message());
    }
    // The node may have been restarted: new address, new grant.
    if (read.status().code() == Code::kUnavailable) MC_RETURN_IF_ERROR(LocateMetadata());
    return read.status();
  }));
  const std::string what = "METADATA object " + name + " of " +
                           model::Describe(metadata_.identity) + " on node " +
                           object->second.node_id;
  if (content.size() != object->second.bytes) {
    return Disagrees(what, std::to_string(object->second.bytes) + " bytes",
                     std::to_string(content.size()));
  }
  if (const Sha256Digest actual = Sha256Of(content); actual != object->second.sha256) {
    return Disagrees(what, "SHA-256 " + ToHex(object->second.sha256), ToHex(actual));
  }
  return content;
}

Result<manifest::StoredManifestPtr> RevisionReader::ReadManifest() {
  const std::string name(model::kManifestName);
  if (const auto object = objects_.find(name);
      object != objects_.end() && object->second.sha256 != metadata_.manifest_sha256) {
    return Disagrees("manifest of " + model::Describe(metadata_.identity),
                     "SHA-256 " + ToHex(metadata_.manifest_sha256), ToHex(object->second.sha256));
  }
  manifest::StoredManifestPtr manifest =
      session_->plans.FindManifest(ToHex(metadata_.manifest_sha256));
  if (manifest == nullptr) {
    MC_ASSIGN_OR_RETURN(const std::string json, ReadObject(name));
    Result<manifest::StoredManifestPtr> parsed = manifest::StoredManifestFromJson(json);
    if (!parsed.ok()) {
      return Corrupt("manifest of " + model::Describe(metadata_.identity) + ": " +
                     parsed.status().message());
    }
    manifest = *std::move(parsed);
    session_->plans.AddManifest(ToHex(metadata_.manifest_sha256), manifest);
  }
  const model::WeightIdentity& identity = metadata_.identity;
  if (manifest->namespace_name != identity.name_space ||
      manifest->resource_id != identity.resource_id || manifest->revision != identity.revision ||
      manifest->weight_generation != identity.weight_generation.value ||
      manifest->group_id != metadata_.group_id) {
    return Disagrees("manifest", model::Describe(identity), manifest->group_id);
  }
  MC_RETURN_IF_ERROR(session_->Step(load_step::kManifestRead));
  return manifest;
}

Result<DigestsTable> RevisionReader::ReadDigests(std::string_view participant_id) {
  MC_ASSIGN_OR_RETURN(std::string bytes, ReadObject(model::DigestsName(participant_id)));
  return DigestsTable::Decode(std::move(bytes));
}

Result<Locations> RevisionReader::Locate(const std::vector<std::string>& names) {
  Locations locations;
  for (size_t first = 0; first < names.size(); first += kNamesPerCall) {
    const size_t end = std::min(first + kNamesPerCall, names.size());
    v1::LocateObjectsRequest locate;
    locate.set_lease_id(lease_id_);
    for (size_t i = first; i < end; ++i) locate.add_payload_names(names[i]);
    MC_ASSIGN_OR_RETURN(
        const v1::LocateObjectsReply reply,
        session_->calls.Ask(&rpc::MasterApi::LocateObjects, locate, session_->Limits(cancel_)));
    std::map<std::string, const v1::NodeAddress*> by_instance;
    for (const v1::NodeAddress& node : reply.nodes()) by_instance[node.instance_id()] = &node;
    for (const v1::Grant& grant : reply.grants()) {
      const auto node = by_instance.find(grant.instance_id());
      if (grant.access() != v1::ACCESS_READ || node == by_instance.end()) continue;
      locations.arenas[grant.arena_id()] = LocatedArena{grant, *node->second};
    }
    for (const v1::ObjectLocation& object : reply.objects()) {
      if (object.replicas().empty() ||
          object.participant() >= static_cast<uint32_t>(reply.participants_size())) {
        return Internal("the Master's place of payload " + object.name() + " is incomplete");
      }
      const v1::Extent& extent = object.replicas(0);
      locations.objects[object.name()] =
          LocatedObject{object.bytes(), reply.participants(static_cast<int>(object.participant())),
                        extent.arena_id(), extent.offset()};
    }
  }
  for (const std::string& name : names) {
    const auto found = locations.objects.find(name);
    if (found == locations.objects.end()) {
      return Corrupt("payload " + name + " of " + model::Describe(metadata_.identity) +
                     " is in the manifest and unknown to the Master");
    }
    const auto arena = locations.arenas.find(found->second.arena_id);
    if (arena == locations.arenas.end()) {
      return Internal("no READ grant for arena " + std::to_string(found->second.arena_id) +
                      " of payload " + name);
    }
    const uint64_t arena_bytes = arena->second.grant.arena_bytes();
    if (found->second.offset > arena_bytes ||
        found->second.bytes > arena_bytes - found->second.offset) {
      return Internal("payload " + name + ": " + std::to_string(found->second.bytes) +
                      " bytes at " + std::to_string(found->second.offset) +
                      " leave their arena of " + std::to_string(arena_bytes));
    }
  }
  return locations;
}

Status RevisionReader::CheckLease() {
  v1::RenewLeasesRequest renew;
  renew.add_lease_ids(lease_id_);
  MC_ASSIGN_OR_RETURN(
      const v1::RenewLeasesReply reply,
      session_->calls.Ask(&rpc::MasterApi::RenewLeases, renew, session_->Limits(cancel_)));
  if (reply.leases_size() != 1) {
    return Internal("asked for 1 lease, got " + std::to_string(reply.leases_size()));
  }
  return rpc::StatusFromProto(reply.leases(0));
}

}  // namespace mooncake::client
