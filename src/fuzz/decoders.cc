#include "fuzz/decoders.h"

#include <array>

namespace mooncake::fuzz {

std::span<const Decoder> Decoders() {
  static constexpr std::array kDecoders = {
      Decoder{"digests_object", &FeedDigestsObject, &DigestsObjectSeeds},
      Decoder{"log_records", &FeedLogRecords, &LogRecordsSeeds},
      Decoder{"master_requests", &FeedMasterRequests, &MasterRequestsSeeds},
      Decoder{"metadata_file", &FeedMetadataFile, &MetadataFileSeeds},
      Decoder{"node_request", &FeedNodeRequest, &NodeRequestSeeds},
      Decoder{"placement_json", &FeedPlacementJson, &PlacementJsonSeeds},
      Decoder{"revision_metadata", &FeedRevisionMetadata, &RevisionMetadataSeeds},
      Decoder{"saved_plan", &FeedSavedPlan, &SavedPlanSeeds},
      Decoder{"slab_file", &FeedSlabFile, &SlabFileSeeds},
      Decoder{"small_texts", &FeedSmallTexts, &SmallTextsSeeds},
      Decoder{"snapshot", &FeedSnapshot, &SnapshotSeeds},
      Decoder{"snapshot_records", &FeedSnapshotRecords, &SnapshotRecordsSeeds},
      Decoder{"stored_manifest_json", &FeedStoredManifestJson, &StoredManifestJsonSeeds},
      Decoder{"token_file", &FeedTokenFile, &TokenFileSeeds},
  };
  return kDecoders;
}

}  // namespace mooncake::fuzz
