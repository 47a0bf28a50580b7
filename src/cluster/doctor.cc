#include "cluster/doctor.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "cluster/embedded_store.h"
#include "env/file.h"
#include "env/folder_lock.h"
#include "master/recovery.h"
#include "master/snapshot.h"
#include "model/identity.h"
#include "model/states.h"
#include "node/metadata_file.h"
#include "node/node_folder.h"
#include "node/slab_table.h"
#include "oplog/sqlite_log.h"

namespace mooncake::cluster {
namespace {

constexpr char kRestore[] =
    "put a copy of the folder from before the damage back, whole (log.db with its log.db-wal); "
    "nothing repairs this in place";

bool Exists(const std::string& path) {
  const Result<bool> exists = env::PathExists(path);
  return exists.ok() && *exists;
}

// Of a revision that can be loaded: everything of it has been written and synced.
bool IsPublished(const master::ReplicatedState& state, model::ImportId id) {
  const auto* revision = state.weights.FindImport(id);
  return revision != nullptr && model::IsDiscoverable(revision->availability);
}

std::optional<uint64_t> SizeOf(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? std::nullopt : std::optional<uint64_t>(bytes);
}

// Sequences; both 0 of an empty log.
struct LogRange {
  uint64_t first = 0;
  uint64_t last = 0;
};

// What a Master's folder holds, as far as it can be read.
struct MasterView {
  std::optional<std::string> cluster_id;
  std::optional<master::ReplicatedState> state;
};

class Examination {
 public:
  explicit Examination(std::vector<Finding>* findings) : findings_(findings) {}

  void Lock(const std::string& folder);
  MasterView Master(const std::string& folder);
  // `master`: of the same store; null: it is elsewhere.
  void Node(const std::string& folder, const MasterView* master);

 private:
  void Add(Severity severity, std::string what, std::string where, std::string advice = "") {
    findings_->push_back({severity, std::move(what), std::move(where), std::move(advice)});
  }
  // `log`: null where it cannot be read.
  void Snapshots(const std::string& folder, const LogRange* log);
  void Snapshot(oplog::SnapshotStore& snapshots, uint64_t sequence, const LogRange* log);
  void Reserve(const std::string& path);
  // Nothing when the folder is not there or cannot be listed, which is then a finding.
  std::vector<std::string> List(const std::string& folder);
  std::optional<std::string> Id(const std::string& folder, const std::string& file);
  void Ids(const std::string& folder, const MasterView* master);
  void Metadata(const std::string& folder);
  void AgainstLog(const std::string& folder, const master::ReplicatedState& state);
  void Arenas(const std::string& folder, const master::ReplicatedState& state,
              const std::string& node_id);

