#include "client/put_sessions.h"

#include <algorithm>
#include <utility>

#include "client/extent_writer.h"

namespace mooncake::client {
namespace {

Status NoSession(std::string_view key) {
  return InvalidArgument("object " + KeyText(key) + ": it has no open put session");
}

std::string Text(const PutPart& part) {
  return "[" + std::to_string(part.at) + ", +" + std::to_string(part.source.bytes) + ")";
}

using Ranges = std::map<uint64_t, uint64_t>;  // begin -> end, never overlapping

bool Meets(const Ranges& ranges, uint64_t begin, uint64_t end) {
  const auto after = ranges.lower_bound(end);
  return after != ranges.begin() && std::prev(after)->second > begin;
}

// Adds the parts to those that were written; INVALID_ARGUMENT for one that is not to be.
Status AddParts(const PartsItem& item, uint64_t bytes, Ranges* written) {
  const auto refuse = [&item](const PutPart& part, const std::string& why) {
    return InvalidArgument("object " + KeyText(item.key) + ": the part " + Text(part) + why);
  };
  Ranges added;
  for (const PutPart& part : item.parts) {
    if (part.at > bytes || part.source.bytes > bytes - part.at) {
      return refuse(part, " leaves its " + std::to_string(bytes) + " bytes");
    }
    if (part.source.bytes == 0) continue;
    const uint64_t end = part.at + part.source.bytes;
    if (Meets(*written, part.at, end) || Meets(added, part.at, end)) {
      return refuse(part, " overlaps one that was written");
    }
    added.emplace(part.at, end);
  }
  written->merge(added);
  return OkStatus();
}

}  // namespace

struct PutSessions::Open {
  Open(std::string of, PutKeeper& keeper) : key(std::move(of)), hold(keeper) {}

  const std::string key;
  const PutKeeper::Hold hold;
  // Set before anybody finds it `ready`.
  uint64_t bytes = 0;
  uint64_t object_id = 0;
  PutOptions options;
  std::vector<PutReplica> replicas;

