// What any process of the host may send a node, and the node's own METADATA files.
#include <memory>

#include "base/check.h"
#include "codec/values.h"
#include "env/test_folder.h"
#include "fuzz/decoders.h"
#include "model/grant.h"
#include "model/revision.h"
#include "mooncake/v1/node.pb.h"
#include "node/metadata_file.h"
#include "node/node.h"
#include "node/node_service.h"

namespace mooncake::fuzz {
namespace {

constexpr uint64_t kCapacityBytes = 1 << 20;

struct RunningNode {
  env::TestFolder folder;
  std::unique_ptr<node::Node> node =
      node::Node::Open({.folder = folder.path(), .capacity_bytes = kCapacityBytes}).value();
  node::NodeService service{*node};

  // The grant as the Master would have made it, for this instance.
  void Sign(v1::Grant* proto) {
    proto->set_instance_id(node->instance_id());
    const auto grant = codec::FromProto(*proto);
    if (grant.ok()) {
      const auto mac = model::GrantMac(node->grant_key(), *grant);
      codec::ToProto(*grant, mac, proto);
    }
  }
  void DropAll() {
    std::vector<uint64_t> arenas;
    std::vector<uint64_t> imports;
    for (const node::HeldImport& held : node->Report()) {
      arenas.insert(arenas.end(), held.arena_ids.begin(), held.arena_ids.end());
      imports.push_back(held.import_id);
    }
    MC_CHECK(node->Drop(arenas, imports).ok());
  }
};

v1::Grant* GrantOf(v1::NodeRequest* request) {
  switch (request->kind_case()) {
    case v1::NodeRequest::kOpenArena:
      return request->mutable_open_arena()->mutable_grant();
    case v1::NodeRequest::kWriteMetadata:
      return request->mutable_write_metadata()->mutable_grant();
    case v1::NodeRequest::kReadMetadata:
      return request->mutable_read_metadata()->mutable_grant();
    case v1::NodeRequest::kSealImport:
      return request->mutable_seal_import()->mutable_grant();
    default:
      return nullptr;
  }
}

v1::Grant GrantFor(v1::Access access, uint64_t arena_bytes) {
  v1::Grant grant;
  grant.set_tenant_id("default");
  grant.set_import_id(7);
  grant.set_access(access);
  if (arena_bytes != 0) {
    grant.set_arena_id(3);
    grant.set_arena_bytes(arena_bytes);
  }
  return grant;
}

}  // namespace

// As it came, which no key has signed, and signed.
void FeedNodeRequest(std::string_view bytes) {
  static RunningNode running;
  v1::NodeRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  for (const bool sign : {false, true}) {
    v1::Grant* grant = GrantOf(&request);
    if (sign && grant != nullptr) running.Sign(grant);
    env::UniqueFd fd;
    const v1::NodeReply reply = running.service.Handle(request, {}, &fd);
    MC_CHECK(running.node->used_bytes() <= kCapacityBytes);
    if (sign) continue;
    // Without the key nothing is given or kept.
    MC_CHECK(reply.status().code() != 0 && fd.get() < 0);
    MC_CHECK(running.node->Report().empty());
  }
  running.DropAll();
}

std::vector<std::string> NodeRequestSeeds() {
  std::vector<std::string> seeds;
  v1::NodeRequest request;
  request.set_request_id(5);
  *request.mutable_open_arena()->mutable_grant() = GrantFor(v1::ACCESS_WRITE, 4096);
  seeds.push_back(request.SerializeAsString());
  auto& write = *request.mutable_write_metadata();
  *write.mutable_grant() = GrantFor(v1::ACCESS_METADATA_WRITE, 0);
  write.set_name("digests/rank0");
  write.set_content("content");
  write.set_sha256(codec::BytesOf(Sha256Of("content")));
  seeds.push_back(request.SerializeAsString());
  *request.mutable_read_metadata()->mutable_grant() = GrantFor(v1::ACCESS_METADATA_READ, 0);
  request.mutable_read_metadata()->set_name("manifest");
  seeds.push_back(request.SerializeAsString());
  *request.mutable_seal_import()->mutable_grant() = GrantFor(v1::ACCESS_METADATA_WRITE, 0);
  seeds.push_back(request.SerializeAsString());
  return seeds;
}

void FeedMetadataFile(std::string_view bytes) {
  for (const std::string_view name : {"manifest", "digests/rank0"}) {
    const auto file = node::DecodeMetadataFile(node::MetadataFileName(name), bytes);
    if (!file.ok()) {
      MC_CHECK(file.status().code() == Code::kCorrupt);
      continue;
    }
    MC_CHECK(file->name == name);
    MC_CHECK(node::EncodeMetadataFile(file->name, file->content, file->sha256) == bytes);
  }
}

std::vector<std::string> MetadataFileSeeds() {
  return {node::EncodeMetadataFile("manifest", "{}", Sha256Of("{}")),
          node::EncodeMetadataFile("digests/rank0", "", Sha256Of(""))};
}

}  // namespace mooncake::fuzz
