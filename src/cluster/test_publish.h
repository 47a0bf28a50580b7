// Publishing and loading the test model, with the element oracle as content and judge. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/store_client.h"
#include "cluster/test_layouts.h"
#include "manifest/lookup.h"
#include "reshard/element_oracle.h"

namespace mooncake::cluster {

// The fragment's content; `flavour` other than 0 is somebody else's model of the same shape.
inline reshard::Bytes Content(const manifest::Placement& placement,
                              const manifest::PlacementFragment& fragment, uint8_t flavour = 0) {
  const auto* tensor = manifest::FindTensor(placement.tensors, fragment.tensor_id);
  reshard::Bytes bytes = reshard::CutBox(*tensor, fragment.global_offset, fragment.local_shape);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(byte ^ flavour);
  return bytes;
}

// Puts everything of `participants`, from `threads` threads.
inline Status PutAll(client::Importer& importer, const manifest::Placement& placement,
                     const std::vector<std::string>& participants, int threads = 1,
                     uint8_t flavour = 0) {
  struct Job {
    const std::string* participant;
    const manifest::PlacementFragment* fragment;
  };
  std::vector<Job> jobs;
  for (const std::string& participant : participants) {
    for (const auto& fragment : manifest::FindPart(placement, participant)->fragments) {
      jobs.push_back({&participant, &fragment});
    }
  }
  std::atomic<size_t> next{0};
  std::vector<Status> results(static_cast<size_t>(threads));
  {
    std::vector<std::jthread> workers;
    workers.reserve(static_cast<size_t>(threads));
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        for (size_t i = next++; i < jobs.size() && results[t].ok(); i = next++) {
          const reshard::Bytes bytes = Content(placement, *jobs[i].fragment, flavour);
          results[t] =
              importer.PutFragment(*jobs[i].participant, jobs[i].fragment->placement_fragment_id,
                                   {bytes.data(), bytes.size(), {}});
        }
      });
    }
  }
  for (const Status& status : results) MC_RETURN_IF_ERROR(status);
  return OkStatus();
}

struct PublishOptions {
  std::vector<std::string> participants;  // empty: all
  int threads = 1;
  uint8_t flavour = 0;
};

// One client publishes all it is told to. The importer is destroyed whatever happens.
inline Result<client::ImportReport> Publish(client::StoreClient& client,
                                            const model::WeightIdentity& identity,
                                            const manifest::PlacementPtr& placement,
                                            const PublishOptions& options = {}) {
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<client::Importer> importer,
                      client.BeginImport({identity, placement, options.participants, {}}));
  MC_RETURN_IF_ERROR(
      PutAll(*importer, *placement, importer->participants(), options.threads, options.flavour));
  return importer->Finish({.timeout_ms = 60'000, .cancel = {}, .keep_waiting = {}});
}

// Memory of one rank of a target layout, and what it should hold.
class TargetMemory {
 public:
  TargetMemory(manifest::PlacementPtr placement, const std::string& participant)
      : placement_(std::move(placement)),
        part_(manifest::FindPart(*placement_, participant)),
        memory_(reshard::BindMemory(*placement_, *part_)) {}

  client::LoadTarget target() const { return {placement_, memory_.binding}; }
  // Empty when every byte is right; else the first tensor that is wrong.
  std::string WhatIsWrong(uint8_t flavour = 0) const {
    for (size_t f = 0; f < part_->fragments.size(); ++f) {
      if (memory_.buffers[f] != Content(*placement_, part_->fragments[f], flavour)) {
        return part_->fragments[f].tensor_id + " of " + part_->participant_id;
      }
    }
    return "";
  }
  bool Untouched() const {
    for (const reshard::Bytes& buffer : memory_.buffers) {
      for (const uint8_t byte : buffer) {
        if (byte != 0xee) return false;
      }
    }
    return true;
  }
  uint64_t nbytes() const {
    uint64_t bytes = 0;
    for (const reshard::Bytes& buffer : memory_.buffers) bytes += buffer.size();
    return bytes;
  }

 private:
  const manifest::PlacementPtr placement_;
  const manifest::PlacementPart* const part_;
  const reshard::BoundMemory memory_;
};

inline std::vector<std::string> RanksOf(const manifest::Placement& placement) {
  std::vector<std::string> ranks;
  for (const auto& part : placement.parts) ranks.push_back(part.participant_id);
  return ranks;
}

// Every rank of `target` loads alone and must hold the right bytes.
inline void LoadEveryRank(client::StoreClient& client, const model::WeightIdentity& identity,
                          const manifest::PlacementPtr& target, uint8_t flavour = 0) {
  for (const std::string& rank : RanksOf(*target)) {
    const TargetMemory memory(target, rank);
    const auto report = client.Load(identity, {memory.target()});
    ASSERT_TRUE(report.ok()) << rank << ": " << report.status().ToString();
    EXPECT_EQ(memory.WhatIsWrong(flavour), "");
    EXPECT_EQ(report->bytes_needed, memory.nbytes());
    EXPECT_EQ(report->bytes_moved, memory.nbytes());
    EXPECT_GE(report->bytes_verified, report->bytes_moved);
  }
}

}  // namespace mooncake::cluster
