// Every decoder gets its seeds, and inputs that differ from them in a few places, from a printed
// seed. The same feeds run for as long as one likes under libFuzzer: ./x fuzz.
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "fuzz/decoders.h"

namespace mooncake::fuzz {
namespace {

class Mutator {
 public:
  Mutator(const std::vector<std::string>& seeds, uint64_t seed) : seeds_(seeds), random_(seed) {}

  std::string Next() {
    std::string bytes = AnySeed();
    for (uint64_t changes = 1 + Below(4); changes > 0; --changes) Change(&bytes);
    return bytes;
  }

 private:
  uint64_t Below(uint64_t end) { return random_() % end; }
  const std::string& AnySeed() { return seeds_[Below(seeds_.size())]; }

  void Change(std::string* bytes) {
    const size_t at = Below(bytes->size() + 1);
    switch (Below(7)) {
      case 0:  // a bit
        if (at < bytes->size()) (*bytes)[at] = static_cast<char>((*bytes)[at] ^ 1 << Below(8));
        break;
      case 1:  // a byte
        if (at < bytes->size()) (*bytes)[at] = static_cast<char>(random_());
        break;
      case 2:  // cut short
        bytes->resize(at);
        break;
      case 3:  // something taken out
        bytes->erase(at, 1 + Below(16));
        break;
      case 4:  // something of itself or another seed, put in
        bytes->insert(at, Piece());
        break;
      case 5:  // numbers at the edge
        for (size_t i = at; i < bytes->size() && i < at + 8; ++i) {
          (*bytes)[i] = Below(2) == 0 ? '\xff' : '\x00';
        }
        break;
      default:  // the end of another seed
        *bytes = bytes->substr(0, at) + Piece();
        break;
    }
  }
  std::string Piece() {
    const std::string& from = AnySeed();
    const size_t begin = Below(from.size() + 1);
    return from.substr(begin, Below(128));
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_;
};

class DecoderTest : public testing::TestWithParam<Decoder> {};

TEST_P(DecoderTest, TakesAnyBytes) {
  const google::protobuf::LogSilencer quiet;  // it reports each text that is not UTF-8
  const char* given = std::getenv("MOONCAKE_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::cout << "MOONCAKE_TEST_SEED=" << seed << '\n';
  const Decoder& decoder = GetParam();
  const std::vector<std::string> seeds = decoder.seeds();
  ASSERT_FALSE(seeds.empty());
  size_t bytes = 0;
  for (const std::string& one : seeds) {
    decoder.feed(one);
    bytes += one.size();
  }
  decoder.feed("");
  Mutator mutator(seeds, seed);
  // Fewer of what is long: a round costs about as much as its seed is long.
  const size_t rounds = std::clamp<size_t>(24'000'000 / (1 + bytes / seeds.size()), 3'000, 30'000);
  for (size_t round = 0; round < rounds; ++round) decoder.feed(mutator.Next());
}

INSTANTIATE_TEST_SUITE_P(Decoders, DecoderTest, testing::ValuesIn(Decoders()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mooncake::fuzz
