#include "model/identity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <vector>

#include "model/grant.h"
#include "model/policy.h"
#include "model/revision.h"

namespace mooncake::model {
namespace {

WeightIdentity SomeIdentity() {
  return {"default", "rl", "Qwen/Qwen3 é", "step-1", WeightGeneration(7)};
}

TEST(Identity, NamesEncodeEveryPartAndLeaveTheTenantOut) {
  const std::string group = GroupId(SomeIdentity());
  EXPECT_EQ(group, "weights/rl/Qwen%2FQwen3%20%C3%A9/step-1/7");
  EXPECT_EQ(ManifestKey(group), group + "/manifest");
  EXPECT_EQ(MetadataKey(group, kAffinityName), group + "/affinity");
  EXPECT_EQ(MetadataKey(group, DigestsName("rank 0/1")), group + "/digests/rank%200%2F1");
  EXPECT_EQ(PayloadKey(group, "sha256%3Aab"), group + "/payload/sha256%3Aab");
}

TEST(Identity, OrderKeepsALineageTogether) {
  const auto make = [](const char* revision, uint64_t generation) {
    return WeightIdentity{"t", "n", "m", revision, WeightGeneration(generation)};
  };
  std::vector<WeightIdentity> sorted = {make("b", 1), make("a", 10), make("a", 9), make("aa", 0)};
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, (std::vector{make("a", 9), make("a", 10), make("aa", 0), make("b", 1)}));
  EXPECT_EQ(sorted[0].lineage(), sorted[1].lineage());
  EXPECT_NE(sorted[1].lineage(), sorted[2].lineage());
  std::unordered_set<WeightIdentity> set(sorted.begin(), sorted.end());
  EXPECT_EQ(set.size(), 4u);
  EXPECT_TRUE(set.contains(make("a", 10)));
  EXPECT_EQ(std::hash<Lineage>()(sorted[0].lineage()), std::hash<Lineage>()(sorted[1].lineage()));
}

TEST(Identity, EveryBadPartIsNamed) {
  EXPECT_TRUE(ValidateIdentity(SomeIdentity()).ok());
  EXPECT_TRUE(ValidateIdentityPart("x", std::string(kIdentityPartBytesMax, 'a')).ok());
  const auto message = [](auto change) {
    WeightIdentity identity = SomeIdentity();
    change(identity);
    const Status status = ValidateIdentity(identity);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(message([](auto& i) { i.tenant_id = ""; }), "tenant_id must not be empty");
  EXPECT_EQ(message([](auto& i) { i.name_space = ""; }), "namespace must not be empty");
  EXPECT_EQ(message([](auto& i) { i.resource_id = std::string(257, 'a'); }),
            "resource_id may have at most 256 bytes, got 257");
  EXPECT_EQ(message([](auto& i) { i.revision = "\xff"; }), "revision is not valid UTF-8");
}

TEST(Identity, Utf8) {
  for (const char* good : {"", "a", "é", "€", "\xF0\x9F\x98\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF4\x8F\xBF\xBF", "\xC2\x80", "\xE0\xA0\x80"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  EXPECT_TRUE(IsUtf8(std::string_view("a\0b", 3)));
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "a\xFFz"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

TEST(Identity, PayloadNamesAreEncodedText) {
  EXPECT_TRUE(ValidatePayloadName("sha256%3Aab-_.~").ok());
  EXPECT_EQ(ValidatePayloadName("").message(), "a payload name must not be empty");
  EXPECT_EQ(ValidatePayloadName("a/b").message(),
            "payload name 'a%2Fb' (shown encoded) is not URL-encoded text");
  EXPECT_EQ(ValidatePayloadName(std::string(4097, 'a')).message(),
            "a payload name may have at most 4096 bytes, got 4097");
}

TEST(Policy, DefaultsAreTheRfcs) {
  const StoragePolicy policy;
  EXPECT_EQ(policy.preferred_residency, Residency::kMixed);
  EXPECT_EQ(policy.mixed_hot_ratio, 0.5);
  EXPECT_EQ(policy.migration_mode, MigrationMode::kAuto);
  EXPECT_TRUE(ValidatePolicy(policy).ok());
}

TEST(Policy, ValidatesTheFullProduct) {
  for (int residency = 0; residency <= 6; ++residency) {
    for (int mode = 0; mode <= 4; ++mode) {
      for (const double ratio :
           {0.0, 1e-300, 0.5, 0.999, 1.0, -0.1, 1.5, std::numeric_limits<double>::quiet_NaN(),
            std::numeric_limits<double>::infinity()}) {
        const StoragePolicy policy{static_cast<Residency>(residency), ratio,
                                   static_cast<MigrationMode>(mode)};
        const bool good = (residency == 2 || residency == 3 || residency == 4) && mode >= 1 &&
                          mode <= 3 && (ratio == 1e-300 || ratio == 0.5 || ratio == 0.999);
        const Status status = ValidatePolicy(policy);
        EXPECT_EQ(status.ok(), good) << residency << " " << mode << " " << ratio;
        if (!good) {
          EXPECT_EQ(status.code(), Code::kInvalidArgument);
        }
      }
    }
  }
  EXPECT_EQ(ValidatePolicy({Residency::kHot, 1.5, MigrationMode::kAuto}).message(),
            "mixed_hot_ratio must lie between 0 and 1, both excluded, got 1.5");
}

TEST(Policy, WithoutAColdTierADefaultedPolicyBecomesHotAndAnExplicitOneIsRefused) {
  const StoragePolicy hot{Residency::kHot, 0.5, MigrationMode::kPinned};
  for (const Residency preferred : {Residency::kHot, Residency::kCold, Residency::kMixed}) {
    const StoragePolicy policy{preferred, 0.25, MigrationMode::kManual};
    const auto with_tier = ResolvePolicy(policy, hot, true);
    ASSERT_TRUE(with_tier.ok());
    EXPECT_EQ(with_tier->policy, policy);
    EXPECT_EQ(with_tier->note, "");

    const auto explicit_one = ResolvePolicy(policy, hot, false);
    const auto defaulted = ResolvePolicy(std::nullopt, policy, false);
    ASSERT_TRUE(defaulted.ok());
    EXPECT_EQ(defaulted->policy.preferred_residency, Residency::kHot);
    EXPECT_EQ(defaulted->policy.mixed_hot_ratio, 0.25);
    EXPECT_EQ(defaulted->policy.migration_mode, MigrationMode::kManual);
    if (preferred == Residency::kHot) {
      EXPECT_TRUE(explicit_one.ok());
      EXPECT_EQ(defaulted->note, "");
    } else {
      EXPECT_EQ(explicit_one.status().code(), Code::kPolicyUnsatisfiable);
      EXPECT_EQ(explicit_one.status().message(),
                "preferred_residency " + std::string(Name(preferred)) +
                    " needs a cold tier, and the cluster has none");
      EXPECT_EQ(defaulted->note, "the default policy " + std::string(Name(preferred)) +
                                     " resolved to HOT: the cluster has no cold tier");
    }
  }
  EXPECT_EQ(ResolvePolicy(StoragePolicy{Residency::kHot, 0, MigrationMode::kAuto}, hot, true)
                .status()
                .code(),
            Code::kInvalidArgument);
}

Grant SomeGrant() { return {"i1", "default", ImportId(3), ArenaId(4), 8192, Access::kWrite}; }

TEST(Grant, CanonicalTextIsTheDocumentedOne) {
  Grant grant = SomeGrant();
  grant.tenant_id = "a\nb";
  EXPECT_EQ(CanonicalText(grant),
            "mooncake-grant 1\ninstance i1\ntenant a%0Ab\nimport 3\narena 4\nbytes 8192\n"
            "access WRITE\n");
}

TEST(Permit, MacDependsOnEveryField) {
  const std::string key(32, 'k');
  const ExtentPermit some{"instance", "tenant", ArenaId(2), 4096, 64, 100, ObjectId(7)};
  const Sha256Digest mac = PermitMac(key, some);
  const std::string text(mac.begin(), mac.end());
  EXPECT_TRUE(PermitMacMatches(key, some, text));
  EXPECT_FALSE(PermitMacMatches(std::string(32, 'l'), some, text));
  const auto differs = [&](auto&& change) {
    ExtentPermit permit = some;
    change(permit);
    EXPECT_FALSE(PermitMacMatches(key, permit, text)) << CanonicalText(permit);
  };
  differs([](ExtentPermit& p) { p.instance_id = "another"; });
  differs([](ExtentPermit& p) { p.tenant_id = "another"; });
  differs([](ExtentPermit& p) { p.slab_id = ArenaId(3); });
  differs([](ExtentPermit& p) { p.slab_bytes = 8192; });
  differs([](ExtentPermit& p) { p.offset = 128; });
  differs([](ExtentPermit& p) { p.bytes = 101; });
  differs([](ExtentPermit& p) { p.object_id = ObjectId(8); });
}

TEST(Key, NamesTheRevisionThatItBelongsTo) {
  const WeightIdentity identity{"t", "ns", "model/x", "r 1", WeightGeneration(7)};
  const std::string group = GroupId(identity);
  for (const std::string& key : {ManifestKey(group), MetadataKey(group, kAffinityName),
                                 MetadataKey(group, DigestsName("p")), PayloadKey(group, "w")}) {
    EXPECT_EQ(IdentityOfKey("t", key), identity) << key;
  }
  for (const std::string& key :
       {group, group + "/", group + "/else", std::string("weights/a/b/c/manifest"),
        std::string("weights/a/b/c/-1/manifest"), std::string("weights/a/b/c/07/manifest"),
        std::string("weights/a/%zz/c/7/manifest"), std::string("weights/a/b c/d/7/manifest"),
        std::string("kv/a/b/c/7/manifest"), std::string("")}) {
    EXPECT_EQ(IdentityOfKey("t", key), std::nullopt) << key;
  }
}

TEST(Key, IsUtf8InEveryMessage) {
  EXPECT_EQ(KeyText("plain/key"), "\"plain/key\"");
  EXPECT_EQ(KeyText("a\"b\\c\n"), "\"a\\x22b\\x5cc\\x0a\"");
  EXPECT_EQ(KeyText("\xc3\xa9"), "\"\xc3\xa9\"");
  EXPECT_EQ(KeyText("\xff\xc3"), "\"\\xff\\xc3\"");
  const std::string cut = KeyText(std::string(99, 'x') + "\xc3\xa9");
  EXPECT_TRUE(IsUtf8(cut)) << cut;
  EXPECT_TRUE(cut.ends_with("\"..."));
}

TEST(Grant, MacDependsOnEveryFieldAndOnTheKey) {
  const std::string key(32, 'k');
  const Sha256Digest mac = GrantMac(key, SomeGrant());
  const std::string text(mac.begin(), mac.end());
  EXPECT_TRUE(GrantMacMatches(key, SomeGrant(), text));
  EXPECT_FALSE(GrantMacMatches(std::string(32, 'l'), SomeGrant(), text));
  EXPECT_FALSE(GrantMacMatches(key, SomeGrant(), ""));
  EXPECT_FALSE(GrantMacMatches(key, SomeGrant(), text.substr(0, 31)));
  EXPECT_FALSE(GrantMacMatches(key, SomeGrant(), text + "x"));
  for (size_t byte = 0; byte < text.size(); ++byte) {
    std::string flipped = text;
    flipped[byte] ^= 1;
    EXPECT_FALSE(GrantMacMatches(key, SomeGrant(), flipped)) << byte;
  }
  const auto differs = [&](auto change) {
    Grant grant = SomeGrant();
    change(grant);
    EXPECT_FALSE(GrantMacMatches(key, grant, text)) << CanonicalText(grant);
  };
  differs([](Grant& g) { g.instance_id = "i2"; });
  differs([](Grant& g) { g.tenant_id = "other"; });
  differs([](Grant& g) { g.import_id = ImportId(4); });
  differs([](Grant& g) { g.arena_id = ArenaId(5); });
  differs([](Grant& g) { g.arena_bytes = 4096; });
  for (int access = 1; access <= 5; ++access) {
    if (access == 2) continue;
    differs([&](Grant& g) { g.access = AccessFromNumber(access).value(); });
  }
  EXPECT_EQ(AccessFromNumber(0).status().message(), "access must be 1 to 5, got 0");
  EXPECT_EQ(AccessFromNumber(6).status().code(), Code::kInvalidArgument);
}

TEST(Revision, DigestsRootHashesTheDocumentedLines) {
  MetadataObject a{"digests/r0", 10, Sha256Of("a"), "n1"};
  MetadataObject b{"digests/r1", 20, Sha256Of("b"), "n2"};
  EXPECT_EQ(DigestsRoot({a, b}), Sha256Of("digests/r0 10 " + ToHex(Sha256Of("a")) +
                                          "\ndigests/r1 20 " + ToHex(Sha256Of("b")) + "\n"));
  EXPECT_NE(DigestsRoot({a, b}), DigestsRoot({b, a}));
  b.node_id = "n3";  // the place is no content
  EXPECT_EQ(DigestsRoot({b}), DigestsRoot({{"digests/r1", 20, Sha256Of("b"), "n2"}}));
}

}  // namespace
}  // namespace mooncake::model
