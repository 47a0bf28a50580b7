// One participant's half of a publish: its wanted fragments, copied into the store (or only
// fingerprinted), and the digests object that proves them.
//
// Each wanted fragment is put once; a large one is written in one fused copy-and-digest pass into
// its own object, small ones go into the participant's pack. Replicas of what others upload are
// only digested; what others have replicas of and lies in a pack is fingerprinted by itself, since
// the pack's blocks say nothing about one fragment. Threads: every method from any thread; Digests
// after the last Put.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "client/digests.h"
#include "client/pack_writer.h"
#include "client/session.h"
#include "client/write_arenas.h"
#include "reshard/upload_plan.h"

namespace mooncake::client {

class ParticipantWriter {
 public:
  // `participant`: index into the plan's participants. `arenas` null: somebody else hands in its
  // receipt, and only fingerprints are made.
  ParticipantWriter(const reshard::UploadPlan& plan, uint32_t participant, WriteArenas* arenas);

  const std::string& participant_id() const {
    return plan_.participants[participant_].participant_id;
  }
  uint32_t participant() const { return participant_; }
  bool hands_in() const { return arenas_ != nullptr; }
  // Fragment ids, sorted.
  std::vector<std::string> Wanted() const;

  // A fragment that is not wanted is checked and ignored. INVALID_ARGUMENT: not this participant's
  // fragment, wrong size or strides. CONFLICT: put before.
  Status Put(std::string_view placement_fragment_id, const FragmentSource& source,
             Session& session);

  // Tensor ids of wanted fragments that were not put, sorted.
  std::vector<std::string> Missing() const;
  uint64_t bytes_uploaded() const { return bytes_uploaded_.load(std::memory_order_relaxed); }
  // Only fingerprinted.
  uint64_t bytes_compared() const { return bytes_compared_.load(std::memory_order_relaxed); }

  // The digests object; everything wanted has been put.
  std::string Digests() const;

 private:
  enum SlotState : uint8_t { kMissing, kBusy, kDone };
  struct Object {
    uint32_t planned = 0;              // index into the plan's objects
    bool packed = false;               // several fragments; else one that is the whole object
    std::vector<BlockDigest> digests;  // of a whole one
    std::mutex opening;
    std::unique_ptr<PackWriter> pack;  // made under `opening`
    bool closed = false;               // under `opening`
  };
  struct Slot {
    const manifest::PlacementFragment* fragment = nullptr;
    Object* object = nullptr;  // null: a replica, which is only fingerprinted
    uint64_t offset = 0;       // in the object
    bool compared = false;     // a fingerprint of its own is handed in
    Sha256Digest fingerprint{};
    std::atomic<uint8_t> state{kMissing};
  };

  Slot& AddSlot(uint32_t fragment);
  Status Write(Slot& slot, const transfer::StridedSource& source, Session& session);
  Status Fingerprint(Slot& slot, const transfer::StridedSource& source, Session& session);
  Status WriteWhole(Object& object, const transfer::StridedSource& source, Session& session);
  Status WritePacked(Slot& slot, const transfer::StridedSource& source, Session& session);
  Result<PackWriter*> OpenPack(Object& object, Session& session);
  // Where the object is written; null when nothing is.
  Result<std::byte*> Target(const Object& object, Session& session);

  const reshard::UploadPlan& plan_;
  const uint32_t participant_;
  WriteArenas* const arenas_;
  std::vector<std::unique_ptr<Object>> objects_;
  std::unordered_map<std::string_view, std::unique_ptr<Slot>> slots_;  // by fragment id
  std::atomic<uint64_t> bytes_uploaded_{0};
  std::atomic<uint64_t> bytes_compared_{0};
};

}  // namespace mooncake::client
