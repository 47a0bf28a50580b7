#include "master/snapshot.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/probe.h"
#include "codec/values.h"
#include "objects/snapshot_codec.h"
#include "oplog/snapshot_frames.h"
#include "pool/snapshot_codec.h"
#include "weights/snapshot_codec.h"

namespace mooncake::master {
namespace {

// What the header says beside the digest, so that a difference has a name.
struct Count {
  std::string_view what;
  uint64_t recorded = 0;
  uint64_t restored = 0;
};

v1::SnapshotHeader CountsOf(const ReplicatedState& state) {
  v1::SnapshotHeader header;
  uint64_t payload_bytes = 0;
  for (const auto& [id, group] : state.objects.groups()) {
    payload_bytes += group.payloads.payload_bytes();
  }
  header.set_node_count(state.objects.nodes().size());
  header.set_group_count(state.objects.groups().size());
  header.set_payload_count(state.objects.payload_count());
  header.set_payload_bytes(payload_bytes);
  header.set_metadata_count(state.objects.metadata_count());
  header.set_revision_count(state.weights.revisions().size());
  header.set_lease_count(state.weights.leases().size());
  header.set_outcome_count(state.commands.outcome_count());
  header.set_pool_object_count(state.pool.object_count());
  header.set_pool_bytes(state.pool.used_bytes());
  return header;
}

Status CompareCounts(const v1::SnapshotHeader& header, const ReplicatedState& state) {
  const v1::SnapshotHeader counts = CountsOf(state);
  for (const Count& count : {
           Count{"nodes", header.node_count(), counts.node_count()},
           Count{"groups", header.group_count(), counts.group_count()},
           Count{"payloads", header.payload_count(), counts.payload_count()},
           Count{"payload bytes", header.payload_bytes(), counts.payload_bytes()},
           Count{"METADATA objects", header.metadata_count(), counts.metadata_count()},
           Count{"revisions", header.revision_count(), counts.revision_count()},
           Count{"leases", header.lease_count(), counts.lease_count()},
           Count{"ordinary objects", header.pool_object_count(), counts.pool_object_count()},
           Count{"bytes of ordinary objects", header.pool_bytes(), counts.pool_bytes()},
           Count{"command outcomes", header.outcome_count(), counts.outcome_count()},
       }) {
    if (count.recorded == count.restored) continue;
    return Corrupt(fmt::format("{}: the snapshot says {}, restored were {}", count.what,
                               count.recorded, count.restored));
  }
  return OkStatus();
}

// Takes a snapshot's records apart by section.
class Loader {
 public:
  Status Add(std::string_view section, std::string_view record) {
    if (section == kSnapshotHeader) return LoadHeader(record);
    if (!has_header_) return Corrupt(fmt::format("section {} comes before the header", section));
    if (section == kSnapshotObjects) return objects_.Add(record).WithContext(kSnapshotObjects);
    if (section == kSnapshotWeights) return weights_.Add(record).WithContext(kSnapshotWeights);
    if (section == kSnapshotPool) return pool_.Add(record).WithContext(kSnapshotPool);
    if (section == kSnapshotCommands)
      return commands_.LoadSnapshot(record).WithContext(kSnapshotCommands);
    return Unsupported(fmt::format("section {} is not known here", section));
  }

  Result<DecodedSnapshot> Finish() {
    if (!has_header_) return Corrupt("it has no header");
    DecodedSnapshot decoded;
    decoded.header = std::move(header_);
    decoded.state.objects = objects_.Take();
    decoded.state.weights = weights_.Take();
    decoded.state.pool = pool_.Take();
    decoded.state.commands = std::move(commands_);
    decoded.state.logged_ms = decoded.header.time_ms();
    decoded.state.sequence = decoded.header.sequence();
    decoded.state.term = decoded.header.term();
    MC_RETURN_IF_ERROR(CompareCounts(decoded.header, decoded.state));
    if (const Status invariants = decoded.state.CheckInvariants(); !invariants.ok()) {
      return Corrupt("the state in it contradicts itself: " + invariants.message());
    }
    const Sha256Digest digest = decoded.state.Digest();
    if (decoded.header.state_sha256() != codec::BytesOf(digest)) {
      return Corrupt(fmt::format("expected a state with sha256 {}, restored was {}",
                                 HexOf(decoded.header.state_sha256()), ToHex(digest)));
    }
    return decoded;
  }

