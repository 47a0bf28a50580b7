// Digests objects that an earlier build wrote are read.
#include <gtest/gtest.h>

#include "client/digests.h"
#include "env/test_golden.h"

namespace mooncake::client {
namespace {

using env::kGoldenAdvice;

std::vector<PayloadDigests> Payloads() {
  const auto block = [](uint8_t fill) {
    BlockDigest digest;
    digest.bytes.fill(fill);
    return digest;
  };
  return {{"a%2Fb", 5, {block(3)}},
          {"empty", 0, {}},
          {"pack-w0", kDigestBlockBytes + 1, {block(1), block(2)}}};
}

std::vector<FragmentFingerprint> Fragments() {
  return {{"sha256:a", 3, Sha256Of("a")}, {"sha256:b", 6, Sha256Of("b")}};
}

// Both forms are written by today's build.
std::map<std::string, std::string> Objects() {
  return {{"MCWDIG01.digests", EncodeDigests(Payloads())},
          {"MCWDIG02.digests", EncodeDigests(Payloads(), Fragments())}};
}

TEST(GoldenFormats, Written) {
  const std::string folder = env::GoldenTarget();
  if (folder.empty()) return;
  for (const auto& [name, bytes] : Objects()) env::WriteGolden(folder + "/client/" + name, bytes);
}

TEST(GoldenFormats, EveryDigestsObjectIsRead) {
  const auto versions = env::GoldenVersions(MOONCAKE_SOURCE_DIR);
  for (const auto& [version, folder] : versions) {
    for (const auto& [name, today] : Objects()) {
      SCOPED_TRACE(folder + "/client/" + name + ": " + kGoldenAdvice);
      const std::string bytes = env::ReadGolden(folder + "/client/" + name);
      const auto table = DigestsTable::Decode(bytes);
      ASSERT_TRUE(table.ok()) << table.status().ToString();
      const auto payloads = Payloads();
      ASSERT_EQ(table->entries().size(), payloads.size());
      for (size_t i = 0; i < payloads.size(); ++i) {
        const DigestsTable::Entry& entry = table->entries()[i];
        EXPECT_EQ(entry.name, payloads[i].name);
        EXPECT_EQ(entry.nbytes, payloads[i].nbytes);
        EXPECT_EQ(std::vector(entry.blocks.begin(), entry.blocks.end()), payloads[i].blocks);
      }
      const auto fragments =
          name == "MCWDIG01.digests" ? std::vector<FragmentFingerprint>() : Fragments();
      ASSERT_EQ(table->fragments().size(), fragments.size());
      for (size_t i = 0; i < fragments.size(); ++i) {
        const DigestsTable::Fragment& fragment = table->fragments()[i];
        EXPECT_EQ(fragment.id, fragments[i].fragment_id);
        EXPECT_EQ(fragment.nbytes, fragments[i].nbytes);
        EXPECT_EQ(fragment.sha256, fragments[i].sha256);
      }
      if (version != versions.rbegin()->first) continue;
      EXPECT_TRUE(today == bytes) << "written today, it is other bytes";
    }
  }
}

}  // namespace
}  // namespace mooncake::client
