// The affinity summary and the payload-key digest: two facts about a group's payload objects that
// the publisher writes and the Master recomputes from its own objects. This file is their one
// format.
//
// Pure functions of names, sizes and unit numbers; nothing here knows manifests or fragments.
//
// Summary format (the bytes of the METADATA object <group>/affinity): JSON, UTF-8, no whitespace,
//   {"units":[{"bytes":N,"digest":"<64 hex>","members":["<payload name>",...]},...],"version":1}
// members: payload names (the key below <group>/payload/), ascending by bytes, of one unit;
// bytes:   the sum of their sizes, decimal;
// digest:  lowercase hex SHA-256 of the members joined with "\n" (none at the end);
// units:   ascending by first member. A name stands in exactly one unit.
// In names '"', '\' and controls below 0x20 are escaped as \", \\ and \u00XX; all else is verbatim.
//
// The unit numbers that callers pass in only group objects; they do not appear in the format.
//
// Payload-key digest: lowercase hex SHA-256 of the full payload keys, ascending by bytes, joined
// with "\n" (none at the end).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mooncake::model {

struct AffinityMember {
  std::string_view name;  // the payload name, not the full key
  uint64_t bytes = 0;
  uint32_t unit = 0;
};

struct AffinitySummary {
  std::string json;
  std::string sha256;  // of json, lowercase hex
  uint64_t unit_count = 0;
};

// Members in any order; names are distinct.
AffinitySummary SummarizeAffinity(std::vector<AffinityMember> members);

// Keys in any order.
std::string PayloadKeyDigest(std::vector<std::string_view> payload_keys);

}  // namespace mooncake::model
