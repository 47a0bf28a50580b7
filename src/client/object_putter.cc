#include "client/object_putter.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/digest.h"
#include "base/log.h"
#include "client/extent_writer.h"
#include "rpc/status_proto.h"

namespace mooncake::client {
namespace {

// Bytes of the payload; INVALID_ARGUMENT unless it can be put.
Result<uint64_t> PayloadBytes(const PutItem& item) {
  if (item.key.empty()) return InvalidArgument("the key of an object must not be empty");
  uint64_t bytes = 0;
  for (size_t i = 0; i < item.pieces.size(); ++i) {
    const ConstPiece& piece = item.pieces[i];
    if (piece.address == nullptr && piece.bytes > 0) {
      return InvalidArgument("object " + KeyText(item.key) + ": piece " + std::to_string(i) +
                             " of " + std::to_string(piece.bytes) + " bytes has address 0");
    }
    if (piece.bytes > std::numeric_limits<uint64_t>::max() - bytes) {
      return InvalidArgument("object " + KeyText(item.key) + ": its pieces are over 2^64 bytes");
    }
    bytes += piece.bytes;
  }
  if (bytes == 0) {
    return InvalidArgument("object " + KeyText(item.key) + ": expected at least 1 byte, got 0");
  }
  return bytes;
}

uint64_t ChecksumOf(const PutItem& item) {
  if (item.pieces.size() == 1) return Xxh3Of(item.pieces[0].address, item.pieces[0].bytes);
  Xxh3 hash;
  for (const ConstPiece& piece : item.pieces) hash.Update(piece.address, piece.bytes);
  return hash.Value();
}

// One put: what one PutStart named.
class Put {
 public:
  // An entry of it: which of the caller's, and what becomes of it.
  struct Entry {
    const PutItem* item = nullptr;
    uint64_t bytes = 0;
    PutResult* result = nullptr;
    uint64_t object_id = 0;  // 0: nothing is being written
  };

  Put(ObjectSession& session, const PutOptions& options, std::vector<Entry> entries)
      : session_(session), options_(options), entries_(std::move(entries)) {}

  void Run() {
    const PutKeeper::Hold hold(session_.keeper);
    const Status started = Start();
    if (!started.ok()) return FailAll(started);
    WriteExtents(session_, fills_);
    for (size_t i = 0; i < fills_.size(); ++i) {
      PutResult& result = *entries_[fill_entries_[i]].result;
      if (fills_[i].status.ok() || !result.status.ok()) continue;
      result.status = fills_[i].status.WithContext("object " + KeyOf(fill_entries_[i]));
      result.of_transfer = true;
    }
    if (options_.all_or_nothing) FailTogether();
    End();
    Revoke();
  }

 private:
  std::string KeyOf(size_t entry) const { return KeyText(entries_[entry].item->key); }

  void FailAll(const Status& status) {
    for (Entry& entry : entries_) {
      if (entry.result->status.ok()) entry.result->status = status;
    }
  }

  Status Start() {
    v1::PutStartRequest request;
    request.set_client_id(session_.options.client_id);
    request.set_put_id(session_.next_put_id++);
    request.set_tenant_id(session_.options.tenant_id);
    const bool grouped = std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
      return !entry.item->group_id.empty();
    });
    for (const Entry& entry : entries_) {
      request.add_keys(entry.item->key.data(), entry.item->key.size());
      request.add_sizes(entry.bytes);
      if (grouped) request.add_group_ids(entry.item->group_id.data(), entry.item->group_id.size());
    }
    *request.mutable_config() = options_.config;
    request.set_upsert(options_.upsert);
    request.set_all_or_nothing(options_.all_or_nothing);
    request.set_no_eviction(options_.no_eviction);
    request.set_preferred_host_id(session_.options.host_id);
    MC_ASSIGN_OR_RETURN(start_,
                        session_.calls.Ask(&rpc::MasterApi::PutStart, request, session_.Limits()));
    if (start_.entries_size() != static_cast<int>(entries_.size())) {
      return Internal("PutStart: expected " + std::to_string(entries_.size()) + " entries, got " +
                      std::to_string(start_.entries_size()));
    }
    for (size_t i = 0; i < entries_.size(); ++i) Take(i);
    return OkStatus();
  }

