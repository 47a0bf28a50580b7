#include <gtest/gtest.h>

#include <algorithm>

#include "base/digest.h"
#include "base/status.h"
#include "base/url_encode.h"

namespace mooncake {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return InvalidArgument("n must be even, got " + std::to_string(n));
  return n / 2;
}

Result<int> Quarter(int n) {
  MC_ASSIGN_OR_RETURN(const int half, Half(n));
  return Half(half);
}

TEST(Status, CarriesCodeAndValues) {
  EXPECT_TRUE(OkStatus().ok());
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().ToString(), "INVALID_ARGUMENT: n must be even, got 3");
  EXPECT_EQ(Quarter(6).status().WithContext("here").message(), "here: n must be even, got 3");
}

TEST(Digest, MatchesPublishedVectors) {
  EXPECT_EQ(ToHex(Sha256Of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(*Sha256FromHex(ToHex(Sha256Of("x")))), ToHex(Sha256Of("x")));
  EXPECT_FALSE(Sha256FromHex("AB").ok());
  // XXH3-128 of the empty input, from the reference implementation.
  const BlockDigest empty = BlockDigestOf("", 0);
  EXPECT_EQ(HexOf({reinterpret_cast<const char*>(empty.bytes.data()), 16}),
            "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Xxh3Of("", 0), 0x2d06800538d394c2u);  // likewise
  // RFC 4231, test case 2.
  EXPECT_EQ(ToHex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Digest, AChecksumOfPiecesIsThatOfTheWhole) {
  std::string all(300'000, 0);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * i >> 3);
  Xxh3 pieces;
  for (const size_t step : {1u, 63u, 64u, 1000u, 70'000u, 300'000u}) {
    pieces.Reset();
    for (size_t at = 0; at < all.size(); at += step) {
      pieces.Update(all.data() + at, std::min(step, all.size() - at));
    }
    EXPECT_EQ(pieces.Value(), Xxh3Of(all.data(), all.size())) << step;
  }
}

TEST(UrlEncode, RoundTripsEveryByte) {
  std::string all;
  for (int i = 1; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(*UrlDecode(UrlEncode(all)), all);
  EXPECT_EQ(UrlEncode("a b/ü~"), "a%20b%2F%C3%BC~");
  EXPECT_FALSE(UrlDecode("%4").ok());
  EXPECT_FALSE(UrlDecode("%zz").ok());
}

}  // namespace
}  // namespace mooncake
