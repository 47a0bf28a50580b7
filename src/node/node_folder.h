// The small files of a node's folder that say whose it is: node_id, instance_id, cluster_id
// (docs/formats/node_folder.md).
//
// Free functions. An id once written never changes; a damaged one, or one that is missing beside
// data that was kept under it, is CORRUPT: a new id would give the data up.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/status.h"

namespace mooncake::node {

inline constexpr char kNodeIdFile[] = "node_id";
inline constexpr char kInstanceIdFile[] = "instance_id";
inline constexpr char kClusterIdFile[] = "cluster_id";
inline constexpr char kArenasFolder[] = "arenas";
inline constexpr char kSlabsFolder[] = "slabs";
inline constexpr char kMetadataFolder[] = "metadata";
inline constexpr char kQuarantineFolder[] = "quarantine";

// What a folder says of itself.
struct NodeFolderView {
  std::optional<std::string> cluster_id;  // absent: not of any cluster yet, or older than the file
  std::set<uint64_t> import_ids;          // of which anything is there

  bool empty() const { return !cluster_id && import_ids.empty(); }
};

// Changes nothing. A folder that does not exist is empty.
Result<NodeFolderView> PeekNodeFolder(const std::string& folder);

// The id in `folder`/`file`; absent when there is no such file. CORRUPT, naming the file, unless it
// is one line of 1 to 128 bytes of UTF-8 without control characters.
Result<std::optional<std::string>> ReadId(const std::string& folder, const std::string& file);
// Durable when OK. INVALID_ARGUMENT: no id that ReadId would take.
Status WriteId(const std::string& folder, const std::string& file, const std::string& id);

}  // namespace mooncake::node