 private:
  Status LoadHeader(std::string_view record) {
    if (has_header_ || !header_.ParseFromArray(record.data(), static_cast<int>(record.size()))) {
      return Corrupt("its header is none, or there are two");
    }
    if (header_.oldest_reader() > kSnapshotVersion) {
      return Unsupported(fmt::format("version {} needs a reader of version {}, this one has {}",
                                     header_.version(), header_.oldest_reader(), kSnapshotVersion));
    }
    has_header_ = true;
    return OkStatus();
  }

  v1::SnapshotHeader header_;
  bool has_header_ = false;
  objects::SnapshotLoader objects_;
  weights::SnapshotLoader weights_;
  pool::SnapshotLoader pool_;
  CommandTable commands_;
};

}  // namespace

std::string EncodeSnapshot(const ReplicatedState& state, const std::string& cluster_id) {
  v1::SnapshotHeader header = CountsOf(state);
  header.set_version(kSnapshotVersion);
  header.set_oldest_reader(kSnapshotVersion);
  header.set_cluster_id(cluster_id);
  header.set_sequence(state.sequence);
  header.set_term(state.term);
  header.set_time_ms(state.logged_ms);
  header.set_state_sha256(codec::BytesOf(state.Digest()));
  oplog::SnapshotBuilder builder;
  builder.Add(kSnapshotHeader, header.SerializeAsString());
  const auto into = [&builder](std::string_view section) {
    return [&builder, section](std::string_view record) { builder.Add(section, record); };
  };
  objects::SaveSnapshot(state.objects, into(kSnapshotObjects));
  weights::SaveSnapshot(state.weights, into(kSnapshotWeights));
  pool::SaveSnapshot(state.pool, into(kSnapshotPool));
  state.commands.SaveSnapshot(into(kSnapshotCommands));
  return builder.Finish();
}

Result<DecodedSnapshot> DecodeSnapshot(std::string_view file) {
  Loader loader;
  MC_RETURN_IF_ERROR(
      oplog::ReadSnapshotFrames(file, [&loader](std::string_view section, std::string_view record) {
        return loader.Add(section, record);
      }));
  return loader.Finish();
}

Status CheckSnapshot(std::string_view file) { return oplog::ReadSnapshotFrames(file, {}); }

Result<std::optional<DecodedSnapshot>> LoadNewestSnapshot(oplog::SnapshotStore& snapshots) {
  MC_ASSIGN_OR_RETURN(const std::vector<uint64_t> sequences, snapshots.List());
  for (auto sequence = sequences.rbegin(); sequence != sequences.rend(); ++sequence) {
    MC_ASSIGN_OR_RETURN(const std::string file, snapshots.Read(*sequence));
    if (const Status whole = CheckSnapshot(file); !whole.ok()) {
      MC_PROBE("master.snapshot_passed_over");
      Log().warn("master: {} is passed over: {}", snapshots.Describe(*sequence), whole.message());
      continue;
    }
    Result<DecodedSnapshot> decoded = DecodeSnapshot(file);
    if (!decoded.ok()) return decoded.status().WithContext(snapshots.Describe(*sequence));
    if (decoded->header.sequence() != *sequence) {
      return Corrupt(fmt::format("{}: it holds the state after log sequence {}",
                                 snapshots.Describe(*sequence), decoded->header.sequence()));
    }
    return std::optional<DecodedSnapshot>(*std::move(decoded));
  }
  return std::optional<DecodedSnapshot>();
}

}  // namespace mooncake::master
