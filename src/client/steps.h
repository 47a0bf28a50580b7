// The steps of an import and of a load, by name: what a StepObserver is told, in this order.
//
// An observer is called when the step is done and before anything of the next one happens, so that
// a process which ends inside it leaves exactly the steps up to there.
#pragma once

#include <string_view>

namespace mooncake::client {

namespace import_step {
inline constexpr std::string_view kBegun = "import.begun";      // the session is durable
inline constexpr std::string_view kLocated = "import.located";  // extents and grants are known
inline constexpr std::string_view kArenaOpened = "import.arena_opened";  // each arena
inline constexpr std::string_view kFragmentPut = "import.fragment_put";  // each wanted fragment
inline constexpr std::string_view kDigestsWritten = "import.digests_written";    // each participant
inline constexpr std::string_view kReceiptAccepted = "import.receipt_accepted";  // each participant
inline constexpr std::string_view kReplicasCompared =
    "import.replicas_compared";  // if there are any
inline constexpr std::string_view kManifestWritten = "import.manifest_written";
inline constexpr std::string_view kAffinityWritten = "import.affinity_written";
inline constexpr std::string_view kSealed = "import.sealed";        // each node
inline constexpr std::string_view kCommitted = "import.committed";  // READY is durable
}  // namespace import_step

namespace load_step {
inline constexpr std::string_view kLeased = "load.leased";
inline constexpr std::string_view kManifestRead = "load.manifest_read";
inline constexpr std::string_view kPlanned = "load.planned";           // bindings are checked too
inline constexpr std::string_view kLocated = "load.located";           // extents, grants, digests
inline constexpr std::string_view kGroupCopied = "load.group_copied";  // each group of arenas
inline constexpr std::string_view kCopied = "load.copied";
inline constexpr std::string_view kLeaseChecked = "load.lease_checked";
inline constexpr std::string_view kReleased = "load.released";
}  // namespace load_step

}  // namespace mooncake::client
