#include "weights/deadlines.h"

#include <algorithm>
#include <variant>

namespace mooncake::weights {
namespace {

// TTLs are at most kTtlMsMax when decided; a hostile log may say more.
int64_t After(int64_t now_ms, uint64_t ttl_ms) {
  const auto room = static_cast<uint64_t>(INT64_MAX - std::max<int64_t>(now_ms, 0));
  return now_ms + static_cast<int64_t>(std::min(ttl_ms, room));
}

// Of a claimer since this Master began to serve; far enough from the ends to be subtracted.
constexpr int64_t kNotHeard = INT64_MIN / 2;

bool IsUnfinishedWriter(const Revision& revision, std::string_view client_id) {
  return std::any_of(revision.participants.begin(), revision.participants.end(),
                     [&](const Participant& participant) {
                       return participant.state == model::ParticipantState::kClaimed &&
                              participant.client_id == client_id;
                     });
}

}  // namespace

void Deadlines::SetLease(LeaseId id, int64_t deadline_ms) {
  ForgetLease(id);
  lease_deadline_[id] = deadline_ms;
  leases_by_deadline_.emplace(deadline_ms, id);
}

void Deadlines::ForgetLease(LeaseId id) {
  const auto it = lease_deadline_.find(id);
  if (it == lease_deadline_.end()) return;
  leases_by_deadline_.erase({it->second, id});
  lease_deadline_.erase(it);
}

void Deadlines::Reorder(ImportId id, Session& session) {
  sessions_by_deadline_.erase({session.earliest_ms, id});
  session.earliest_ms = session.deadline_ms;
  for (const auto& [client, writer] : session.writers) {
    session.earliest_ms = std::min(session.earliest_ms, writer.deadline_ms);
  }
  sessions_by_deadline_.emplace(session.earliest_ms, id);
}

void Deadlines::ForgetSession(ImportId id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  sessions_by_deadline_.erase({it->second.earliest_ms, id});
  sessions_.erase(it);
}

void Deadlines::Restart(const Catalog& catalog, int64_t now_ms) {
  *this = Deadlines();
  for (const auto& [id, lease] : catalog.leases()) SetLease(id, After(now_ms, lease.ttl_ms));
  for (const ImportId id : catalog.open_imports()) {
    const Revision& revision = *catalog.FindImport(id);
    Session& session = sessions_[id];
    session.ttl_ms = revision.ttl_ms;
    session.deadline_ms = After(now_ms, revision.ttl_ms);
    for (const Participant& participant : revision.participants) {
      if (participant.client_id.empty()) continue;
      const int64_t deadline = After(now_ms, participant.ttl_ms);
      session.deadline_ms = std::max(session.deadline_ms, deadline);
      session.heard_ms[participant.client_id] = kNotHeard;
      if (participant.state != model::ParticipantState::kClaimed) continue;
      session.writers[participant.client_id] = {deadline, participant.ttl_ms};
    }
    Reorder(id, session);
  }
}

void Deadlines::Observe(const Catalog& catalog, const Event& event, int64_t now_ms) {
  if (const auto* begun = std::get_if<ImportBegun>(&event)) {
    Session& session = sessions_[begun->import_id];
    session.ttl_ms = begun->ttl_ms;
    session.deadline_ms = After(now_ms, begun->ttl_ms);
    Reorder(begun->import_id, session);
  } else if (const auto* claimed = std::get_if<Claimed>(&event)) {
    Session& session = sessions_[claimed->import_id];
    const int64_t deadline = After(now_ms, claimed->ttl_ms);
    session.writers[claimed->client_id] = {deadline, claimed->ttl_ms};
    session.heard_ms[claimed->client_id] = now_ms;
    session.deadline_ms = std::max(session.deadline_ms, deadline);
    Reorder(claimed->import_id, session);
  } else if (const auto* receipt = std::get_if<ReceiptAccepted>(&event)) {
    const auto it = sessions_.find(receipt->import_id);
    const Revision* revision = catalog.FindImport(receipt->import_id);
    if (it == sessions_.end() || revision == nullptr) return;
    Session& session = it->second;
    const std::string& client_id = revision->participants[receipt->participant].client_id;
    if (!IsUnfinishedWriter(*revision, client_id)) session.writers.erase(client_id);
    session.deadline_ms = std::max(session.deadline_ms, After(now_ms, session.ttl_ms));
    Reorder(receipt->import_id, session);
  } else if (const auto* committed = std::get_if<Committed>(&event)) {
    ForgetSession(committed->import_id);
  } else if (const auto* aborted = std::get_if<Aborted>(&event)) {
    ForgetSession(aborted->import_id);
  } else if (const auto* acquired = std::get_if<LeaseAcquired>(&event)) {
    SetLease(acquired->lease_id, After(now_ms, acquired->ttl_ms));
  } else if (const auto* ended = std::get_if<LeasesEnded>(&event)) {
    for (const LeaseId id : ended->lease_ids) ForgetLease(id);
  }
}

Status Deadlines::KeepImport(const Catalog& catalog, ImportId id, std::string_view client_id,
                             int64_t now_ms) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end() || !catalog.open_imports().contains(id)) {
    return NotFound("import " + std::to_string(id.value) + " is not open");
  }
  Session& session = it->second;
  if (now_ms >= session.earliest_ms) {
    return LeaseExpired("import " + std::to_string(id.value) + " was not renewed in time");
  }
  uint64_t ttl_ms = session.ttl_ms;
  const auto writer = session.writers.find(client_id);
  if (writer != session.writers.end()) {
    writer->second.deadline_ms = After(now_ms, writer->second.ttl_ms);
    ttl_ms = std::max(ttl_ms, writer->second.ttl_ms);
  }
  session.deadline_ms = std::max(session.deadline_ms, After(now_ms, ttl_ms));
  const auto heard = session.heard_ms.find(client_id);
  if (heard != session.heard_ms.end()) heard->second = now_ms;
  Reorder(id, session);
  return OkStatus();
}

