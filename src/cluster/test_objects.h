// For tests of ordinary objects: payloads in which every eight bytes say whose and which they are.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "client/object_client.h"

namespace mooncake::cluster {

// Word i of payload `number` is number * 2^40 + i; a last word that is cut has its first bytes.
inline std::string Payload(uint64_t number, uint64_t bytes) {
  std::string payload(bytes, 0);
  for (uint64_t at = 0; at < bytes; at += 8) {
    const uint64_t word = (number << 40) + at / 8;
    std::memcpy(payload.data() + at, &word, std::min<uint64_t>(8, bytes - at));
  }
  return payload;
}

inline client::PutItem ItemOf(std::string_view key, const std::string& payload) {
  return {.key = key, .pieces = {{payload.data(), payload.size()}}};
}

inline client::PutResult PutOne(client::ObjectClient& client, std::string_view key,
                                const std::string& payload, const client::PutOptions& how = {}) {
  const client::PutItem item = ItemOf(key, payload);
  return client.Put({&item, 1}, how).front();
}

// The object, or why not.
inline Result<std::string> GetOne(client::ObjectClient& client, std::string_view key) {
  std::string got;
  const client::ReadResult result = client
                                        .GetSized({&key, 1},
                                                  [&got](size_t, uint64_t bytes) {
                                                    got.assign(bytes, '?');
                                                    return got.data();
                                                  })
                                        .front();
  if (!result.status.ok()) return result.status;
  EXPECT_EQ(result.bytes, got.size());
  return got;
}

// The key has that payload.
inline void ExpectObject(client::ObjectClient& client, std::string_view key,
                         const std::string& payload) {
  const Result<std::string> got = GetOne(client, key);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  // Not EXPECT_EQ: megabytes are nothing to print.
  EXPECT_TRUE(*got == payload) << "object " << key << " of " << payload.size() << " bytes";
}

inline Code CodeOfGet(client::ObjectClient& client, std::string_view key) {
  return GetOne(client, key).status().code();
}

}  // namespace mooncake::cluster
