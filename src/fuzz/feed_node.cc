// What any process of the host may send a node, and the node's own METADATA files.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "codec/values.h"
#include "env/file.h"
#include "env/mapping.h"
#include "env/memory_file.h"
#include "env/peer_memory.h"
#include "env/test_folder.h"
#include "fuzz/decoders.h"
#include "model/grant.h"
#include "model/revision.h"
#include "mooncake/v1/node.pb.h"
#include "node/metadata_file.h"
#include "node/node.h"
#include "node/node_service.h"
#include "node/slab.h"
#include "rpc/extent_limits.h"

namespace mooncake::fuzz {
namespace {

constexpr uint64_t kCapacityBytes = 1 << 20;
constexpr uint64_t kSlabBytes = 8192;
constexpr uint64_t kIdsPerInput = 1000;

// A node that has joined, and what the Master would have signed for it. Ids of one input are moved
// into a range of their own, since a node never takes one again that was dropped.
struct RunningNode {
  env::TestFolder folder;
  std::unique_ptr<node::Node> node =
      node::Node::Open({.folder = folder.path(), .capacity_bytes = kCapacityBytes}).value();
  node::NodeService service{*node};
  env::PeerProcess self = env::PeerProcess::Open(::getpid()).value();
  uint64_t round = 0;

  RunningNode() { MC_CHECK(node->JoinCluster("cluster").ok()); }

  uint64_t Moved(uint64_t id) const {
    return id == 0 ? 0 : round * kIdsPerInput + id % kIdsPerInput;
  }

