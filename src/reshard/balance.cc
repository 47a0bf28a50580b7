#include "reshard/balance.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/digest.h"
#include "base/url_encode.h"
#include "reshard/source_index.h"

namespace mooncake::reshard {
namespace {

std::vector<uint32_t> NumberHosts(const HostMap& hosts, const manifest::Placement& placement,
                                  std::map<std::string_view, uint32_t>* numbers) {
  std::vector<uint32_t> of_part(placement.parts.size(), 0);
  for (size_t p = 0; p < of_part.size(); ++p) {
    const auto it = hosts.find(placement.parts[p].participant_id);
    if (it == hosts.end() || it->second.empty()) continue;
    of_part[p] =
        numbers->try_emplace(it->second, static_cast<uint32_t>(numbers->size() + 1)).first->second;
  }
  return of_part;
}

}  // namespace

std::string DigestOf(const Balance& balance) {
  std::string text = "mooncake-plan-balance 1\n";
  const auto add = [&text](const char* side, const HostMap& hosts) {
    for (const auto& [participant, host] : hosts) {
      text += std::string(side) + " " + UrlEncode(participant) + " " + UrlEncode(host) + "\n";
    }
  };
  add("source", balance.source_hosts);
  add("target", balance.target_hosts);
  return ToHex(Sha256Of(text));
}

std::string_view HostOfEndpoint(std::string_view endpoint) {
  if (const size_t scheme = endpoint.find("://"); scheme != std::string_view::npos) {
    endpoint.remove_prefix(scheme + 3);
  }
  endpoint = endpoint.substr(0, endpoint.find('/'));
  if (endpoint.starts_with('[')) {
    const size_t close = endpoint.find(']');
    return close == std::string_view::npos ? endpoint : endpoint.substr(1, close - 1);
  }
  // More than one colon and no brackets: an IPv6 address without a port.
  const size_t colon = endpoint.find(':');
  if (colon != endpoint.rfind(':')) return endpoint;
  return endpoint.substr(0, colon);
}

std::optional<std::string> HostOf(const manifest::RuntimeBinding& binding) {
  if (binding.fragments.empty()) return std::nullopt;
  const std::string_view host = HostOfEndpoint(binding.fragments[0].endpoint);
  if (host.empty()) return std::nullopt;
  for (const manifest::RuntimeBindingFragment& fragment : binding.fragments) {
    if (HostOfEndpoint(fragment.endpoint) != host) return std::nullopt;
  }
  return std::string(host);
}

ReadBalancer::ReadBalancer(const SourceIndex& source, const Balance& balance,
                           const manifest::Placement& target, std::optional<uint32_t> part)
    : source_(source), target_(target), part_(part) {
  std::map<std::string_view, uint32_t> numbers;
  source_hosts_ = NumberHosts(balance.source_hosts, *source.placement(), &numbers);
  target_hosts_ = NumberHosts(balance.target_hosts, target, &numbers);
}

void ReadBalancer::Assign(std::span<PlannedOperation> operations,
                          std::span<const uint64_t> bytes) const {
  const SourceHolders& holders = source_.holders();
  const std::vector<uint32_t> target_part =
      part_ ? std::vector<uint32_t>() : PartsOfFragments(target_);
  const auto part_of = [&](const PlannedOperation& operation) {
    return part_ ? *part_ : target_part[operation.target];
  };
  const auto is_near = [&](const SourceHolders::Holder& holder, uint32_t host) {
    return host != 0 && source_hosts_[holder.part] == host;
  };

  struct Read {
    uint32_t holders = 0;
    bool near = false;  // only those on the reader's host count
    uint32_t operation = 0;
  };
  std::vector<Read> reads(operations.size());
  for (uint32_t i = 0; i < operations.size(); ++i) {
    const std::span<const SourceHolders::Holder> all = holders.of(operations[i].source);
    const uint32_t host = target_hosts_[part_of(operations[i])];
    const auto near = static_cast<uint32_t>(std::count_if(
        all.begin(), all.end(), [&](const auto& holder) { return is_near(holder, host); }));
    reads[i] = {near > 0 ? near : static_cast<uint32_t>(all.size()), near > 0, i};
  }
  std::sort(reads.begin(), reads.end(), [&](const Read& a, const Read& b) {
    if (a.holders != b.holders) return a.holders < b.holders;
    if (bytes[a.operation] != bytes[b.operation]) return bytes[a.operation] > bytes[b.operation];
    const PlannedOperation& oa = operations[a.operation];
    const PlannedOperation& ob = operations[b.operation];
    return std::tie(oa.target, oa.source, a.operation) <
           std::tie(ob.target, ob.source, b.operation);
  });

  std::vector<uint64_t> sent(source_hosts_.size(), 0);  // by source part
  for (const Read& read : reads) {
    PlannedOperation& operation = operations[read.operation];
    const std::span<const SourceHolders::Holder> all = holders.of(operation.source);
    const uint32_t host = target_hosts_[part_of(operation)];
    const size_t first = part_ ? *part_ % all.size() : 0;
    const SourceHolders::Holder* chosen = nullptr;
    for (size_t i = 0; i < all.size(); ++i) {
      const SourceHolders::Holder& holder = all[(first + i) % all.size()];
      if (read.near && !is_near(holder, host)) continue;
      if (chosen == nullptr || sent[holder.part] < sent[chosen->part]) chosen = &holder;
    }
    sent[chosen->part] += bytes[read.operation];
    operation.source = chosen->fragment;
  }
}

}  // namespace mooncake::reshard
