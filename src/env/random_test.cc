#include "env/random.h"

#include <gtest/gtest.h>

#include <set>

namespace mooncake::env {
namespace {

TEST(SystemRandomTest, LengthsAndDistinctness) {
  std::set<std::string> seen;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{32}, size_t{300}, size_t{100'000}}) {
    EXPECT_EQ(SystemRandom::Instance().RandomBytes(bytes).size(), bytes);
  }
  for (int i = 0; i < 100; ++i) seen.insert(SystemRandom::Instance().RandomBytes(32));
  EXPECT_EQ(seen.size(), 100u);
}

TEST(SeededRandomTest, SameSeedSameBytes) {
  SeededRandom a(7);
  SeededRandom b(7);
  SeededRandom c(8);
  const std::string first = a.RandomBytes(21);
  EXPECT_EQ(first, b.RandomBytes(21));
  EXPECT_NE(first, c.RandomBytes(21));
  EXPECT_EQ(a.RandomU64(), b.RandomU64());
  EXPECT_NE(a.RandomBytes(21), first);
}

}  // namespace
}  // namespace mooncake::env
