// What a client reads from the Master's replies, the small texts that stand in all of them, and
// token files.
#include <set>

#include "base/check.h"
#include "base/digest.h"
#include "base/url_encode.h"
#include "codec/values.h"
#include "fuzz/decoders.h"
#include "model/grant.h"
#include "mooncake/v1/types.pb.h"
#include "rpc/token_table.h"

namespace mooncake::fuzz {
namespace {

model::RevisionMetadata SomeMetadata() {
  model::RevisionMetadata metadata;
  metadata.identity = {"default", "ns", "model", "r", model::WeightGeneration(3)};
  metadata.import_id = model::ImportId(9);
  metadata.availability = model::Availability::kReady;
  metadata.observed_residency = model::Residency::kHot;
  metadata.policy = {model::Residency::kHot, 0.5, model::MigrationMode::kPinned};
  metadata.group_id = model::GroupId(metadata.identity);
  metadata.manifest_key = model::ManifestKey(metadata.group_id);
  metadata.payload_count = 4;
  return metadata;
}

}  // namespace

void FeedRevisionMetadata(std::string_view bytes) {
  v1::RevisionMetadata proto;
  if (proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    const auto metadata = codec::FromProto(proto);
    if (metadata.ok()) {
      v1::RevisionMetadata again;
      codec::ToProto(*metadata, &again);
      const auto second = codec::FromProto(again);
      MC_CHECK(second.ok() && second->identity == metadata->identity &&
               second->availability == metadata->availability &&
               second->manifest_sha256 == metadata->manifest_sha256);
    }
  }
  v1::MetadataObject object;
  if (object.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    const auto read = codec::FromProto(object);
    if (read.ok()) MC_CHECK(read->name == object.name() && read->bytes == object.bytes());
  }
  v1::Grant grant;
  if (grant.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    const auto read = codec::FromProto(grant);
    // Nobody signs by chance.
    if (read.ok()) MC_CHECK(!model::GrantMacMatches(std::string(32, 'k'), *read, grant.mac()));
  }
}

std::vector<std::string> RevisionMetadataSeeds() {
  v1::RevisionMetadata proto;
  codec::ToProto(SomeMetadata(), &proto);
  v1::MetadataObject object;
  codec::ToProto(model::MetadataObject{"manifest", 3, Sha256Of("abc"), "n1"}, &object);
  v1::Grant grant;
  codec::ToProto(model::Grant{"i", "default", model::ImportId(1), model::ArenaId(2), 4096,
                              model::Access::kRead},
                 Sha256Of("no key"), &grant);
  return {proto.SerializeAsString(), object.SerializeAsString(), grant.SerializeAsString()};
}

void FeedSmallTexts(std::string_view bytes) {
  const auto decoded = UrlDecode(bytes);
  if (decoded.ok()) {
    MC_CHECK(UrlDecode(UrlEncode(*decoded)).value() == *decoded);
  } else {
    MC_CHECK(decoded.status().code() == Code::kInvalidArgument);
  }
  MC_CHECK(UrlDecode(UrlEncode(bytes)).value() == bytes);
  const auto digest = Sha256FromHex(bytes);
  if (digest.ok()) MC_CHECK(ToHex(*digest) == bytes);
  const auto raw = codec::DigestFromBytes("field", bytes);
  MC_CHECK(raw.ok() == (bytes.size() == 32));
}

std::vector<std::string> SmallTextsSeeds() {
  return {"a%2Fb", "plain", ToHex(Sha256Of("x")), std::string(32, '\x7f')};
}

void FeedTokenFile(std::string_view bytes) {
  const auto table = rpc::TokenTable::Parse(bytes);
  if (!table.ok()) {
    MC_CHECK(table.status().code() == Code::kInvalidArgument);
    return;
  }
  MC_CHECK(table->size() <= rpc::TokenTable::kTokensMax);
  std::set<std::string> names;
  for (const rpc::Caller& caller : table->callers()) {
    MC_CHECK(names.insert(caller.name).second);
    // Only a client is of one tenant, and one that a message can carry.
    MC_CHECK((caller.role == rpc::Role::kClient) == caller.tenant_id.has_value());
    MC_CHECK(!caller.tenant_id || (!caller.tenant_id->empty() && model::IsUtf8(*caller.tenant_id)));
  }
  // What the file itself holds opens nothing.
  MC_CHECK(table->Find(bytes) == nullptr);
}

std::vector<std::string> TokenFileSeeds() {
  const std::string header = "mooncake-tokens 1\n";
  return {header,
          header + "# a note\n\ntrainer-blue client blue " + ToHex(Sha256Of("a")) +
              "\nodd client %2A%20b " + ToHex(Sha256Of("b")) + "\n",
          header + "node-7\tnode\t*\t" + ToHex(Sha256Of("c")) + "\r\nadmin operator * " +
              ToHex(Sha256Of("d"))};
}

}  // namespace mooncake::fuzz