  // Looks at the Master's answer to one entry.
  void Take(size_t i) {
    Entry& entry = entries_[i];
    v1::PutEntry& answer = *start_.mutable_entries(static_cast<int>(i));
    entry.result->status = rpc::StatusFromProto(answer.status()).WithContext("object " + KeyOf(i));
    entry.result->refusal = answer.refusal();
    if (!entry.result->status.ok()) return;
    entry.result->existed = answer.state() == v1::PUT_STATE_EXISTS;
    if (answer.state() != v1::PUT_STATE_WRITE) return;
    entry.object_id = answer.object_id();
    const Status planned = PlanFills(i, answer);
    if (!planned.ok()) entry.result->status = planned.WithContext("object " + KeyOf(i));
  }

  Status PlanFills(size_t i, v1::PutEntry& answer) {
    const Entry& entry = entries_[i];
    if (answer.permits_size() == 0) return Internal("the Master gave it no extent");
    std::optional<uint64_t> xxh3;
    if (session_.options.checksum) xxh3 = ChecksumOf(*entry.item);
    for (v1::ExtentPermit& permit : *answer.mutable_permits()) {
      if (permit.bytes() != entry.bytes) {
        return Internal("expected an extent of " + std::to_string(entry.bytes) + " bytes, got " +
                        std::to_string(permit.bytes()));
      }
      const v1::NodeAddress* node = NodeOf(permit);
      if (node == nullptr) {
        return Internal("no address of node instance " + permit.instance_id());
      }
      fills_.push_back({.permit = std::move(permit),
                        .node = node,
                        .pieces = entry.item->pieces,
                        .last = true,
                        .xxh3 = xxh3,
                        .status = {}});
      fill_entries_.push_back(i);
    }
    return OkStatus();
  }

  const v1::NodeAddress* NodeOf(const v1::ExtentPermit& permit) {
    if (nodes_.empty()) {
      for (const v1::NodeAddress& node : start_.nodes()) nodes_[node.instance_id()] = &node;
    }
    const auto node = nodes_.find(permit.instance_id());
    return node == nodes_.end() ? nullptr : node->second;
  }

  // Nobody becomes readable without the others.
  void FailTogether() {
    const auto failed = std::find_if(entries_.begin(), entries_.end(),
                                     [](const Entry& entry) { return !entry.result->status.ok(); });
    if (failed == entries_.end()) return;
    const Status why = failed->result->status.WithContext("put together with another");
    for (Entry& entry : entries_) {
      if (!entry.result->status.ok()) continue;
      entry.result->status = why;
      entry.result->of_transfer = failed->result->of_transfer;
      entry.result->refusal = failed->result->refusal;
    }
  }

  void End() {
    std::vector<Entry*> whole;
    v1::PutEndRequest request;
    request.set_client_id(session_.options.client_id);
    request.set_tenant_id(session_.options.tenant_id);
    request.set_relaxed(options_.relaxed);
    request.set_all_or_nothing(options_.all_or_nothing);
    for (Entry& entry : entries_) {
      if (entry.object_id == 0 || !entry.result->status.ok()) continue;
      request.add_object_ids(entry.object_id);
      whole.push_back(&entry);
    }
    if (whole.empty()) return;
    const Result<v1::PutEndReply> reply =
        session_.calls.Ask(&rpc::MasterApi::PutEnd, request, session_.Limits());
    Status all = reply.status();
    if (all.ok() && reply->results_size() != static_cast<int>(whole.size())) {
      all = Internal("PutEnd: expected " + std::to_string(whole.size()) + " results, got " +
                     std::to_string(reply->results_size()));
    }
    // A Master that cannot be reached would not hear of a revocation either.
    const bool lost = all.code() == Code::kUnavailable || all.code() == Code::kOutcomeUnknown;
    for (size_t i = 0; i < whole.size(); ++i) {
      if (lost) whole[i]->object_id = 0;
      const Status status =
          all.ok() ? rpc::StatusFromProto(reply->results(static_cast<int>(i))) : all;
      whole[i]->result->status =
          status.WithContext("object " + KeyText(whole[i]->item->key) + ": its put was not ended");
    }
  }

