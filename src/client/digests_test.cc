#include "client/digests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace mooncake::client {
namespace {

using testing::HasSubstr;

BlockDigest Block(uint8_t fill) {
  BlockDigest digest;
  digest.bytes.fill(fill);
  return digest;
}

std::string Sample() {
  return EncodeDigests({{"pack-w0", kDigestBlockBytes + 1, {Block(1), Block(2)}},
                        {"empty", 0, {}},
                        {"a%2Fb", 5, {Block(3)}}});
}

Sha256Digest Fingerprint(uint8_t fill) {
  Sha256Digest digest;
  digest.fill(fill);
  return digest;
}

std::string SampleWithFragments() {
  return EncodeDigests({{"pack-w0", 7, {Block(1)}}, {"a%2Fb", 5, {Block(3)}}},
                       {{"sha256:b", 6, Fingerprint(5)}, {"sha256:a", 3, Fingerprint(4)}});
}

TEST(DigestsTest, RoundTripSortedByName) {
  const auto table = DigestsTable::Decode(Sample());
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  ASSERT_EQ(table->entries().size(), 3u);
  EXPECT_EQ(table->entries()[0].name, "a%2Fb");
  EXPECT_EQ(table->entries()[1].name, "empty");
  EXPECT_EQ(table->entries()[2].name, "pack-w0");
  const DigestsTable::Entry* pack = table->Find("pack-w0");
  ASSERT_NE(pack, nullptr);
  EXPECT_EQ(pack->nbytes, kDigestBlockBytes + 1);
  ASSERT_EQ(pack->blocks.size(), 2u);
  EXPECT_EQ(pack->blocks[1], Block(2));
  EXPECT_EQ(table->Find("pack-w"), nullptr);
  EXPECT_EQ(table->Find("zzz"), nullptr);
}

TEST(DigestsTest, BytesAreAFunctionOfContentAlone) {
  const std::string a = EncodeDigests({{"x", 1, {Block(1)}}, {"y", 2, {Block(2)}}});
  const std::string b = EncodeDigests({{"y", 2, {Block(2)}}, {"x", 1, {Block(1)}}});
  EXPECT_EQ(a, b);
  // On disk: these bytes never change.
  EXPECT_EQ(HexOf(EncodeDigests({{"x", 1, {Block(0xab)}}})),
            "4d43574449473031"
            "0100000000000000"
            "0100000078"
            "0100000000000000"
            "abababababababababababababababab");
  EXPECT_EQ(HexOf(EncodeDigests({})), "4d435744494730310000000000000000");
}

TEST(DigestsTest, EveryMalformationIsItsOwnError) {
  const auto message = [](std::string bytes) {
    const auto table = DigestsTable::Decode(std::move(bytes));
    EXPECT_EQ(table.status().code(), Code::kCorrupt);
    return table.status().message();
  };
  const std::string good = Sample();
  EXPECT_THAT(message(""), HasSubstr("expected 8 bytes of magic at offset 0, got 0"));
  EXPECT_THAT(message("MCWDIG03" + good.substr(8)), HasSubstr("instead of \"MCWDIG01\""));
  EXPECT_THAT(message(good + "x"), HasSubstr("got 1 more bytes"));
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_THAT(message(good.substr(0, length)), HasSubstr("expected"));
  }
  std::string more = good;
  more[8] = 4;
  EXPECT_THAT(message(more), HasSubstr("a name's length"));
  std::string huge = good;
  for (int i = 16; i < 20; ++i) huge[i] = '\xff';
  EXPECT_THAT(message(huge), HasSubstr("expected 4294967295 bytes of a name"));
  std::string endless = EncodeDigests({{"x", 1, {Block(1)}}});
  for (int i = 21; i < 29; ++i) endless[i] = '\xff';
  EXPECT_THAT(message(endless), HasSubstr("of block digests"));
  // Two payloads out of order, and twice the same.
  const std::string x = EncodeDigests({{"x", 1, {Block(1)}}});
  const std::string y = EncodeDigests({{"y", 1, {Block(1)}}});
  std::string header = x.substr(0, 16);
  header[8] = 2;
  EXPECT_THAT(message(header + y.substr(16) + x.substr(16)), HasSubstr("does not sort after y"));
  EXPECT_THAT(message(header + x.substr(16) + x.substr(16)), HasSubstr("does not sort after x"));
}

