// Ordinary objects as a program sees them: put, get, look, remove by key, one or many at once.
//
// Every call takes a batch and answers per entry, in its order; entries are independent unless
// PutOptions::all_or_nothing. A put has two phases (proto/mooncake/v1/master.proto, "ordinary
// objects"): nothing is readable before all its replicas are whole, and a put that fails midway is
// revoked. Bytes go from the caller's memory straight into the slabs of the nodes, and from there
// straight into the caller's buffers.
//
// Owns: the number of its puts, a thread that keeps unfinished puts alive, channels to nodes, and
// mappings of slabs on this host. Failures are Status values; a request is repeated while the
// Master or a node cannot be reached, for at most `retry_ms`. Threads: every method from any
// thread. The caller's buffers are read (put) or written (get) until the call returns and never
// after.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "mooncake/v1/master.pb.h"

namespace mooncake::rpc {
class MasterApi;
class NodeConnector;
}  // namespace mooncake::rpc

namespace mooncake::client {

struct ObjectClientOptions {
  std::string tenant_id = "default";
  std::string client_id;  // 32 hex characters; empty: random
  std::string host_id;    // whose nodes are preferred; empty: this host
  int64_t retry_ms = 15'000;
  // Bytes of one request to a node that carries payload over a socket.
  uint64_t chunk_bytes = uint64_t{4} << 20;
  // Whether a put's XXH3-64 is kept, and checked by whole reads.
  bool checksum = true;
  int threads = 0;  // for copies, at most kObjectThreadsMax; 0: one per processor, at most 8
  // Same-host nodes read puts from this process's memory, and this process maps their slabs. false:
  // everything goes over the socket (tests, and where the kernel forbids it).
  bool share_memory = true;
};

inline constexpr int kObjectThreadsMax = 1024;
inline constexpr uint64_t kChunkBytesMax = uint64_t{64} << 20;

// INVALID_ARGUMENT with the field and its value.
Status Validate(const ObjectClientOptions& options);

struct ConstPiece {
  const void* address = nullptr;
  uint64_t bytes = 0;
};
struct Piece {
  void* address = nullptr;
  uint64_t bytes = 0;
};

struct PutItem {
  std::string_view key;            // any bytes, not empty
  std::vector<ConstPiece> pieces;  // concatenated they are the payload; at least one byte in all
  std::string_view group_id = {};  // empty: none
};
struct PutOptions {
  v1::ObjectConfig config;
  bool upsert = false;
  bool all_or_nothing = false;
  bool no_eviction = false;  // no room is refused at once
  bool relaxed = false;      // acknowledged before the Master's log is flushed
};
struct PutResult {
  Status status;
  bool existed = false;  // OK, and nothing was changed: the key has an object or another writer
  // `status` is of moving bytes to a node, and not the Master's answer.
  bool of_transfer = false;
  v1::PutRefusal refusal = v1::PUT_REFUSAL_UNSPECIFIED;
};

// An object whose payload comes in parts (ObjectClient::StartPuts).
struct OpenItem {
  std::string_view key;
  uint64_t bytes = 0;              // of the whole payload, at least 1
  std::string_view group_id = {};  // empty: none
};
struct PutPart {
  uint64_t at = 0;  // in the payload
  ConstPiece source;
};
struct PartsItem {
  std::string_view key;
  std::vector<PutPart> parts;  // of no byte twice, not over several calls either
};

struct GetItem {
  std::string_view key;
  std::vector<Piece> pieces;  // filled in order
  // The pieces must add up to exactly the object's size; else they may be larger, and their tail is
  // left alone. Smaller is INVALID_ARGUMENT either way, and nothing is written.
  bool exact = false;
};
// A part of an object into memory; of many objects at once.
struct RangeItem {
  std::string_view key;
  uint64_t from = 0;  // in the object
  Piece target;
  uint64_t object_id = 0;  // not 0: of this object alone; LEASE_EXPIRED when the key has another
};

struct ReadResult {
  Status status;
  // Of the object; of GetRanges: what was read. Also of an object that the pieces do not fit.
  uint64_t bytes = 0;
  bool of_transfer = false;  // `status` is of moving bytes from nodes
};

struct ReadableObject {
  uint64_t object_id = 0;
  uint64_t bytes = 0;
  std::vector<v1::SlabExtent> replicas;
  uint64_t lease_ms = 0;  // with `renew`: how long it is protected, from when it was asked for
};

class ObjectClient {
 public:
  // `options` are valid.
  ObjectClient(std::shared_ptr<rpc::MasterApi> master,
               std::shared_ptr<rpc::NodeConnector> connector, ObjectClientOptions options = {});
  ~ObjectClient();
  ObjectClient(const ObjectClient&) = delete;
  ObjectClient& operator=(const ObjectClient&) = delete;

