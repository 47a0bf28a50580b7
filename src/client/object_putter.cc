#include "client/object_putter.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/digest.h"
#include "client/extent_writer.h"
#include "client/put_calls.h"

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
    Start();
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

  void Start() {
    std::vector<PutName> names;
    names.reserve(entries_.size());
    for (const Entry& entry : entries_) {
      names.push_back({entry.item->key, entry.bytes, entry.item->group_id});
    }
    started_ = StartPuts(session_, names, options_);
    for (size_t i = 0; i < entries_.size(); ++i) {
      *entries_[i].result = started_[i].result;
      entries_[i].object_id = started_[i].object_id;
      PlanFills(i);
    }
  }

  void PlanFills(size_t i) {
    const Entry& entry = entries_[i];
    std::vector<PutReplica>& replicas = started_[i].replicas;
    std::optional<uint64_t> xxh3;
    if (session_.options.checksum && !replicas.empty()) xxh3 = ChecksumOf(*entry.item);
    for (PutReplica& replica : replicas) {
      fills_.push_back({.permit = std::move(replica.permit),
                        .node = replica.node.get(),
                        .pieces = entry.item->pieces,
                        .last = true,
                        .xxh3 = xxh3,
                        .status = {}});
      fill_entries_.push_back(i);
    }
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
    std::vector<uint64_t> ids;
    for (Entry& entry : entries_) {
      if (entry.object_id == 0 || !entry.result->status.ok()) continue;
      ids.push_back(entry.object_id);
      whole.push_back(&entry);
    }
    if (whole.empty()) return;
    const EndedPuts ended = EndPuts(session_, ids, options_);
    for (size_t i = 0; i < whole.size(); ++i) {
      // A Master that cannot be reached would not hear of a revocation either.
      if (ended.lost) whole[i]->object_id = 0;
      whole[i]->result->status = ended.statuses[i].WithContext(
          "object " + KeyText(whole[i]->item->key) + ": its put was not ended");
    }
  }

  void Revoke() {
    std::vector<uint64_t> ids;
    for (const Entry& entry : entries_) {
      if (entry.object_id != 0 && !entry.result->status.ok()) ids.push_back(entry.object_id);
    }
    // That it failed is logged; what the put's caller is told is why it was revoked.
    (void)RevokePuts(session_, ids, session_.Limits());
  }

  ObjectSession& session_;
  const PutOptions& options_;
  std::vector<Entry> entries_;
  std::vector<StartedPut> started_;
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