  std::vector<Finding>* findings_;
  bool in_use_ = false;
};

void Examination::Lock(const std::string& folder) {
  const Result<std::optional<std::string>> holder = env::FolderLock::HolderOf(folder);
  if (!holder.ok()) {
    Add(Severity::kWarning, "whether it is in use is unknown: " + holder.status().message(),
        folder);
  } else if (*holder) {
    in_use_ = true;
    Add(Severity::kNote,
        "in use by process " + **holder +
            ": log, snapshots and METADATA files are checked, what the node holds is not compared "
            "with the log",
        folder, "run this again when the process has ended, for the whole check");
  } else {
    Add(Severity::kOk, "no process has it open", folder);
  }
}

MasterView Examination::Master(const std::string& folder) {
  MasterView view;
  const std::string path = folder + "/" + kLogFile;
  const auto opened = oplog::SqliteLog::Open(path, {.read_only = true, .create = false});
  if (!opened.ok()) {
    Add(Severity::kError, "the log cannot be read: " + opened.status().message(), path, kRestore);
    Snapshots(folder, nullptr);
    return view;
  }
  oplog::SqliteLog& log = **opened;
  const auto cluster_id = master::ReadClusterId(log);
  const auto first = log.FirstSequence();
  const auto last = log.LastSequence();
  if (!cluster_id.ok() || !first.ok() || !last.ok()) {
    Add(Severity::kError, "the log cannot be read", path, kRestore);
    return view;
  }
  view.cluster_id = *cluster_id;
  const std::string of = "cluster " + view.cluster_id.value_or("(none yet)");
  Add(Severity::kOk,
      *last == 0
          ? fmt::format("the log of {} is empty", of)
          : fmt::format("the log of {} is whole: sequences {} to {}, no hole, every checksum "
                        "holds",
                        of, *first, *last),
      path);
  if (const auto bytes = SizeOf(path + "-wal"); bytes && *bytes > 0) {
    Add(Severity::kNote, fmt::format("{} bytes of the log are in its write-ahead file", *bytes),
        path + "-wal", "copy it together with log.db, or not at all");
  }
  Reserve(path + "-reserve");
  const LogRange range{*first, *last};
  Snapshots(folder, &range);
  oplog::FolderSnapshots snapshots(folder + "/snapshots");
  Result<master::ReplicatedState> state = master::Replay(log, &snapshots);
  if (!state.ok()) {
    Add(Severity::kError, "a Master would not start: " + state.status().message(), folder,
        kRestore);
    return view;
  }
  Add(Severity::kOk,
      fmt::format("the state after sequence {} (term {}) agrees with itself: {} nodes, {} "
                  "revisions (deleted ones too), {} payloads, {} leases",
                  state->sequence, state->term, state->objects.nodes().size(),
                  state->weights.revisions().size(), state->objects.payload_count(),
                  state->weights.leases().size()),
      folder);
  view.state = *std::move(state);
  return view;
}

void Examination::Reserve(const std::string& path) {
  const std::optional<uint64_t> bytes = SizeOf(path);
  const uint64_t wanted = oplog::SqliteLogOptions{}.reserve_bytes;
  if (bytes && *bytes >= wanted) {
    Add(Severity::kOk, fmt::format("{} bytes of disk are kept in reserve", *bytes), path);
    return;
  }
  Add(Severity::kNote,
      fmt::format("expected a reserve of {} bytes, got {}: the disk was full, or no Master has "
                  "opened the log here",
                  wanted, bytes.value_or(0)),
      path, "make room on the disk; the next start takes it again");
}

void Examination::Snapshots(const std::string& folder, const LogRange* log) {
  oplog::FolderSnapshots snapshots(folder + "/snapshots");
  const Result<std::vector<uint64_t>> sequences = snapshots.List();
  if (!sequences.ok()) {
    Add(Severity::kError, "cannot be listed: " + sequences.status().message(),
        folder + "/snapshots");
    return;
  }
  if (sequences->empty()) Add(Severity::kOk, "no snapshots yet", folder + "/snapshots");
  for (const uint64_t sequence : *sequences) Snapshot(snapshots, sequence, log);
}

void Examination::Snapshot(oplog::SnapshotStore& snapshots, uint64_t sequence,
                           const LogRange* log) {
  const std::string path = snapshots.Describe(sequence);
  const Result<std::string> file = snapshots.Read(sequence);
  if (const Status whole = file.ok() ? master::CheckSnapshot(*file) : file.status(); !whole.ok()) {
    Add(Severity::kWarning, "the snapshot is damaged: " + whole.message(), path,
        "a start passes it over where an older one and the log hold the rest; remove it once a "
        "newer one is there");
    return;
  }
  const auto decoded = master::DecodeSnapshot(*file);
  if (!decoded.ok()) {
    Add(Severity::kError, "the snapshot is whole and yet no state: " + decoded.status().message(),
        path, "read it with the build that wrote it");
    return;
  }
  const uint64_t held = decoded->header.sequence();
  if (log == nullptr) {
    Add(Severity::kNote,
        fmt::format("the snapshot is whole: the state after sequence {}; no log to compare it with",
                    held),
        path);
    return;
  }
  if (held != sequence || log->first > held + 1 || log->last < held) {
    Add(Severity::kError,
        fmt::format("the log does not continue the snapshot: it holds the state after sequence {}, "
                    "the log has {} to {}",
                    held, log->first, log->last),
        path, kRestore);
    return;
  }
  Add(Severity::kOk,
      fmt::format("the snapshot is whole: the state after sequence {}, and the log continues it",
                  held),
      path);
}

std::vector<std::string> Examination::List(const std::string& folder) {
  Result<std::vector<std::string>> names = env::ListFolder(folder);
  if (names.ok()) return *std::move(names);
  if (names.status().code() != Code::kNotFound) {
    Add(Severity::kError, "cannot be listed: " + names.status().message(), folder);
  }
  return {};
}

std::optional<std::string> Examination::Id(const std::string& folder, const std::string& file) {
  Result<std::optional<std::string>> id = node::ReadId(folder, file);
  if (id.ok()) return *std::move(id);
  Add(Severity::kError, file + " is damaged: " + id.status().message(), folder + "/" + file,
      "write the id that the folder had: a copy, or the Master's list of nodes, has it");
  return std::nullopt;
}

void Examination::Ids(const std::string& folder, const MasterView* master) {
  const Result<node::NodeFolderView> held = node::PeekNodeFolder(folder);
  const bool has_data = held.ok() && !held->import_ids.empty();
  const bool durable = !List(folder + "/" + node::kArenasFolder).empty();
  const auto missing = [&](const char* file, bool needed) {
    if (Exists(folder + "/" + file)) return;
    Add(needed ? Severity::kError : Severity::kNote,
        std::string(file) + (needed ? " is missing beside data" : " is not there (yet)"),
        folder + "/" + file,
        needed ? "write the id that the folder had: a copy, or the Master's list of nodes, has it"
               : "");
  };
  missing(node::kNodeIdFile, has_data);
  if (durable) missing(node::kInstanceIdFile, true);
  missing(node::kClusterIdFile, false);
  const std::optional<std::string> node_id = Id(folder, node::kNodeIdFile);
  const std::optional<std::string> cluster_id = Id(folder, node::kClusterIdFile);
  (void)Id(folder, node::kInstanceIdFile);
  if (node_id) {
    Add(Severity::kOk,
        fmt::format("node {} of cluster {}", *node_id, cluster_id.value_or("(none yet)")), folder);
  }
  if (master != nullptr && cluster_id && master->cluster_id && *cluster_id != *master->cluster_id) {
    Add(Severity::kError,
        fmt::format("the node's data is of cluster {}, the log of cluster {}", *cluster_id,
                    *master->cluster_id),
        folder + "/" + node::kClusterIdFile,
        "put the log of the node's cluster back, or move the node's folder away to give its data "
        "up");
  }
}

void Examination::Metadata(const std::string& folder) {
  const std::string root = folder + "/" + node::kMetadataFolder;
  size_t whole = 0;
  size_t sealed = 0;
  const std::vector<std::string> imports = List(root);
  for (const std::string& import : imports) {
    for (const std::string& name : List(root + "/" + import)) {
      const std::string path = root + "/" + import + "/" + name;
      if (name == ".sealed") ++sealed;
      if (name.starts_with(env::kTemporaryPrefix)) {
        Add(Severity::kNote, "a write that a crash cut short", path, "the next start removes it");
      }
      if (name.starts_with('.')) continue;
      const Result<std::string> bytes = env::ReadFile(path);
      const Status status =
          bytes.ok() ? node::DecodeMetadataFile(name, *bytes).status() : bytes.status();
      if (status.ok()) {
        ++whole;
      } else {
        Add(Severity::kError, "a METADATA file is damaged: " + status.message(), path,
            "put a copy of it back before the next start, which moves it to quarantine/ and makes "
            "its revision DEGRADED; or publish the revision again");
      }
    }
  }
  Add(Severity::kOk,
      fmt::format("{} METADATA files are whole, of {} imports ({} sealed)", whole, imports.size(),
                  sealed),
      root);
  for (const std::string& name : List(folder + "/" + node::kQuarantineFolder)) {
    Add(Severity::kWarning, "a METADATA file failed its check at an earlier start",
        folder + "/" + node::kQuarantineFolder + "/" + name,
        "its revision is DEGRADED: publish it again, and remove this file");
  }
}

void Examination::Arenas(const std::string& folder, const master::ReplicatedState& state,
                         const std::string& node_id) {
  size_t agreeing = 0;
  const size_t before = findings_->size();
  for (const auto& [id, arena] : state.objects.arenas()) {
    const auto& owner = state.objects.node(arena.node);
    if (owner.address.node_id != node_id || !owner.durable_arenas) continue;
    // Made when it is first written; one that is being given up may be gone already.
    const bool needed = IsPublished(state, arena.import_id);
    const std::string path =
        fmt::format("{}/{}/{}/{}", folder, node::kArenasFolder, arena.import_id.value, id.value);
    const std::optional<uint64_t> bytes = SizeOf(path);
    if (!bytes && !needed) continue;
    if (bytes == arena.bytes) {
      ++agreeing;
      continue;
    }
    Add(Severity::kError,
        bytes ? fmt::format("an arena of {} bytes is expected, it has {}", arena.bytes, *bytes)
              : fmt::format("an arena of {} bytes is missing", arena.bytes),
        path, "its revision cannot be read: put a copy of it back, or publish the revision again");
  }
  if (findings_->size() == before) {
    Add(Severity::kOk, fmt::format("{} arenas have the sizes that the log says", agreeing),
        folder + "/" + node::kArenasFolder);
  }
}

void Examination::AgainstLog(const std::string& folder, const master::ReplicatedState& state) {
  const Result<node::NodeFolderView> held = node::PeekNodeFolder(folder);
  const auto node_id = node::ReadId(folder, node::kNodeIdFile);
  if (!held.ok() || !node_id.ok() || !*node_id) return;  // a finding already
  for (const uint64_t id : held->import_ids) {
    if (id == node::kSlabImport) continue;  // slabs of ordinary objects
    const std::string path = fmt::format("{}/{}/{}", folder, node::kMetadataFolder, id);
    if (id >= state.weights.next_import_id().value) {
      Add(Severity::kError,
          fmt::format("import {} is of the future: the log's next one is {}, so it is an older "
                      "copy",
                      id, state.weights.next_import_id().value),
          path, "put the newest log back; a start over this one would be refused");
    } else if (state.objects.FindGroup(model::ImportId(id)) == nullptr) {
      Add(Severity::kNote, fmt::format("the log no longer knows import {}", id), path,
          "nothing: the node drops it at its next report");
    }
  }
  for (const auto& [id, group] : state.objects.groups()) {
    if (group.removed) continue;
    for (const auto& object : group.metadata) {
      const std::string path = fmt::format("{}/{}/{}/{}", folder, node::kMetadataFolder, id.value,
                                           node::MetadataFileName(object.name));
      if (object.node_id != **node_id || Exists(path)) continue;
      Add(Severity::kError, "the METADATA object " + object.name + " is missing", path,
          "put a copy of it back, or publish its revision again");
    }
  }
  Arenas(folder, state, **node_id);
}

void Examination::Node(const std::string& folder, const MasterView* master) {
  Ids(folder, master);
  Metadata(folder);
  if (master != nullptr && master->state && !in_use_) AgainstLog(folder, *master->state);
}

bool LooksLikeMaster(const std::string& folder) {
  return Exists(folder + "/" + kLogFile) || Exists(folder + "/" + kLogFile + "-reserve") ||
         Exists(folder + "/snapshots");
}

bool LooksLikeNode(const std::string& folder) {
  return Exists(folder + "/" + node::kNodeIdFile) || Exists(folder + "/" + node::kClusterIdFile) ||
         Exists(folder + "/" + node::kMetadataFolder);
}

}  // namespace

std::string_view Name(Severity severity) {
  constexpr std::string_view kNames[] = {"ok", "note", "warning", "error"};
  return kNames[static_cast<int>(severity)];
}

Result<FolderReport> ExamineFolder(const std::string& folder) {
  FolderReport report;
  Examination examination(&report.findings);
  const std::string master = folder + "/" + kMasterFolder;
  const std::string node = folder + "/" + kNodeFolder;
  if (LooksLikeMaster(folder)) {
    report.kind = "Master folder";
    examination.Lock(folder);
    examination.Master(folder);
  } else if (LooksLikeNode(folder)) {
    report.kind = "node folder";
    examination.Lock(folder);
    examination.Node(folder, nullptr);
  } else if (Exists(master) || Exists(node)) {
    report.kind = "embedded store";
    examination.Lock(folder);
    const MasterView view = examination.Master(master);
    examination.Node(node, &view);
  } else {
    return InvalidArgument(folder + " is no folder of a Master, a node or an embedded store");
  }
  return report;
}

}  // namespace mooncake::cluster
