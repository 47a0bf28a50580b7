// Every check of the small values, and what normalisation does to them.
#include <gtest/gtest.h>

#include <limits>

#include "manifest/contract_samples.h"
#include "manifest/validate.h"

namespace mooncake::manifest {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

template <class T, class Change>
T With(T value, Change change) {
  change(value);
  return value;
}

TEST(ParallelRank, RefusesNegativeCoordinates) {
  EXPECT_THAT(MakeParallelRank({.dp = -1}), Refused("parallel rank dp must be at least 0, got -1"));
  EXPECT_THAT(MakeParallelRank({.tp = -2}), Refused("parallel rank tp must be at least 0"));
  EXPECT_THAT(MakeParallelRank({.pp = -1}), Refused("parallel rank pp must be at least 0"));
  EXPECT_THAT(MakeParallelRank({.ep = -1}), Refused("parallel rank ep must be at least 0"));
  EXPECT_THAT(MakeParallelRank({.dp = kMax}), Accepted());
}

TEST(ParallelAxis, Checks) {
  EXPECT_THAT(MakeAxis(AxisSemantics::kReplicated, ""),
              Refused("parallel axis kind must be a non-empty string"));
  EXPECT_THAT(MakeAxis(AxisSemantics::kOwnership, "cp"),
              Refused("unsupported parallel axis kind: cp"));
  EXPECT_THAT(MakeAxis(AxisSemantics::kSplit, "dp", 0), Refused("dp cannot use split semantics"));
  EXPECT_THAT(MakeAxis(AxisSemantics::kSplit, "pp", 0), Refused("pp cannot use split semantics"));
  EXPECT_THAT(MakeAxis(AxisSemantics::kSplit, "tp", -1),
              Refused("split axis dim must be at least 0"));
  EXPECT_THAT(MakeAxis(AxisSemantics::kSplit, "ep", 1),
              Refused("EP must split the leading logical expert dimension"));
  EXPECT_EQ(MakeAxis(AxisSemantics::kSplit, "tp", 3).value(), Split(AxisKind::kTp, 3));
  EXPECT_EQ(MakeAxis(AxisSemantics::kReplicated, "dp", 9).value(), Replicated(AxisKind::kDp));
  EXPECT_THAT(ParseAxisSemantics("shared"), Refused("unsupported parallel axis semantics: shared"));
  EXPECT_THAT(ParseAxisSemantics(""), Refused("axis semantics must be a non-empty string"));
}

TEST(TensorDescriptor, ChecksInOrder) {
  const TensorDescriptor good = Tensor("w", {4, 2}, {Split(AxisKind::kTp, 0)});
  ASSERT_THAT(MakeTensorDescriptor(good), Accepted());
  using T = TensorDescriptor;
  const auto with = [&good](auto change) { return MakeTensorDescriptor(With(good, change)); };
  EXPECT_THAT(with([](T& t) {
                t.global_shape = {4, 0};
              }),
              Refused("global_shape must be at least 1, got 0"));
  EXPECT_THAT(with([](T& t) { t.global_shape = {}; }), Refused("global_shape must not be empty"));
  EXPECT_THAT(with([](T& t) { t.tensor_id = ""; }),
              Refused("tensor_id must be a non-empty string"));
  EXPECT_THAT(with([](T& t) { t.tensor_id = "\xff"; }), Refused("tensor_id must be valid UTF-8"));
  EXPECT_THAT(with([](T& t) { t.dtype = ""; }), Refused("dtype must be a non-empty string"));
  EXPECT_THAT(with([](T& t) { t.itemsize = 0; }), Refused("itemsize must be at least 1, got 0"));
  EXPECT_THAT(with([](T& t) { t.shard_dims = {-1}; }), Refused("shard_dims must be at least 0"));
  EXPECT_THAT(with([](T& t) {
                t.shard_dims = {0, 0};
              }),
              Refused("shard_dims must not contain duplicates"));
  EXPECT_THAT(with([](T& t) { t.shard_dims = {1, 0}; }), Refused("shard_dims must be sorted"));
  EXPECT_THAT(with([](T& t) {
                t.shard_dims = {0, 2};
              }),
              Refused("shard_dims contains an out-of-range dimension"));
  EXPECT_THAT(with([](T& t) { t.parallel_axes.push_back(Replicated(AxisKind::kTp)); }),
              Refused("parallel_axes must not contain duplicate kinds"));
  EXPECT_THAT(with([](T& t) { t.parallel_axes.push_back(Split(AxisKind::kEp, 0)); }),
              Refused("split axes must not share a dimension"));
  EXPECT_THAT(with([](T& t) { t.parallel_axes[0].dim = 2; }),
              Refused("split axis dimension is out of range"));
  EXPECT_THAT(with([](T& t) { t.parallel_axes[0].dim = 1; }),
              Refused("parallel axis split dimensions conflict with shard_dims"));
  EXPECT_THAT(with([](T& t) { t.parallel_axes[0].kind = AxisKind::kDp; }),
              Refused("dp cannot use split semantics"));
  EXPECT_THAT(with([](T& t) { t.layer_id = -1; }), Refused("layer_id must be at least 0"));
  EXPECT_THAT(with([](T& t) { t.expert_id = -1; }), Refused("expert_id must be at least 0"));
  EXPECT_THAT(with([](T& t) {
                t.parallel_axes = {Split(AxisKind::kEp, 0)};
                t.expert_id = 3;
              }),
              Refused("an individually allocated expert requires explicit EP ownership"));
  EXPECT_THAT(with([](T& t) { t.layout_fingerprint = ""; }),
              Refused("layout_fingerprint must be a non-empty string"));
  // The earlier check wins.
  EXPECT_THAT(with([](T& t) {
                t.dtype = "";
                t.itemsize = 0;
              }),
              Refused("dtype"));
}

TEST(TensorDescriptor, SortsAxesByKind) {
  TensorDescriptor tensor = Tensor("w", {4, 2},
                                   {Split(AxisKind::kTp, 1), Owned(AxisKind::kEp),
                                    Replicated(AxisKind::kDp), Owned(AxisKind::kPp)});
  tensor.parallel_axes[1].dim = 7;  // means nothing here
  const std::vector<ParallelAxis> sorted = {Replicated(AxisKind::kDp), Owned(AxisKind::kPp),
                                            Owned(AxisKind::kEp), Split(AxisKind::kTp, 1)};
  EXPECT_EQ(MakeTensorDescriptor(tensor).value().parallel_axes, sorted);
}

TEST(TensorDescriptor, TakesMoreDimensionsThanABoxHolds) {
  EXPECT_THAT(MakeTensorDescriptor(Tensor("w", Extents(12, 2))), Accepted());
}

TEST(Topology, Checks) {
  using T = ParallelTopology;
  const ParallelTopology good = Topology({{.tp = 0}, {.tp = 1}});
  const auto with = [&good](auto change) { return MakeTopology(With(good, change)); };
  EXPECT_THAT(with([](T& t) { t.tp_size = 0; }), Refused("tp_size must be at least 1"));
  EXPECT_THAT(with([](T& t) { t.pp_size = 0; }), Refused("pp_size must be at least 1"));
  EXPECT_THAT(with([](T& t) { t.ep_size = 0; }), Refused("ep_size must be at least 1"));
  EXPECT_THAT(with([](T& t) { t.dp_size = 0; }), Refused("dp_size must be at least 1"));
  EXPECT_THAT(with([](T& t) { t.participants.clear(); }),
              Refused("parallel topology participants must not be empty"));
  EXPECT_THAT(with([](T& t) { t.participants[0].participant_id = ""; }),
              Refused("participant_id must be a non-empty string"));
  EXPECT_THAT(with([](T& t) { t.participants[1].participant_id = "p0"; }),
              Refused("duplicate topology participant_id: p0"));
  EXPECT_THAT(with([](T& t) { t.participants[1].rank.tp = 0; }),
              Refused("duplicate topology parallel rank: dp=0 tp=0 pp=0 ep=0 of p0 and p1"));
  EXPECT_THAT(with([](T& t) { t.participants[1].rank.tp = 2; }),
              Refused("tp rank is out of range for participant p1: 2 of 2"));
  EXPECT_THAT(with([](T& t) { t.participants[1].rank.pp = 1; }),
              Refused("pp rank is out of range for participant p1"));
  EXPECT_THAT(with([](T& t) { t.participants[1].rank.ep = 1; }),
              Refused("ep rank is out of range for participant p1"));
  EXPECT_THAT(with([](T& t) { t.participants[1].rank.dp = 1; }),
              Refused("dp rank is out of range for participant p1"));
  EXPECT_THAT(MakeTopology(good, "sha256:0"),
              Refused("topology_id does not match canonical topology"));
  EXPECT_THAT(MakeTopology(good, good.topology_id), Accepted());
}

TEST(Topology, SortsParticipantsByUtf8Bytes) {
  ParallelTopology topology;
  topology.tp_size = 3;
  topology.participants = {
      {"\xf0\x9f\x98\x80", {.tp = 0}}, {"\xef\xbf\xbd", {.tp = 1}}, {"z", {.tp = 2}}};
  const ParallelTopology made = MakeTopology(topology).value();
  EXPECT_EQ(made.participants[0].participant_id, "z");
  EXPECT_EQ(made.participants[1].participant_id, "\xef\xbf\xbd");  // U+FFFD before U+1F600
}

TEST(PlacementFragment, ChecksInOrder) {
  using F = PlacementFragment;
  const PlacementFragment good = Fragment("w", {0, 0}, {2, 2});
  const auto with = [&good](auto change) { return MakePlacementFragment(With(good, change)); };
  EXPECT_THAT(with([](F& f) {
                f.global_offset = {-1, 0};
              }),
              Refused("global_offset must be at least 0, got -1"));
  EXPECT_THAT(with([](F& f) {
                f.local_shape = {2, 0};
              }),
              Refused("local_shape must be at least 1"));
  EXPECT_THAT(with([](F& f) { f.tensor_id = ""; }),
              Refused("tensor_id must be a non-empty string"));
  EXPECT_THAT(with([](F& f) { f.nbytes = 0; }), Refused("nbytes must be at least 1"));
  EXPECT_THAT(with([](F& f) { f.rank.ep = -1; }), Refused("parallel rank ep must be at least 0"));
  EXPECT_THAT(with([](F& f) { f.pipeline_stage_id = -1; }),
              Refused("pipeline_stage_id must be at least 0"));
  EXPECT_THAT(with([](F& f) {
                f.aliases = {"w", ""};
              }),
              Refused("aliases must contain non-empty strings"));
  EXPECT_THAT(with([](F& f) {
                f.aliases = {"w", "v", "w"};
              }),
              Refused("aliases must not contain duplicates"));
  EXPECT_THAT(with([](F& f) { f.aliases = {"w"}; }),
              Refused("alias group must contain at least two tensor IDs"));
  EXPECT_THAT(with([](F& f) {
                f.aliases = {"u", "v"};
              }),
              Refused("alias group must contain the fragment tensor_id"));
  EXPECT_THAT(MakePlacementFragment(good, ""),
              Refused("placement_fragment_id must be a non-empty string"));
  EXPECT_EQ(MakePlacementFragment(good, "mine").value().placement_fragment_id, "mine");
  // Offset and shape may disagree until a descriptor is at hand.
  EXPECT_THAT(with([](F& f) { f.global_offset = {0}; }), Accepted());
  EXPECT_EQ(with([](F& f) {
              f.aliases = {"w", "a"};
            })
                .value()
                .aliases,
            (std::vector<std::string>{"a", "w"}));
}

TEST(StoredFragment, ChecksInOrder) {
  using F = StoredFragment;
  const StoredFragment good = MiniStored().fragments[0];
  const auto with = [&good](auto change) { return MakeStoredFragment(With(good, change)); };
  EXPECT_THAT(with([](F& f) {
                f.global_offset = {-1, 0};
              }),
              Refused("global_offset must be at least 0"));
  EXPECT_THAT(with([](F& f) {
                f.local_shape = {0, 1};
              }),
              Refused("local_shape must be at least 1"));
  EXPECT_THAT(with([](F& f) { f.fragment_id = ""; }),
              Refused("fragment_id must be a non-empty string"));
  EXPECT_THAT(with([](F& f) { f.tensor_id = ""; }),
              Refused("tensor_id must be a non-empty string"));
  EXPECT_THAT(with([](F& f) { f.object_key = ""; }),
              Refused("object_key must be a non-empty string"));
  EXPECT_THAT(with([](F& f) { f.nbytes = 0; }), Refused("nbytes must be at least 1"));
  EXPECT_THAT(with([](F& f) { f.aliases = {"w"}; }),
              Refused("alias group must contain at least two tensor IDs"));
}

TEST(StoredManifestIdentity, Checks) {
  using I = StoredManifestIdentity;
  const StoredManifestIdentity good = IdentityOf(*MakeStoredManifest(MiniStored()).value());
  const auto with = [&good](auto change) { return MakeStoredManifestIdentity(With(good, change)); };
  EXPECT_THAT(with([](I&) {}), Accepted());
  EXPECT_THAT(with([](I& i) { i.namespace_name = ""; }),
              Refused("namespace must be a non-empty string"));
  EXPECT_THAT(with([](I& i) { i.resource_id = ""; }),
              Refused("resource_id must be a non-empty string"));
  EXPECT_THAT(with([](I& i) { i.revision = ""; }), Refused("revision must be a non-empty string"));
  EXPECT_THAT(with([](I& i) { i.group_id = ""; }), Refused("group_id must be a non-empty string"));
  EXPECT_THAT(with([](I& i) { i.manifest_key = ""; }),
              Refused("manifest_key must be a non-empty string"));
  EXPECT_THAT(with([](I& i) { i.content_sha256[0] = 'A'; }),
              Refused("content_sha256 must be a SHA-256 hex digest"));
}

TEST(FragmentGeometry, Checks) {
  const TensorDescriptor tensor = Tensor("w", {4, 6});
  const auto check = [&tensor](Extents offset, Extents shape, uint64_t nbytes) {
    return ValidateFragmentGeometry(tensor, "f", offset, shape, nbytes);
  };
  EXPECT_THAT(check({2, 0}, {2, 6}, 24), Accepted());
  EXPECT_THAT(check({2}, {2, 6}, 24), Refused("fragment rank mismatch: f"));
  EXPECT_THAT(check({2, 0}, {2}, 24), Refused("fragment rank mismatch: f"));
  EXPECT_THAT(check({3, 0}, {2, 6}, 24), Refused("fragment is out of bounds: f"));
  EXPECT_THAT(check({kMax, 0}, {kMax, 6}, 24), Refused("fragment is out of bounds: f"));
  EXPECT_THAT(check({2, 0}, {2, 6}, 12),
              Refused("fragment byte size mismatch: f: expected 24, got 12"));
}

TEST(FragmentGeometry, SizesThatLeave64BitsAreRefusedNotWrapped) {
  const TensorDescriptor huge = Tensor("w", {int64_t{1} << 40, int64_t{1} << 40});
  EXPECT_THAT(ValidateFragmentGeometry(huge, "f", Extents{0, 0}, huge.global_shape, 0),
              Refused("fragment byte size mismatch: f: expected more than 2^64-1, got 0"));
}

TEST(CanonicalStrides, RowMajor) {
  EXPECT_EQ(CanonicalStridesBytes(Extents{2, 3, 4}, 2).value(), (Extents{24, 8, 2}));
  EXPECT_EQ(CanonicalStridesBytes(Extents{}, 2).value(), Extents{});
  EXPECT_THAT(CanonicalStridesBytes(Extents{1, kMax, kMax}, 2),
              Refused("must fit in a signed 64-bit integer"));
  // The outermost extent takes no part.
  EXPECT_THAT(CanonicalStridesBytes(Extents{kMax, 2}, 2), Accepted());
}

}  // namespace
}  // namespace mooncake::manifest
