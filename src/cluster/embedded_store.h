// A whole store in one process: Master over a SQLite log, one node with durable arenas, and the
// client between them, all in one folder.
//
//   <folder>/LOCK      held while open; another process is told this one's id
//   <folder>/master/   log.db
//   <folder>/node/     METADATA objects and arenas
//
// Owns its threads (the Master's sequencer, the node's agent, the client's lease keeper) and ends
// them in the order client, agent, Master. Closing it loses nothing that was acknowledged.
#pragma once

#include <memory>
#include <string>

#include "cluster/open_store.h"

namespace mooncake::cluster {

inline constexpr char kMasterFolder[] = "master";
inline constexpr char kNodeFolder[] = "node";
inline constexpr char kLogFile[] = "log.db";

// CORRUPT, and nothing is changed: the log is gone or of another cluster, and the node's folder has
// data.
Result<std::unique_ptr<OpenedStore>> OpenEmbeddedStore(const std::string& folder,
                                                       const OpenOptions& options);

}  // namespace mooncake::cluster
