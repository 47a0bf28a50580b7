// Every decoder of bytes that somebody else wrote, as one function a decoder: what the seeded test
// (fuzz_test.cc) and libFuzzer (libfuzzer.cc, ./x fuzz) feed.
//
// A feed takes any bytes whatever and checks what holds for all of them: a value or a refusal with
// the right code, never a crash or unbounded work; what is accepted is canonical, keeps its
// invariants, and survives its own encoding. A violation is a failed CHECK. Feeds leave nothing
// behind that the next one would see.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mooncake::fuzz {

struct Decoder {
  std::string_view name;
  void (*feed)(std::string_view bytes);
  // Whole inputs that are accepted, to begin from.
  std::vector<std::string> (*seeds)();
};

// By name.
std::span<const Decoder> Decoders();

// feed_contracts.cc
void FeedPlacementJson(std::string_view bytes);
std::vector<std::string> PlacementJsonSeeds();
void FeedStoredManifestJson(std::string_view bytes);
std::vector<std::string> StoredManifestJsonSeeds();
void FeedSavedPlan(std::string_view bytes);
std::vector<std::string> SavedPlanSeeds();
void FeedDigestsObject(std::string_view bytes);
std::vector<std::string> DigestsObjectSeeds();

// feed_master.cc: records and requests are framed by FramesOf
void FeedLogRecords(std::string_view bytes);
std::vector<std::string> LogRecordsSeeds();
void FeedSnapshot(std::string_view bytes);
std::vector<std::string> SnapshotSeeds();
void FeedSnapshotRecords(std::string_view bytes);
std::vector<std::string> SnapshotRecordsSeeds();
void FeedMasterRequests(std::string_view bytes);
std::vector<std::string> MasterRequestsSeeds();

// feed_node.cc
void FeedNodeRequest(std::string_view bytes);
std::vector<std::string> NodeRequestSeeds();
void FeedSlabFile(std::string_view bytes);
std::vector<std::string> SlabFileSeeds();
void FeedMetadataFile(std::string_view bytes);
std::vector<std::string> MetadataFileSeeds();

// feed_values.cc: what a client reads from the Master, the small texts, and token files
void FeedRevisionMetadata(std::string_view bytes);
std::vector<std::string> RevisionMetadataSeeds();
void FeedSmallTexts(std::string_view bytes);
std::vector<std::string> SmallTextsSeeds();
void FeedTokenFile(std::string_view bytes);
std::vector<std::string> TokenFileSeeds();

}  // namespace mooncake::fuzz
