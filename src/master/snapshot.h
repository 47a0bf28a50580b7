// A ReplicatedState as the bytes of a snapshot, and back (docs/formats/snapshot.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "master/replicated_state.h"
#include "mooncake/v1/snapshot.pb.h"
#include "oplog/snapshot_store.h"

namespace mooncake::master {

// The schema of snapshot records that this build writes and understands.
inline constexpr uint32_t kSnapshotVersion = 1;

// Names of its sections.
inline constexpr std::string_view kSnapshotHeader = "header";
inline constexpr std::string_view kSnapshotObjects = "objects";
inline constexpr std::string_view kSnapshotWeights = "weight_metadata";
inline constexpr std::string_view kSnapshotPool = "pool";  // ordinary objects; absent: none
inline constexpr std::string_view kSnapshotCommands = "commands";

std::string EncodeSnapshot(const ReplicatedState& state, const std::string& cluster_id);

struct DecodedSnapshot {
  v1::SnapshotHeader header;
  ReplicatedState state;
};

// Restores the state and compares it with the header: its counts, its digest, its invariants. A
// section "weight_metadata" that is absent means that there are no weights. CORRUPT, UNSUPPORTED.
Result<DecodedSnapshot> DecodeSnapshot(std::string_view file);

// Whether its frames and checksums hold, whatever they hold. CORRUPT.
Status CheckSnapshot(std::string_view file);

// The newest snapshot that can be read, restored; nullopt: there is none. One that was damaged on
// its way (its frames or checksums do not hold) is passed over with a warning, since the log still
// holds what came after the one before. One that is whole and yet does not make a state was written
// wrong or by a newer build: CORRUPT or UNSUPPORTED with its name.
Result<std::optional<DecodedSnapshot>> LoadNewestSnapshot(oplog::SnapshotStore& snapshots);

}  // namespace mooncake::master
