// Every check of stored manifests.
#include <gtest/gtest.h>

#include <limits>

#include "manifest/contract_samples.h"
#include "manifest/validate.h"

namespace mooncake::manifest {
namespace {

using M = StoredManifest;

template <class Change>
Result<StoredManifestPtr> With(M manifest, Change change) {
  change(manifest);
  return MakeStoredManifest(std::move(manifest));
}

template <class Change>
Result<StoredManifestPtr> With(Change change) {
  return With(MiniStored(), change);
}

TEST(StoredManifest, ChecksInOrder) {
  EXPECT_THAT(With([](M&) {}), Accepted());
  EXPECT_THAT(With([](M& m) { m.namespace_name = ""; }),
              Refused("namespace must be a non-empty string"));
  EXPECT_THAT(With([](M& m) { m.resource_id = ""; }),
              Refused("resource_id must be a non-empty string"));
  EXPECT_THAT(With([](M& m) { m.revision = ""; }), Refused("revision must be a non-empty string"));
  EXPECT_THAT(With([](M& m) { m.group_id = ""; }), Refused("group_id must be a non-empty string"));
  EXPECT_THAT(With([](M& m) { m.manifest_key = ""; }),
              Refused("manifest_key must be a non-empty string"));
  EXPECT_THAT(With([](M& m) { m.created_at = ""; }),
              Refused("created_at must be a non-empty string"));
  EXPECT_THAT(With([](M& m) { m.manifest_key += "x"; }),
              Refused("manifest_key does not belong to manifest group"));
  EXPECT_THAT(With([](M& m) { m.fragments[1].object_key = "weights/d/m/r/2/payload/0"; }),
              Refused("payload object_key does not belong to manifest group"));
  EXPECT_THAT(With([](M& m) { m.tensors.push_back(m.tensors[0]); }),
              Refused("duplicate tensor_id: w"));
  EXPECT_THAT(With([](M& m) { m.fragments[1].fragment_id = "f0"; }),
              Refused("duplicate fragment_id: f0"));
  EXPECT_THAT(With([](M& m) { m.fragments[1].tensor_id = "x"; }), Refused("unknown tensor_id: x"));
  EXPECT_THAT(With([](M& m) { m.fragments[1].global_offset = {0}; }),
              Refused("fragment rank mismatch: f1"));
  EXPECT_THAT(With([](M& m) {
                m.fragments[1].global_offset = {3, 0};
              }),
              Refused("fragment is out of bounds: f1"));
  EXPECT_THAT(With([](M& m) { m.fragments[1].nbytes = 7; }),
              Refused("fragment byte size mismatch: f1: expected 8, got 7"));
  EXPECT_THAT(With([](M& m) {
                m.fragments[1].global_offset = {0, 0};
              }),
              Refused("duplicate fragment geometry: w"));
  EXPECT_THAT(With([](M& m) { m.fragments.pop_back(); }),
              Refused("tensor is not fully covered: w"));
  EXPECT_THAT(With([](M& m) { m.fragments.clear(); }), Refused("tensor is not fully covered: w"));
  EXPECT_THAT(With([](M& m) {
                m.fragments[1].global_offset = {1, 0};
              }),
              Refused("tensor is not fully covered: w"));
  EXPECT_THAT(
      With([](M& m) { m.fragments[1].object_offset = 7; }),
      Refused("stored fragment object ranges overlap: f0 and f1 in weights/d/m/r/1/payload/0"));
  EXPECT_THAT(With([](M& m) { m.tensors[0].dtype = ""; }),
              Refused("dtype must be a non-empty string"));
}

TEST(StoredManifest, EmptyIsAccepted) {
  EXPECT_THAT(With([](M& m) {
                m.tensors.clear();
                m.fragments.clear();
              }),
              Accepted());
}

TEST(StoredManifest, ObjectRangesAtTheEndOf64Bits) {
  EXPECT_THAT(With([](M& m) {
                m.fragments[0].object_offset = std::numeric_limits<uint64_t>::max();
                m.fragments[1].object_offset = std::numeric_limits<uint64_t>::max() - 4;
              }),
              Refused("stored fragment object ranges overlap: f1 and f0"));
  EXPECT_THAT(
      With([](M& m) { m.fragments[0].object_offset = std::numeric_limits<uint64_t>::max(); }),
      Accepted());
}

TEST(StoredManifest, OtherObjectsDoNotOverlap) {
  EXPECT_THAT(With([](M& m) {
                m.fragments[1].object_offset = 0;
                m.fragments[1].object_key = "weights/d/m/r/1/payload/1";
              }),
              Accepted());
}

TEST(StoredManifest, OrderIsKeptAndChangesTheDigest) {
  const StoredManifestPtr one = With([](M&) {}).value();
  const StoredManifestPtr two =
      With([](M& m) { std::swap(m.fragments[0], m.fragments[1]); }).value();
  EXPECT_EQ(two->fragments[0].fragment_id, "f1");
  EXPECT_NE(one->manifest_digest, two->manifest_digest);
  const StoredManifestPtr later = With([](M& m) { m.created_at = "now"; }).value();
  EXPECT_NE(one->manifest_digest, later->manifest_digest);
}

// w and v are tied, each fragment stored twice, as the contract wants it.
M Tied() {
  M manifest = MiniStored();
  manifest.tensors.push_back(manifest.tensors[0]);
  manifest.tensors[1].tensor_id = "v";
  for (int i = 0; i < 2; ++i) {
    manifest.fragments[i].aliases = {"v", "w"};
    StoredFragment twin = manifest.fragments[i];
    twin.fragment_id = "g" + std::to_string(i);
    twin.tensor_id = "v";
    twin.object_offset += 16;
    manifest.fragments.push_back(twin);
  }
  return manifest;
}

TEST(StoredManifest, Aliases) {
  EXPECT_THAT(MakeStoredManifest(Tied()), Accepted());
  EXPECT_THAT(With(Tied(),
                   [](M& m) {
                     m.fragments[0].aliases = {"w", "x"};
                   }),
              Refused("stored alias references unknown tensor: x"));
  EXPECT_THAT(With(Tied(), [](M& m) { m.fragments[0].aliases = {}; }),
              Refused("stored alias group is incomplete for fragment geometry"));
  EXPECT_THAT(With(Tied(), [](M& m) { m.tensors[1].layer_id = 1; }),
              Refused("stored alias tensor descriptors differ"));
  // Even aliases may not share bytes of an object.
  EXPECT_THAT(With(Tied(), [](M& m) { m.fragments[2].object_offset = 0; }),
              Refused("stored fragment object ranges overlap"));
}

}  // namespace
}  // namespace mooncake::manifest