  // A key that is named twice is put twice, in order; not with all_or_nothing (INVALID_ARGUMENT).
  std::vector<PutResult> Put(std::span<const PutItem> items, const PutOptions& options = {});

  // Puts whose payloads come in parts, over several calls; of the options all_or_nothing has no
  // meaning. `existed`: OK, and there is no session. INVALID_ARGUMENT: the key has an open session
  // of this client. What is not written when the put ends is zeros; no checksum is kept.
  std::vector<PutResult> StartPuts(std::span<const OpenItem> items, const PutOptions& options = {});
  // INVALID_ARGUMENT: no session, or being ended; a part outside the payload, or over an earlier
  // one; nothing of that item was written. After any other failure the put can only be revoked.
  std::vector<PutResult> WriteParts(std::span<const PartsItem> items);
  // Makes them readable. Waits for parts that are being written. After a failure the session is
  // still open: EndPuts may be repeated, parts are not taken. INVALID_ARGUMENT: no session.
  std::vector<PutResult> EndPuts(std::span<const std::string_view> keys);
  std::vector<Status> RevokePuts(std::span<const std::string_view> keys);

  // NOT_FOUND; NOT_READY: being written; INVALID_ARGUMENT: the pieces do not fit; UNAVAILABLE: no
  // replica can be reached; CORRUPT: the checksum differs in every replica; LEASE_EXPIRED: the
  // object went while it was read. What was written then is of no use. An object that was replaced
  // meanwhile is read once more.
  std::vector<ReadResult> Get(std::span<const GetItem> items);
  // As Get, with memory that `allocate` gives once the size is known (null: EXHAUSTED). It is asked
  // again, on the caller's thread too, for an object that was replaced while it was read. For
  // callers that do not know sizes.
  using Allocate = std::function<void*(size_t item, uint64_t bytes)>;
  std::vector<ReadResult> GetSized(std::span<const std::string_view> keys,
                                   const Allocate& allocate);
  // Checksums are not looked at. INVALID_ARGUMENT: beyond the object's end.
  std::vector<ReadResult> GetRanges(std::span<const RangeItem> items);

  // Whether it is readable now. `renew`: what is found is protected from eviction and removal for
  // the Master's lease time; without it nothing changes.
  std::vector<Result<bool>> Exists(std::span<const std::string_view> keys, bool renew = false);
  std::vector<Result<uint64_t>> Sizes(std::span<const std::string_view> keys, bool renew = false);
  std::vector<Result<ReadableObject>> Locate(std::span<const std::string_view> keys, bool renew);
  std::vector<Result<v1::ObjectInfo>> Describe(std::span<const std::string_view> keys);

  // NOT_FOUND; BUSY: a lease protects it (not with `force`), or it is part of a weight revision
  // (always); NOT_READY: being written.
  std::vector<Status> Remove(std::span<const std::string_view> keys, bool force = false);
  struct RemovedMany {
    uint64_t removed = 0;
    uint64_t skipped = 0;  // leased, being written
  };
  // ECMAScript, found anywhere in the key. INVALID_ARGUMENT: the pattern. The keys are matched
  // here, page by page, so that a costly pattern is its caller's cost.
  Result<RemovedMany> RemoveByRegex(std::string_view pattern, bool force = false);
  Result<RemovedMany> RemoveAll(bool force = false);

  // Every object of the tenant whose key begins so, sorted by key. `visit` returns false to stop.
  Status List(std::string_view prefix, const std::function<bool(const v1::ObjectInfo&)>& visit);

  // Quotas and counts of the caller's own tenant, of every tenant for an operator.
  Result<std::vector<v1::TenantStatus>> Tenants();
  // An operator's. 0 in the quota: no limit.
  Status SetTenant(const v1::TenantQuota& quota);
  // BUSY: it has objects.
  Status RemoveTenant(const std::string& tenant_id);

  const std::string& client_id() const;

 private:
  class Body;
  std::unique_ptr<Body> body_;
};

}  // namespace mooncake::client