std::optional<int64_t> Deadlines::SilentMs(ImportId id, std::string_view client_id,
                                           int64_t now_ms) const {
  const auto session = sessions_.find(id);
  if (session == sessions_.end()) return std::nullopt;
  const auto heard = session->second.heard_ms.find(client_id);
  if (heard == session->second.heard_ms.end()) return std::nullopt;
  return std::max<int64_t>(now_ms - heard->second, 0);
}

Status Deadlines::CheckLease(const Catalog& catalog, LeaseId id, int64_t now_ms) const {
  MC_RETURN_IF_ERROR(catalog.GetLease(id).status());
  const auto it = lease_deadline_.find(id);
  MC_CHECK(it != lease_deadline_.end());
  if (now_ms < it->second) return OkStatus();
  return LeaseExpired("lease " + std::to_string(id.value) + " ran out " +
                      std::to_string(now_ms - it->second) + " ms ago");
}

Status Deadlines::RenewLease(const Catalog& catalog, LeaseId id, int64_t now_ms) {
  MC_RETURN_IF_ERROR(CheckLease(catalog, id, now_ms));
  SetLease(id, After(now_ms, catalog.FindLease(id)->ttl_ms));
  return OkStatus();
}

std::vector<LeaseId> Deadlines::ExpiredLeases(int64_t now_ms, size_t max) const {
  std::vector<LeaseId> expired;
  for (const auto& [deadline, id] : leases_by_deadline_) {
    if (deadline > now_ms || expired.size() == max) break;
    expired.push_back(id);
  }
  return expired;
}

std::vector<Deadlines::ExpiredImport> Deadlines::ExpiredImports(int64_t now_ms, size_t max) const {
  std::vector<ExpiredImport> expired;
  for (const auto& [deadline, id] : sessions_by_deadline_) {
    if (deadline > now_ms || expired.size() == max) break;
    const Session& session = sessions_.at(id);
    ExpiredImport one{
        id, "", "none of its clients renewed it for " + std::to_string(session.ttl_ms) + " ms"};
    for (const auto& [client, writer] : session.writers) {
      if (writer.deadline_ms != deadline) continue;
      one.client_id = client;
      one.reason =
          "its writer " + client + " did not renew for " + std::to_string(writer.ttl_ms) + " ms";
      break;
    }
    expired.push_back(std::move(one));
  }
  return expired;
}

}  // namespace mooncake::weights
