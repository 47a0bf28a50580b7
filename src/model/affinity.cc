#include "model/affinity.h"

#include <algorithm>
#include <map>

#include "base/digest.h"

namespace mooncake::model {
namespace {

void AppendJsonString(std::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (byte < 0x20) {
      out->append("\\u00");
      out->push_back(kHex[byte >> 4]);
      out->push_back(kHex[byte & 15]);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

struct Unit {
  std::vector<std::string_view> members;  // ascending
  uint64_t bytes = 0;
};

// SHA-256 of the texts joined with "\n".
std::string JoinedDigest(const std::vector<std::string_view>& texts) {
  Sha256 sha;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) sha.Update("\n");
    sha.Update(texts[i]);
  }
  return ToHex(sha.Finish());
}

}  // namespace

AffinitySummary SummarizeAffinity(std::vector<AffinityMember> members) {
  std::sort(members.begin(), members.end(),
            [](const AffinityMember& a, const AffinityMember& b) { return a.name < b.name; });
  // In order of first appearance, which is the order of first members.
  std::vector<Unit> units;
  std::map<uint32_t, size_t> position_of_unit;
  for (const AffinityMember& member : members) {
    const auto [it, is_new] = position_of_unit.try_emplace(member.unit, units.size());
    if (is_new) units.emplace_back();
    units[it->second].members.push_back(member.name);
    units[it->second].bytes += member.bytes;
  }

  AffinitySummary summary;
  summary.unit_count = units.size();
  std::string& json = summary.json;
  json = "{\"units\":[";
  for (size_t i = 0; i < units.size(); ++i) {
    if (i > 0) json.push_back(',');
    json += "{\"bytes\":" + std::to_string(units[i].bytes) + ",\"digest\":\"" +
            JoinedDigest(units[i].members) + "\",\"members\":[";
    for (size_t m = 0; m < units[i].members.size(); ++m) {
      if (m > 0) json.push_back(',');
      AppendJsonString(units[i].members[m], &json);
    }
    json += "]}";
  }
  json += "],\"version\":1}";
  summary.sha256 = ToHex(Sha256Of(json));
  return summary;
}

std::string PayloadKeyDigest(std::vector<std::string_view> payload_keys) {
  std::sort(payload_keys.begin(), payload_keys.end());
  return JoinedDigest(payload_keys);
}

}  // namespace mooncake::model