  void Sign(v1::Grant* proto) {
    proto->set_instance_id(node->instance_id());
    proto->set_import_id(Moved(proto->import_id()));
    proto->set_arena_id(Moved(proto->arena_id()));
    const auto grant = codec::FromProto(*proto);
    if (grant.ok()) {
      const auto mac = model::GrantMac(node->grant_key(), *grant);
      codec::ToProto(*grant, mac, proto);
    }
  }
  void Sign(v1::ExtentPermit* proto) {
    proto->set_instance_id(node->instance_id());
    proto->set_slab_id(Moved(proto->slab_id()));
    const model::ExtentPermit permit = codec::FromProto(*proto);
    codec::ToProto(permit, model::PermitMac(node->grant_key(), permit), proto);
  }
  void Sign(v1::NodeRequest* request) {
    switch (request->kind_case()) {
      case v1::NodeRequest::kOpenArena:
        return Sign(request->mutable_open_arena()->mutable_grant());
      case v1::NodeRequest::kWriteMetadata:
        return Sign(request->mutable_write_metadata()->mutable_grant());
      case v1::NodeRequest::kReadMetadata:
        return Sign(request->mutable_read_metadata()->mutable_grant());
      case v1::NodeRequest::kSealImport:
        return Sign(request->mutable_seal_import()->mutable_grant());
      case v1::NodeRequest::kOpenSlab:
        return Sign(request->mutable_open_slab()->mutable_grant());
      case v1::NodeRequest::kWriteExtents:
        for (auto& write : *request->mutable_write_extents()->mutable_writes()) {
          Sign(write.mutable_permit());
        }
        return;
      case v1::NodeRequest::kReadExtents:
        for (auto& grant : *request->mutable_read_extents()->mutable_grants()) Sign(&grant);
        for (auto& read : *request->mutable_read_extents()->mutable_reads()) {
          read.set_slab_id(Moved(read.slab_id()));
        }
        return;
      case v1::NodeRequest::KIND_NOT_SET:
        return;
    }
  }
  v1::NodeReply Handle(const v1::NodeRequest& request, env::UniqueFd* fd) {
    v1::NodeReply reply = service.Handle(request, {.process = &self}, fd);
    MC_CHECK(node->used_bytes() <= kCapacityBytes);
    if (reply.status().code() != 0) return reply;
    if (request.has_write_extents()) {
      MC_CHECK(reply.results_size() == request.write_extents().writes_size());
    }
    if (request.has_read_extents()) {
      MC_CHECK(rpc::CheckExtentsRead(request.read_extents(), reply).ok());
    }
    return reply;
  }
  void DropAll() {
    std::vector<uint64_t> arenas;
    std::vector<uint64_t> imports;
    for (const node::HeldImport& held : node->Report()) {
      arenas.insert(arenas.end(), held.arena_ids.begin(), held.arena_ids.end());
      if (held.import_id != node::kSlabImport) imports.push_back(held.import_id);
    }
    MC_CHECK(node->Drop(arenas, imports).ok());
  }
};

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

// Two writes of one slab: an object in two pieces, and one that overlaps it.
v1::WriteExtents WritesOfASlab() {
  v1::WriteExtents request;
  for (const uint64_t object_id : {1, 2}) {
    v1::ExtentWrite* write = request.add_writes();
    v1::ExtentPermit* permit = write->mutable_permit();
    permit->set_tenant_id("default");
    permit->set_slab_id(3);
    permit->set_slab_bytes(kSlabBytes);
    permit->set_offset(object_id * 64);
    permit->set_bytes(100);
    permit->set_object_id(object_id);
    for (const uint64_t at : {0, 60}) {
      v1::ExtentWrite::Piece* piece = write->add_pieces();
      piece->set_at(at);
      piece->set_bytes(at == 0 ? 60 : 40);
    }
    write->set_last(true);
    write->set_xxh3(object_id);
    request.mutable_content()->append(100, static_cast<char>('0' + object_id));
  }
  return request;
}

v1::Grant GrantForSlab() {
  v1::Grant grant = GrantFor(v1::ACCESS_SLAB_READ, kSlabBytes);
  grant.set_import_id(node::kSlabImport);
  return grant;
}

}  // namespace

// As it came, which no key has signed, and signed.
void FeedNodeRequest(std::string_view bytes) {
  static RunningNode running;
  ++running.round;
  v1::NodeRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  env::UniqueFd fd;
  const v1::NodeReply refused = running.Handle(request, &fd);
  // Without the key nothing is given or kept.
  MC_CHECK(fd.get() < 0 && refused.content().empty());
  if (refused.status().code() == 0) {
    for (const v1::StatusProto& result : refused.results()) MC_CHECK(result.code() != 0);
    MC_CHECK(refused.results_size() > 0);
  }
  MC_CHECK(running.node->Report().empty());

  if (request.has_open_slab() || request.has_read_extents()) {
    v1::NodeRequest filled;
    *filled.mutable_write_extents() = WritesOfASlab();
    running.Sign(&filled);
    (void)running.Handle(filled, &fd);
  }
  running.Sign(&request);
  (void)running.Handle(request, &fd);
  running.DropAll();
  MC_CHECK(running.node->used_bytes() == 0);
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
  *request.mutable_open_slab()->mutable_grant() = GrantForSlab();
  seeds.push_back(request.SerializeAsString());
  *request.mutable_write_extents() = WritesOfASlab();
  seeds.push_back(request.SerializeAsString());
  request.mutable_write_extents()->clear_content();
  request.mutable_write_extents()->set_pull(true);
  seeds.push_back(request.SerializeAsString());
  v1::ReadExtents& reads = *request.mutable_read_extents();
  *reads.add_grants() = GrantForSlab();
  for (const uint64_t object_id : {1, 2}) {
    v1::ExtentRead* read = reads.add_reads();
    read->set_slab_id(3);
    read->set_offset(object_id * 64);
    read->set_object_id(object_id);
    read->set_bytes(100);
    read->set_from(10);
    read->set_count(90);
  }
  seeds.push_back(request.SerializeAsString());
  return seeds;
}

// A durable slab and its index as an earlier process, or whoever else, left them: the index's bytes
// first. Whatever they say, what is taken in lies in the slab and does not overlap, and all of it
// gives way to a younger object.
void FeedSlabFile(std::string_view bytes) {
  static const env::TestFolder folder;
  const std::string path = folder / "index";
  MC_CHECK(node::ExtentIndex::Create(path, kSlabBytes).ok());
  {
    auto file = env::MemoryFile::OpenFile(path, env::MapAccess::kReadWrite).value();
    const env::Mapping index = file.Map(env::MapAccess::kReadWrite).value();
    const size_t taken = std::min<size_t>(index.size(), bytes.size());
    std::memcpy(index.data(), bytes.data(), taken);
    bytes.remove_prefix(taken);
  }
  env::Mapping memory = env::Mapping::Anonymous(kSlabBytes).value();
  std::memcpy(memory.data(), bytes.data(), std::min<size_t>(kSlabBytes, bytes.size()));
  node::Slab slab(std::move(memory), node::ExtentIndex::Open(path, kSlabBytes).value());
  MC_CHECK(slab.extent_count() <= kSlabBytes / 128);
  std::string content;
  for (uint64_t offset = 0; offset < kSlabBytes; offset += 64) {
    for (uint64_t id : {1, 2, 3}) (void)slab.Read({offset, 100, id}, 0, 100, &content);
  }
  MC_CHECK(content.size() <= kSlabBytes);
  const std::vector<node::ExtentPiece> pieces = {{0, kSlabBytes - 64}};
  const Status written = slab.Write({0, kSlabBytes - 64, UINT64_MAX}, {pieces, true, {}},
                                    [](std::span<const node::ExtentPart> parts) {
                                      std::memset(parts[0].target, 'y', parts[0].bytes);
                                      return OkStatus();
                                    });
  MC_CHECK(written.ok() || written.code() == Code::kInvalidArgument);
  MC_CHECK(slab.extent_count() >= 1);
}

std::vector<std::string> SlabFileSeeds() {
  const env::TestFolder folder;
  const std::string path = folder / "index";
  auto file = env::MemoryFile::CreateAnonymous("slab", kSlabBytes).value();
  node::Slab slab(file.Map(env::MapAccess::kReadWrite).value(),
                  node::ExtentIndex::Create(path, kSlabBytes).value());
  for (uint64_t id : {1, 2, 3}) {
    const std::vector<node::ExtentPiece> pieces = {{0, 100}};
    MC_CHECK(slab.Write({id * 192, 100, id}, {pieces, id != 2, id},
                        [](auto parts) {
                          std::memset(parts[0].target, 'x', parts[0].bytes);
                          return OkStatus();
                        })
                 .ok());
  }
  const env::Mapping memory = file.Map(env::MapAccess::kReadOnly).value();
  return {env::ReadFile(path, 1 << 20).value() +
          std::string(reinterpret_cast<const char*>(memory.data()), memory.size())};
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
