// Objects that are written part by part, over many calls: a put held open between them.
//
//   1. Start: PutStart reserves the object's extents, of the size it will have.
//   2. Write, any number of times and from any threads: parts of the payload go straight to the
//      nodes. A byte is written once: a part that overlaps an earlier one is refused, since a node
//      takes a piece that it has for the repetition of a lost request, and skips it.
//   3. End: the nodes are told that the payload is whole (what no part brought is zeros), and the
//      Master, which makes it readable. Or Revoke: nothing was.
// After a part that failed nobody knows what a node that was cut off may still do: that session can
// only be revoked. An end that failed may be repeated; parts are refused from its first try on,
// since nodes may have heard that the payload is whole.
//
// Owns the open sessions, by key: one a key, and while one is open this client says that it lives.
// Checksums are not kept. Threads: every method from any thread; what is open when the object goes
// is revoked, with one try.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/object_session.h"
#include "client/put_calls.h"

namespace mooncake::client {

class PutSessions {
 public:
  explicit PutSessions(ObjectSession& session) : session_(session) {}
  ~PutSessions();
  PutSessions(const PutSessions&) = delete;
  PutSessions& operator=(const PutSessions&) = delete;

  // As in ObjectClient, whose answers these are.
  std::vector<PutResult> Start(std::span<const OpenItem> items, const PutOptions& options);
  std::vector<PutResult> Write(std::span<const PartsItem> items);
  std::vector<PutResult> End(std::span<const std::string_view> keys);
  std::vector<Status> Revoke(std::span<const std::string_view> keys);

 private:
  struct Open;
  using OpenPtr = std::shared_ptr<Open>;
  using Lock = std::unique_lock<env::Mutex>;

  void StartSome(std::span<const OpenItem> items, const PutOptions& options,
                 std::span<PutResult> results);
  // Takes the place of one session; null: the key has one.
  OpenPtr Reserve(std::string_view key);
  void Forget(const std::vector<OpenPtr>& gone);
  // Enters the parts into the session: from here on they are written, once. Null: `refused` says
  // why.
  OpenPtr Enter(const PartsItem& item, PutResult* refused);
  // Whose parts are all written, and gets no more; others wait, or are told so.
  Result<OpenPtr> Close(std::string_view key);
  // The payloads are whole where they lie.
  void FinishExtents(std::span<const OpenPtr> ending, std::span<PutResult*> results);

  ObjectSession& session_;
  env::Mutex mutex_;      // guards what follows, and what is marked so in Open
  env::CondVar changed_;  // a session's last part was written
  std::map<std::string, OpenPtr, std::less<>> open_;
};

}  // namespace mooncake::client