  // Gives back what will not be ended. What cannot be told now, the Master finds out when this
  // client has been silent about it.
  void Revoke() {
    v1::PutRevokeRequest request;
    request.set_client_id(session_.options.client_id);
    request.set_tenant_id(session_.options.tenant_id);
    for (const Entry& entry : entries_) {
      if (entry.object_id != 0 && !entry.result->status.ok()) {
        request.add_object_ids(entry.object_id);
      }
    }
    if (request.object_ids_size() == 0) return;
    const Result<v1::PutRevokeReply> reply =
        session_.calls.Ask(&rpc::MasterApi::PutRevoke, request, session_.Limits());
    if (!reply.ok()) {
      Log().warn("client {}: revoking {} puts: {}", session_.options.client_id,
                 request.object_ids_size(), reply.status().ToString());
    }
  }

  ObjectSession& session_;
  const PutOptions& options_;
  std::vector<Entry> entries_;
  v1::PutStartReply start_;
  std::map<std::string, const v1::NodeAddress*> nodes_;  // of start_, by instance
  std::vector<ExtentFill> fills_;
  std::vector<size_t> fill_entries_;  // whose each fill is
};

// Of entries in a row, the first whose key an earlier one has: it is put after that one, as if the
// two had been put one by one.
size_t FirstRepeated(std::span<const Put::Entry> entries) {
  std::unordered_set<std::string_view> seen;
  seen.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!seen.insert(entries[i].item->key).second) return i;
  }
  return entries.size();
}

}  // namespace

std::vector<PutResult> PutObjects(ObjectSession& session, std::span<const PutItem> items,
                                  const PutOptions& options) {
  std::vector<PutResult> results(items.size());
  std::vector<Put::Entry> entries;
  Status refused;
  const std::vector<Status> usable = CheckPieces(session.memory, items, /*write=*/false);
  for (size_t i = 0; i < items.size(); ++i) {
    const Result<uint64_t> bytes = PayloadBytes(items[i]);
    results[i].status = bytes.status();
    if (bytes.ok()) results[i].status = usable[i].WithContext("object " + KeyText(items[i].key));
    if (results[i].status.ok()) {
      entries.push_back({&items[i], *bytes, &results[i]});
    } else if (refused.ok()) {
      refused = results[i].status;
    }
  }
  if (options.all_or_nothing && !refused.ok()) {
    for (const Put::Entry& entry : entries) {
      entry.result->status = refused.WithContext("put together with another");
    }
    return results;
  }
  for (size_t begin = 0; begin < entries.size();) {
    size_t end = options.all_or_nothing ? entries.size()
                                        : EndOfRequest(begin, entries.size(), [&entries](size_t i) {
                                            return entries[i].item->key.size();
                                          });
    const size_t repeated = FirstRepeated({entries.data() + begin, end - begin});
    if (begin + repeated < end && options.all_or_nothing) {
      const Status twice =
          InvalidArgument("key " + KeyText(entries[repeated].item->key) + " is named twice");
      for (const Put::Entry& entry : entries) entry.result->status = twice;
      return results;
    }
    end = std::min(end, begin + repeated);
    Put(session, options, {entries.begin() + begin, entries.begin() + end}).Run();
    begin = end;
  }
  return results;
}

}  // namespace mooncake::client
