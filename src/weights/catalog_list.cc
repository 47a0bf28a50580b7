// Catalog::List: one page of revisions in identity order.
//
// Page token: "1." + 16 hex characters of the query's SHA-256 + "." + the last identity looked at,
// as UrlEncode(namespace)/UrlEncode(resource_id)/UrlEncode(revision)/generation. It holds no state
// of the Master, so it stays good across restarts; revisions that come or go between two pages are
// seen or not, all others exactly once.

#include <algorithm>
#include <charconv>

#include "base/url_encode.h"
#include "weights/catalog.h"

namespace mooncake::weights {
namespace {

using model::Availability;

constexpr uint32_t kPageSizeDefault = 100;
constexpr uint32_t kPageSizeMax = 1000;
// Records that one call looks at, whatever the filter leaves of them.
constexpr size_t kRecordsPerCall = 10'000;

std::string QueryMark(const ListQuery& query) {
  std::string text = UrlEncode(query.tenant_id) + "/" + UrlEncode(query.name_space) + "/" +
                     UrlEncode(query.resource_id);
  for (const Availability availability : query.availability) {
    text += "/";
    text += Name(availability);
  }
  return ToHex(Sha256Of(text)).substr(0, 16);
}

std::string MakeToken(const ListQuery& query, const model::WeightIdentity& last) {
  return "1." + QueryMark(query) + "." + UrlEncode(last.name_space) + "/" +
         UrlEncode(last.resource_id) + "/" + UrlEncode(last.revision) + "/" +
         std::to_string(last.weight_generation.value);
}

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Result<model::WeightIdentity> ParseToken(const ListQuery& query) {
  const std::string_view token = query.page_token;
  const std::string prefix = "1." + QueryMark(query) + ".";
  if (!token.starts_with(prefix)) {
    return InvalidArgument("page_token is not a token of this query");
  }
  const std::vector<std::string_view> parts = Split(token.substr(prefix.size()), '/');
  if (parts.size() != 4) return InvalidArgument("page_token is malformed");
  model::WeightIdentity identity;
  identity.tenant_id = query.tenant_id;
  MC_ASSIGN_OR_RETURN(identity.name_space, UrlDecode(parts[0]));
  MC_ASSIGN_OR_RETURN(identity.resource_id, UrlDecode(parts[1]));
  MC_ASSIGN_OR_RETURN(identity.revision, UrlDecode(parts[2]));
  const std::string_view number = parts[3];
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(),
                                            identity.weight_generation.value);
  if (error != std::errc() || end != number.data() + number.size()) {
    return InvalidArgument("page_token is malformed");
  }
  return identity;
}

bool IsWanted(const ListQuery& query, const Revision& revision) {
  if (!query.resource_id.empty() && revision.identity.resource_id != query.resource_id) {
    return false;
  }
  if (query.availability.empty()) return IsDiscoverable(revision.availability);
  return query.availability.contains(revision.availability);
}

}  // namespace

Result<ListPage> Catalog::List(const ListQuery& query) const {
  if (query.tenant_id.empty()) return InvalidArgument("tenant_id must not be empty");
  if (query.page_size > kPageSizeMax) {
    return InvalidArgument("page_size may be at most " + std::to_string(kPageSizeMax) + ", got " +
                           std::to_string(query.page_size));
  }
  const size_t page_size = query.page_size == 0 ? kPageSizeDefault : query.page_size;
  // With a namespace and a resource the wanted records are neighbours; the scan starts there.
  model::WeightIdentity first;
  first.tenant_id = query.tenant_id;
  first.name_space = query.name_space;
  if (!query.name_space.empty()) first.resource_id = query.resource_id;
  auto it = by_identity_.lower_bound(first);
  if (!query.page_token.empty()) {
    MC_ASSIGN_OR_RETURN(const model::WeightIdentity last, ParseToken(query));
    if (last >= first) it = by_identity_.upper_bound(last);
  }

  ListPage page;
  const model::WeightIdentity* looked_at = nullptr;
  for (size_t looked = 0; it != by_identity_.end(); ++it, ++looked) {
    const model::WeightIdentity& identity = it->first;
    if (identity.tenant_id != query.tenant_id) break;
    if (!query.name_space.empty()) {
      if (identity.name_space != query.name_space) break;
      if (!query.resource_id.empty() && identity.resource_id != query.resource_id) break;
    }
    // Another record is there: the page has a successor.
    if (page.revisions.size() == page_size || looked == kRecordsPerCall) {
      page.next_page_token = MakeToken(query, *looked_at);
      break;
    }
    looked_at = &identity;
    const Revision& revision = revisions_.at(it->second);
    if (IsWanted(query, revision)) page.revisions.push_back(&revision);
  }
  return page;
}

}  // namespace mooncake::weights