  // Guarded by PutSessions::mutex_.
  bool ready = false;    // its PutStart was answered
  bool closing = false;  // somebody ends or revokes it
  bool whole = false;    // nodes may have heard so: no more parts
  int writers = 0;       // calls that write parts
  Ranges written;        // the parts
  Status failed;         // the first part that was not written
};

PutSessions::~PutSessions() {
  std::vector<uint64_t> ids;
  for (const auto& [key, open] : open_) ids.push_back(open->object_id);
  if (!ids.empty()) (void)RevokePuts(session_, ids, CallLimits{});
}

// ---- start ----

std::vector<PutResult> PutSessions::Start(std::span<const OpenItem> items,
                                          const PutOptions& options) {
  std::vector<PutResult> results(items.size());
  for (size_t begin = 0; begin < items.size();) {
    const size_t end =
        EndOfRequest(begin, items.size(), [&items](size_t i) { return items[i].key.size(); });
    StartSome(items.subspan(begin, end - begin), options,
              std::span(results).subspan(begin, end - begin));
    begin = end;
  }
  return results;
}

void PutSessions::StartSome(std::span<const OpenItem> items, const PutOptions& options,
                            std::span<PutResult> results) {
  std::vector<PutName> names;
  std::vector<OpenPtr> opened;
  std::vector<size_t> owners;
  for (size_t i = 0; i < items.size(); ++i) {
    const OpenItem& item = items[i];
    if (item.key.empty()) {
      results[i].status = InvalidArgument("the key of an object must not be empty");
    } else if (item.bytes == 0) {
      results[i].status =
          InvalidArgument("object " + KeyText(item.key) + ": expected at least 1 byte, got 0");
    } else if (OpenPtr open = Reserve(item.key); open == nullptr) {
      results[i].status =
          InvalidArgument("object " + KeyText(item.key) + ": it has an open put session");
    } else {
      names.push_back({item.key, item.bytes, item.group_id});
      opened.push_back(std::move(open));
      owners.push_back(i);
    }
  }
  if (names.empty()) return;
  std::vector<StartedPut> started = StartPuts(session_, names, options);
  std::vector<OpenPtr> gone;
  std::vector<uint64_t> unusable;
  for (size_t k = 0; k < started.size(); ++k) {
    StartedPut& put = started[k];
    results[owners[k]] = put.result;
    if (put.replicas.empty()) {
      if (put.object_id != 0) unusable.push_back(put.object_id);
      gone.push_back(opened[k]);
      continue;
    }
    Open& open = *opened[k];
    const Lock lock(mutex_);
    open.bytes = names[k].bytes;
    open.object_id = put.object_id;
    open.options = options;
    open.replicas = std::move(put.replicas);
    open.ready = true;
  }
  (void)RevokePuts(session_, unusable, session_.Limits());
  Forget(gone);
}

PutSessions::OpenPtr PutSessions::Reserve(std::string_view key) {
  const Lock lock(mutex_);
  if (open_.contains(key)) return nullptr;
  auto open = std::make_shared<Open>(std::string(key), session_.keeper);
  open_.emplace(open->key, open);
  return open;
}

void PutSessions::Forget(const std::vector<OpenPtr>& gone) {
  const Lock lock(mutex_);
  for (const OpenPtr& open : gone) open_.erase(open->key);
}

// ---- parts ----

PutSessions::OpenPtr PutSessions::Enter(const PartsItem& item, PutResult* refused) {
  const Lock lock(mutex_);
  const auto found = open_.find(item.key);
  if (found == open_.end() || !found->second->ready || found->second->closing) {
    refused->status = NoSession(item.key);
    return nullptr;
  }
  Open& open = *found->second;
  if (!open.failed.ok()) {
    refused->status = open.failed;
    refused->of_transfer = true;
    return nullptr;
  }
  refused->status = open.whole
                        ? InvalidArgument("object " + KeyText(item.key) + ": it is being ended")
                        : AddParts(item, open.bytes, &open.written);
  if (!refused->status.ok()) return nullptr;
  ++open.writers;
  return found->second;
}

std::vector<PutResult> PutSessions::Write(std::span<const PartsItem> items) {
  std::vector<PutResult> results(items.size());
  // One piece of memory each, for CheckPieces and for the fills.
  struct Sources {
    std::vector<ConstPiece> pieces;
  };
  std::vector<Sources> sources(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    for (const PutPart& part : items[i].parts) sources[i].pieces.push_back(part.source);
  }
  const std::vector<Status> usable =
      CheckPieces(session_.memory, std::span<const Sources>(sources), /*write=*/false);
  std::vector<OpenPtr> entered(items.size());
  std::vector<ExtentFill> fills;
  std::vector<size_t> owners;
  for (size_t i = 0; i < items.size(); ++i) {
    results[i].status = usable[i].WithContext("object " + KeyText(items[i].key));
    if (!usable[i].ok()) continue;
    entered[i] = Enter(items[i], &results[i]);
    if (entered[i] == nullptr) continue;
    for (size_t k = 0; k < items[i].parts.size(); ++k) {
      if (items[i].parts[k].source.bytes == 0) continue;
      for (const PutReplica& replica : entered[i]->replicas) {
        fills.push_back({.permit = replica.permit,
                         .node = replica.node.get(),
                         .at = items[i].parts[k].at,
                         .pieces = {&sources[i].pieces[k], 1},
                         .last = false,
                         .xxh3 = {},
                         .status = {}});
        owners.push_back(i);
      }
    }
  }
  WriteExtents(session_, fills);
  for (size_t f = 0; f < fills.size(); ++f) {
    PutResult& result = results[owners[f]];
    if (fills[f].status.ok() || !result.status.ok()) continue;
    result.status = fills[f].status.WithContext("object " + KeyText(items[owners[f]].key));
    result.of_transfer = true;
  }
  const Lock lock(mutex_);
  for (size_t i = 0; i < items.size(); ++i) {
    if (entered[i] == nullptr) continue;
    --entered[i]->writers;
    if (entered[i]->failed.ok()) entered[i]->failed = results[i].status;
  }
  changed_.notify_all();
  return results;
}

// ---- end and revoke ----

Result<PutSessions::OpenPtr> PutSessions::Close(std::string_view key) {
  Lock lock(mutex_);
  const auto found = open_.find(key);
  if (found == open_.end() || !found->second->ready || found->second->closing) {
    return NoSession(key);
  }
  OpenPtr open = found->second;
  open->closing = true;
  while (open->writers > 0) changed_.wait(lock);
  return open;
}

std::vector<PutResult> PutSessions::End(std::span<const std::string_view> keys) {
  std::vector<PutResult> results(keys.size());
  std::vector<OpenPtr> closed;
  std::vector<OpenPtr> ending;
  std::vector<PutResult*> answers;
  for (size_t i = 0; i < keys.size(); ++i) {
    Result<OpenPtr> open = Close(keys[i]);
    results[i].status = open.status();
    if (!open.ok()) continue;
    closed.push_back(*open);
    const Lock lock(mutex_);
    results[i].status = (*open)->failed;
    results[i].of_transfer = !(*open)->failed.ok();
    if (!(*open)->failed.ok()) continue;
    (*open)->whole = true;
    ending.push_back(*std::move(open));
    answers.push_back(&results[i]);
  }
  FinishExtents(ending, answers);
  // Starts may have had different options; there is one PutEnd for each kind, seldom more than one.
  std::vector<OpenPtr> ended;
  for (const bool relaxed : {true, false}) {
    std::vector<uint64_t> ids;
    std::vector<size_t> which;
    for (size_t k = 0; k < ending.size(); ++k) {
      if (!answers[k]->status.ok() || ending[k]->options.relaxed != relaxed) continue;
      ids.push_back(ending[k]->object_id);
      which.push_back(k);
    }
    if (ids.empty()) continue;
    PutOptions options;
    options.relaxed = relaxed;
    const EndedPuts answered = EndPuts(session_, ids, options);
    for (size_t n = 0; n < which.size(); ++n) {
      const OpenPtr& open = ending[which[n]];
      answers[which[n]]->status = answered.statuses[n].WithContext("object " + KeyText(open->key) +
                                                                   ": its put was not ended");
      if (answered.statuses[n].ok()) ended.push_back(open);
    }
  }
  Forget(ended);
  const Lock lock(mutex_);
  for (const OpenPtr& open : closed) open->closing = false;
  return results;
}

void PutSessions::FinishExtents(std::span<const OpenPtr> ending, std::span<PutResult*> results) {
  std::vector<ExtentFill> fills;
  std::vector<size_t> owners;
  for (size_t k = 0; k < ending.size(); ++k) {
    for (const PutReplica& replica : ending[k]->replicas) {
      fills.push_back({.permit = replica.permit,
                       .node = replica.node.get(),
                       .pieces = {},
                       .last = true,
                       .xxh3 = {},
                       .zero_rest = true,
                       .status = {}});
      owners.push_back(k);
    }
  }
  WriteExtents(session_, fills);
  for (size_t f = 0; f < fills.size(); ++f) {
    PutResult& result = *results[owners[f]];
    if (fills[f].status.ok() || !result.status.ok()) continue;
    result.status = fills[f].status.WithContext("object " + KeyText(ending[owners[f]]->key));
    result.of_transfer = true;
  }
}

std::vector<Status> PutSessions::Revoke(std::span<const std::string_view> keys) {
  std::vector<Status> statuses(keys.size());
  std::vector<OpenPtr> closed;
  std::vector<uint64_t> ids;
  std::vector<size_t> which;
  for (size_t i = 0; i < keys.size(); ++i) {
    Result<OpenPtr> open = Close(keys[i]);
    statuses[i] = open.status();
    if (!open.ok()) continue;
    ids.push_back((*open)->object_id);
    which.push_back(i);
    closed.push_back(*std::move(open));
  }
  const Status revoked = RevokePuts(session_, ids, session_.Limits());
  for (const size_t i : which) statuses[i] = revoked;
  if (revoked.ok()) {
    Forget(closed);
    return statuses;
  }
  const Lock lock(mutex_);
  for (const OpenPtr& open : closed) open->closing = false;
  return statuses;
}

}  // namespace mooncake::client
