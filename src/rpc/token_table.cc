#include "rpc/token_table.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/url_encode.h"
#include "model/identity.h"

namespace mooncake::rpc {
namespace {

constexpr std::string_view kHeader = "mooncake-tokens 1";
constexpr std::string_view kAnyTenant = "*";
constexpr size_t kNameBytesMax = 128;

// The next run of characters that are no blanks; empty at the end.
std::string_view TakeWord(std::string_view* line) {
  constexpr std::string_view kBlanks = " \t";
  const size_t begin = line->find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return *line = {};
  const size_t end = std::min(line->find_first_of(kBlanks, begin), line->size());
  const std::string_view word = line->substr(begin, end - begin);
  line->remove_prefix(end);
  return word;
}

std::string_view TakeLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

Result<Role> RoleByName(std::string_view name) {
  for (uint8_t i = 1; i <= kRoleMax; ++i) {
    if (Name(static_cast<Role>(i)) == name) return static_cast<Role>(i);
  }
  return InvalidArgument(fmt::format("role: expected client, node or operator, got \"{}\"", name));
}

Status CheckName(std::string_view name) {
  const bool plain =
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
      std::string_view::npos;
  if (plain && !name.empty() && name.size() <= kNameBytesMax) return OkStatus();
  return InvalidArgument(fmt::format(
      "name: expected 1 to {} letters, digits, '-', '_' and '.', got \"{}\"", kNameBytesMax, name));
}

// All of it is looked at, whatever differs.
bool SameDigest(const Sha256Digest& a, const Sha256Digest& b) {
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace

Result<TokenTable> TokenTable::Parse(std::string_view text) {
  if (const std::string_view first = TakeLine(&text); first != kHeader) {
    return InvalidArgument(
        fmt::format("line 1: expected \"{}\", got \"{}\"", kHeader, first.substr(0, 64)));
  }
  TokenTable table;
  for (int number = 2; !text.empty(); ++number) {
    const std::string_view line = TakeLine(&text);
    std::string_view words = line;
    const std::string_view first = TakeWord(&words);
    if (first.empty() || first.starts_with('#')) continue;
    Result<Entry> entry = ParseEntry(line);
    const Status added = entry.ok() ? table.Add(*std::move(entry)) : entry.status();
    if (!added.ok()) return added.WithContext(fmt::format("line {}", number));
  }
  return table;
}

Result<TokenTable::Entry> TokenTable::ParseEntry(std::string_view line) {
  Entry entry;
  const std::string_view name = TakeWord(&line);
  MC_RETURN_IF_ERROR(CheckName(name));
  entry.caller.name = name;
  MC_ASSIGN_OR_RETURN(entry.caller.role, RoleByName(TakeWord(&line)));
  const std::string_view tenant = TakeWord(&line);
  if (entry.caller.role == Role::kClient) {
    if (tenant.empty() || tenant == kAnyTenant) {
      return InvalidArgument(
          fmt::format("tenant: a client token is for one tenant, got \"{}\"", tenant));
    }
    Result<std::string> decoded = UrlDecode(tenant);
    if (!decoded.ok()) return decoded.status().WithContext("tenant");
    MC_RETURN_IF_ERROR(model::ValidateIdentityPart("tenant", *decoded));
    entry.caller.tenant_id = *std::move(decoded);
  } else if (tenant != kAnyTenant) {
    return InvalidArgument(
        fmt::format("tenant: a token for role {} is for all of them: \"{}\", got "
                    "\"{}\"",
                    Name(entry.caller.role), kAnyTenant, tenant));
  }
  Result<Sha256Digest> sha256 = Sha256FromHex(TakeWord(&line));
  if (!sha256.ok()) return sha256.status().WithContext("sha256");
  entry.sha256 = *sha256;
  if (const std::string_view more = TakeWord(&line); !more.empty()) {
    return InvalidArgument(
        fmt::format("expected four fields, name role tenant sha256, got a fifth: \"{}\"", more));
  }
  return entry;
}

Status TokenTable::Add(Entry entry) {
  for (const Entry& other : entries_) {
    if (other.caller.name == entry.caller.name) {
      return InvalidArgument("name: " + entry.caller.name + " stands twice");
    }
    if (other.sha256 == entry.sha256) {
      return InvalidArgument("sha256: " + entry.caller.name + " and " + other.caller.name +
                             " have the same token");
    }
  }
  if (entries_.size() == kTokensMax) {
    return InvalidArgument(fmt::format("more than {} tokens", kTokensMax));
  }
  entries_.push_back(std::move(entry));
  return OkStatus();
}

std::vector<Caller> TokenTable::callers() const {
  std::vector<Caller> callers;
  for (const Entry& entry : entries_) callers.push_back(entry.caller);
  return callers;
}

const Caller* TokenTable::Find(std::string_view token) const {
  if (token.empty() || token.size() > kTokenBytesMax) return nullptr;
  const Sha256Digest sha256 = Sha256Of(token);
  const Caller* found = nullptr;
  for (const Entry& entry : entries_) {
    found = SameDigest(entry.sha256, sha256) ? &entry.caller : found;
  }
  return found;
}

}  // namespace mooncake::rpc
