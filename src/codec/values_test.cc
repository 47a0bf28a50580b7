#include "codec/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mooncake::codec {
namespace {

using testing::HasSubstr;

model::RevisionMetadata SomeMetadata() {
  model::RevisionMetadata metadata;
  metadata.identity = {"t", "ns", "model", "rev/1", model::WeightGeneration(7)};
  metadata.import_id = model::ImportId(3);
  metadata.availability = model::Availability::kDegraded;
  metadata.observed_residency = model::Residency::kHot;
  metadata.observed_hot_ratio = 0.25;
  metadata.policy = {model::Residency::kCold, 0.125, model::MigrationMode::kManual};
  metadata.metadata_generation = model::MetadataGeneration(9);
  metadata.group_id = "weights/ns/model/rev%2F1/7";
  metadata.manifest_key = metadata.group_id + "/manifest";
  metadata.manifest_sha256 = Sha256Of("a");
  metadata.payload_keys_sha256 = Sha256Of("b");
  metadata.payload_count = 11;
  metadata.logical_payload_bytes = 1'000'000'007;
  metadata.affinity_count = 5;
  metadata.affinity_sha256 = Sha256Of("c");
  metadata.digests_root_sha256 = Sha256Of("d");
  metadata.created_at = "2026-11-30T05:12:07.123Z";
  metadata.placement_id = "p";
  metadata.state_reason = "node n1 is not reporting";
  metadata.last_access_ms = 123;
  metadata.active_lease_count = 2;
  return metadata;
}

TEST(Convert, RevisionMetadataSurvivesTheWire) {
  const model::RevisionMetadata before = SomeMetadata();
  v1::RevisionMetadata proto;
  proto.set_operation_id(4);  // is overwritten
  ToProto(before, &proto);
  EXPECT_FALSE(proto.has_operation_id());
  const auto after = FromProto(proto);
  ASSERT_TRUE(after.ok()) << after.status().ToString();
  v1::RevisionMetadata again;
  ToProto(*after, &again);
  EXPECT_EQ(again.SerializeAsString(), proto.SerializeAsString());
  EXPECT_EQ(after->identity, before.identity);
  EXPECT_EQ(after->availability, before.availability);
  EXPECT_EQ(after->observed_residency, before.observed_residency);
  EXPECT_EQ(after->policy, before.policy);
  EXPECT_EQ(after->digests_root_sha256, before.digests_root_sha256);
  EXPECT_EQ(after->state_reason, before.state_reason);
  // Every field of the message but those the model keeps elsewhere is set.
  const auto* descriptor = v1::RevisionMetadata::descriptor();
  std::vector<const google::protobuf::FieldDescriptor*> set;
  proto.GetReflection()->ListFields(proto, &set);
  EXPECT_EQ(static_cast<int>(set.size()), descriptor->field_count() - 2);
}

TEST(Convert, NumbersThatMeanNothingAreRefused) {
  v1::RevisionMetadata proto;
  ToProto(SomeMetadata(), &proto);
  proto.set_availability(static_cast<v1::Availability>(6));
  Status status = FromProto(proto).status();
  EXPECT_EQ(status, InvalidArgument("expected availability from 1 to 5, got 6"));
  ToProto(SomeMetadata(), &proto);
  proto.mutable_policy()->set_preferred_residency(v1::RESIDENCY_UNSPECIFIED);
  status = FromProto(proto).status();
  EXPECT_EQ(status, InvalidArgument("expected preferred_residency from 1 to 5, got 0"));
  ToProto(SomeMetadata(), &proto);
  proto.mutable_policy()->set_migration_mode(static_cast<v1::MigrationMode>(4));
  status = FromProto(proto).status();
  EXPECT_EQ(status, InvalidArgument("expected migration_mode from 1 to 3, got 4"));
  ToProto(SomeMetadata(), &proto);
  proto.set_manifest_sha256("short");
  status = FromProto(proto).status();
  EXPECT_EQ(status, InvalidArgument("expected 32 bytes of manifest_sha256, got 5"));
}

TEST(Convert, GrantKeepsItsMac) {
  const model::Grant grant{
      "i1", "tenant", model::ImportId(4), model::ArenaId(5), 8192, model::Access::kWrite};
  const Sha256Digest mac = model::GrantMac("key", grant);
  v1::Grant proto;
  ToProto(grant, mac, &proto);
  const auto back = FromProto(proto);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, grant);
  EXPECT_TRUE(model::GrantMacMatches("key", *back, proto.mac()));
  proto.set_access(v1::ACCESS_UNSPECIFIED);
  EXPECT_EQ(FromProto(proto).status().code(), Code::kInvalidArgument);
}

TEST(Convert, SmallValues) {
  const model::NodeAddress address{"n", "i", "h", "/s"};
  v1::NodeAddress address_proto;
  ToProto(address, &address_proto);
  EXPECT_EQ(FromProto(address_proto), address);
  const model::Extent extent{"n", model::ArenaId(4), 4096, 77};
  v1::Extent extent_proto;
  ToProto(extent, &extent_proto);
  EXPECT_EQ(FromProto(extent_proto), extent);
  const model::MetadataObject object{"manifest", 12, Sha256Of("x"), "n"};
  v1::MetadataObject object_proto;
  ToProto(object, &object_proto);
  EXPECT_EQ(FromProto(object_proto).value(), object);
  object_proto.clear_sha256();
  EXPECT_THAT(FromProto(object_proto).status().message(),
              HasSubstr("expected 32 bytes of sha256 of manifest, got 0"));
  const model::PlannedParticipant participant{"p", {{"a", 1, 0}, {"b", 2, 1}}};
  v1::PlannedParticipant participant_proto;
  ToProto(participant, &participant_proto);
  EXPECT_EQ(FromProto(participant_proto), participant);
}

}  // namespace
}  // namespace mooncake::codec
