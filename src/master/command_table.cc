#include "master/command_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codec/values.h"
#include "mooncake/v1/snapshot.pb.h"

namespace mooncake::master {

Result<const std::string*> CommandTable::Find(std::string_view client_id, uint64_t sequence,
                                              uint64_t acked_below,
                                              const Sha256Digest& request_sha256) const {
  const auto client = clients_.find(client_id);
  if (client == clients_.end()) return static_cast<const std::string*>(nullptr);
  if (sequence < client->second.acked_below) {
    return InvalidArgument(
        fmt::format("command {} of client {} was acknowledged and is forgotten: all below {} are",
                    sequence, client_id, client->second.acked_below));
  }
  const auto outcome = client->second.outcomes.find(sequence);
  if (outcome != client->second.outcomes.end()) {
    if (outcome->second.request_sha256 == request_sha256) return &outcome->second.reply;
    return InvalidArgument(
        fmt::format("command {} of client {} was another request: sha256 {}, got {}", sequence,
                    client_id, ToHex(outcome->second.request_sha256), ToHex(request_sha256)));
  }
  const auto& outcomes = client->second.outcomes;
  if (outcomes.size() < kOutcomesPerClientMax) return static_cast<const std::string*>(nullptr);
  const auto kept = std::distance(outcomes.lower_bound(acked_below), outcomes.end());
  if (static_cast<size_t>(kept) >= kOutcomesPerClientMax) {
    return Exhausted(fmt::format("client {} has {} unacknowledged commands, the first is {}",
                                 client_id, kept, outcomes.lower_bound(acked_below)->first));
  }
  return static_cast<const std::string*>(nullptr);
}

Status CommandTable::Apply(CommandOutcome outcome, int64_t logged_ms) {
  const auto found = clients_.find(outcome.client_id);
  if (found != clients_.end() && (outcome.sequence < found->second.acked_below ||
                                  found->second.outcomes.contains(outcome.sequence))) {
    return Corrupt(fmt::format("command {} of client {} has an outcome already", outcome.sequence,
                               outcome.client_id));
  }
  Client& client = found != clients_.end() ? found->second : clients_[outcome.client_id];
  if (found != clients_.end()) by_last_ms_.erase({client.last_ms, outcome.client_id});
  by_last_ms_.insert({logged_ms, outcome.client_id});
  client.last_ms = logged_ms;
  client.acked_below = std::max(client.acked_below, outcome.acked_below);
  ForgetOutcomes(client, client.acked_below, logged_ms - kForgetAfterMs);
  client.outcomes[outcome.sequence] = {logged_ms, outcome.request_sha256, std::move(outcome.reply)};
  ++outcome_count_;
  return OkStatus();
}

void CommandTable::ForgetOutcomes(Client& client, uint64_t sequence, int64_t before_ms) {
  auto kept = client.outcomes.begin();
  while (kept != client.outcomes.end() &&
         (kept->first < sequence || kept->second.logged_ms < before_ms)) {
    ++kept;
    --outcome_count_;
  }
  client.outcomes.erase(client.outcomes.begin(), kept);
}

void CommandTable::Forget(int64_t logged_ms) {
  while (!by_last_ms_.empty() && by_last_ms_.begin()->first < logged_ms - kForgetAfterMs) {
    const auto client = clients_.find(by_last_ms_.begin()->second);
    outcome_count_ -= client->second.outcomes.size();
    clients_.erase(client);
    by_last_ms_.erase(by_last_ms_.begin());
  }
}

void CommandTable::SaveSnapshot(const std::function<void(std::string_view)>& add) const {
  for (const auto& [client_id, client] : clients_) {
    v1::CommandsRecord record;
    record.set_client_id(client_id);
    record.set_acked_below(client.acked_below);
    record.set_last_ms(client.last_ms);
    for (const auto& [sequence, outcome] : client.outcomes) {
      v1::CommandsRecord::Outcome& out = *record.add_outcomes();
      out.set_sequence(sequence);
      out.set_time_ms(outcome.logged_ms);
      out.set_request_sha256(codec::BytesOf(outcome.request_sha256));
      out.set_reply(outcome.reply);
    }
    add(record.SerializeAsString());
  }
}

Status CommandTable::LoadSnapshot(std::string_view bytes) {
  v1::CommandsRecord record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Corrupt(fmt::format("{} bytes that are no CommandsRecord", bytes.size()));
  }
  const auto [it, is_new] = clients_.try_emplace(record.client_id());
  if (!is_new) return Corrupt(fmt::format("client {} is there twice", record.client_id()));
  Client& client = it->second;
  client.acked_below = record.acked_below();
  client.last_ms = record.last_ms();
  by_last_ms_.insert({client.last_ms, it->first});
  for (const v1::CommandsRecord::Outcome& saved : record.outcomes()) {
    Outcome outcome{saved.time_ms(), {}, saved.reply()};
    MC_ASSIGN_OR_RETURN(outcome.request_sha256,
                        codec::DigestFromLog("request_sha256", saved.request_sha256()));
    if (!client.outcomes.emplace(saved.sequence(), std::move(outcome)).second) {
      return Corrupt(fmt::format("command {} of client {} is there twice", saved.sequence(),
                                 record.client_id()));
    }
    ++outcome_count_;
  }
  return OkStatus();
}

void CommandTable::AddTo(model::StateDigest* digest) const {
  digest->Number(clients_.size());
  for (const auto& [client_id, client] : clients_) {
    digest->Text(client_id);
    digest->Number(client.acked_below);
    digest->Number(static_cast<uint64_t>(client.last_ms));
    digest->Number(client.outcomes.size());
    for (const auto& [sequence, outcome] : client.outcomes) {
      digest->Number(sequence);
      digest->Number(static_cast<uint64_t>(outcome.logged_ms));
      digest->Hash(outcome.request_sha256);
      digest->Text(outcome.reply);
    }
  }
}

}  // namespace mooncake::master