TEST(DigestsTest, FragmentsFollowThePayloads) {
  const auto table = DigestsTable::Decode(SampleWithFragments());
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  EXPECT_EQ(table->entries().size(), 2u);
  ASSERT_EQ(table->fragments().size(), 2u);
  EXPECT_EQ(table->fragments()[0].id, "sha256:a");
  const DigestsTable::Fragment* b = table->FindFragment("sha256:b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->nbytes, 6u);
  EXPECT_EQ(b->sha256, Fingerprint(5));
  EXPECT_EQ(table->FindFragment("sha256:c"), nullptr);
  // Of a rank that uploads nothing. On disk: these bytes never change.
  EXPECT_EQ(HexOf(EncodeDigests({}, {{"x", 1, Fingerprint(0xcd)}})),
            "4d43574449473032"
            "0000000000000000"
            "0100000000000000"
            "0100000078"
            "0100000000000000"
            "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd");
  // Without one, the bytes are those of the first form.
  EXPECT_TRUE(DigestsTable::Decode(Sample())->fragments().empty());
  EXPECT_TRUE(Sample().starts_with("MCWDIG01"));
}

TEST(DigestsTest, AFingerprintIsTheShaOfTheBlockDigests) {
  EXPECT_EQ(ToHex(FingerprintOf({})), ToHex(Sha256Of("")));
  const std::vector<BlockDigest> blocks{Block(1), Block(2)};
  EXPECT_EQ(ToHex(FingerprintOf(blocks)),
            ToHex(Sha256Of(std::string(16, '\1') + std::string(16, '\2'))));
}

TEST(DigestsTest, MalformedFragmentsAreRefused) {
  const auto message = [](std::string bytes) {
    const auto table = DigestsTable::Decode(std::move(bytes));
    EXPECT_EQ(table.status().code(), Code::kCorrupt);
    return table.status().message();
  };
  const std::string good = SampleWithFragments();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_THAT(message(good.substr(0, length)), HasSubstr("expected"));
  }
  EXPECT_THAT(message(good + "x"), HasSubstr("got 1 more bytes"));
  const std::string none = "MCWDIG02" + std::string(16, '\0');
  EXPECT_THAT(message(none), HasSubstr("without a fragment"));
  const std::string x = EncodeDigests({}, {{"x", 1, Fingerprint(1)}});
  const std::string y = EncodeDigests({}, {{"y", 1, Fingerprint(1)}});
  std::string header = x.substr(0, 24);
  header[16] = 2;
  EXPECT_THAT(message(header + y.substr(24) + x.substr(24)), HasSubstr("does not sort after y"));
  EXPECT_THAT(message(header + x.substr(24) + x.substr(24)), HasSubstr("does not sort after x"));
}

TEST(DigestsTest, ArbitraryBytesGiveAValueOrCorrupt) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (int round = 0; round < 50'000; ++round) {
    std::string bytes = round % 2 == 0 ? Sample() : SampleWithFragments();
    const int edits = 1 + static_cast<int>(rng() % 4);
    for (int i = 0; i < edits; ++i) bytes[rng() % bytes.size()] = static_cast<char>(rng());
    if (rng() % 3 == 0) bytes.resize(rng() % bytes.size());
    const auto table = DigestsTable::Decode(bytes);
    if (!table.ok()) {
      EXPECT_EQ(table.status().code(), Code::kCorrupt);
      continue;
    }
    // What decodes is canonical: it encodes to the same bytes.
    std::vector<PayloadDigests> payloads;
    for (const DigestsTable::Entry& entry : table->entries()) {
      payloads.push_back(
          {std::string(entry.name), entry.nbytes, {entry.blocks.begin(), entry.blocks.end()}});
    }
    std::vector<FragmentFingerprint> fragments;
    for (const DigestsTable::Fragment& one : table->fragments()) {
      fragments.push_back({std::string(one.id), one.nbytes, one.sha256});
    }
    EXPECT_EQ(EncodeDigests(payloads, fragments), bytes);
  }
}

}  // namespace
}  // namespace mooncake::client
