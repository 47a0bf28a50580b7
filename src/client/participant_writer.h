// One participant's half of a publish: its wanted fragments, copied into the store (or only
// fingerprinted), and the digests object that proves them.
//
// Each wanted fragment is put once; a large one is written in one fused copy-and-digest pass into
// its own object, small ones go into the participant's pack. Threads: every method from any thread;
// Digests after the last Put.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "client/digests.h"
#include "client/pack_writer.h"
#include "client/session.h"
#include "client/write_arenas.h"
#include "env/sync.h"
#include "reshard/upload_plan.h"

namespace mooncake::client {

class ParticipantWriter {
 public:
  // `participant`: index into the plan's participants. `arenas` null: only fingerprints are made.
  ParticipantWriter(const reshard::UploadPlan& plan, uint32_t participant, WriteArenas* arenas);

  const std::string& participant_id() const {
    return plan_.participants[participant_].participant_id;
  }
  uint32_t participant() const { return participant_; }
  bool uploads() const { return arenas_ != nullptr; }
  // Fragment ids, sorted.
  std::vector<std::string> Wanted() const;

  // A fragment that is not wanted is checked and ignored. INVALID_ARGUMENT: not this participant's
  // fragment, wrong size or strides. CONFLICT: put before.
  Status Put(std::string_view placement_fragment_id, const FragmentSource& source,
             Session& session);

  // Tensor ids of wanted fragments that were not put, sorted.
  std::vector<std::string> Missing() const;
  uint64_t bytes_done() const { return bytes_done_.load(std::memory_order_relaxed); }

  // The digests object; everything wanted has been put.
  std::string Digests() const;

 private:
  enum SlotState : uint8_t { kMissing, kBusy, kDone };
  struct Object {
    uint32_t planned = 0;              // index into the plan's objects
    bool packed = false;               // several fragments; else one that is the whole object
    std::vector<BlockDigest> digests;  // of a whole one
    env::Mutex opening;
    std::unique_ptr<PackWriter> pack;  // made under `opening`
    bool closed = false;               // under `opening`
  };
  struct Slot {
    const manifest::PlacementFragment* fragment = nullptr;
    Object* object = nullptr;
    uint64_t offset = 0;  // in the object
    std::atomic<uint8_t> state{kMissing};
  };

  Status Write(Slot& slot, const transfer::StridedSource& source, Session& session);
  Status WriteWhole(Object& object, const transfer::StridedSource& source, Session& session);
  Status WritePacked(Object& object, uint64_t offset, uint64_t nbytes,
                     const transfer::StridedSource& source, Session& session);
  Result<PackWriter*> OpenPack(Object& object, Session& session);
  // Where the object is written; null when nothing is.
  Result<std::byte*> Target(const Object& object, Session& session);

  const reshard::UploadPlan& plan_;
  const uint32_t participant_;
  WriteArenas* const arenas_;
  std::vector<std::unique_ptr<Object>> objects_;
  std::unordered_map<std::string_view, std::unique_ptr<Slot>> slots_;  // by fragment id
  std::atomic<uint64_t> bytes_done_{0};
};

}  // namespace mooncake::client
