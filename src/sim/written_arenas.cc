#include "sim/written_arenas.h"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "mooncake/v1/node.pb.h"

namespace mooncake::sim {

WrittenArenas::WrittenArenas(SimCluster& cluster) : cluster_(cluster) {
  cluster.network().on_descriptor = [this](const std::string&, const std::string& message, int fd) {
    v1::NodeRequest request;
    if (!request.ParseFromString(message)) return;
    const v1::Grant& grant = request.open_arena().grant();
    if (grant.access() != v1::ACCESS_WRITE) return;
    by_arena_[grant.arena_id()] = env::UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  };
}

bool WrittenArenas::FlipBit() {
  const std::shared_ptr<master::Master> master = cluster_.master();
  if (master == nullptr) return false;
  struct Place {
    int fd = -1;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  std::vector<Place> places;
  const objects::Catalog& objects = master->state().objects;
  for (const auto& [id, revision] : master->state().weights.revisions()) {
    if (revision.availability != model::Availability::kReady) continue;
    const objects::Group* group = objects.FindGroup(id);
    for (uint32_t number = 0; group != nullptr && number < group->payloads.row_count(); ++number) {
      const objects::PayloadTable::Row& row = group->payloads.row(number);
      if (row.arena == objects::PayloadTable::kRemoved || row.bytes == 0) continue;
      const auto found = by_arena_.find(group->arenas[row.arena].value);
      if (found != by_arena_.end()) places.push_back({found->second.get(), row.offset, row.bytes});
    }
  }
  if (places.empty()) return false;
  Dice& dice = cluster_.simulation().dice();
  const Place& place = dice.Pick(places);
  const auto at = static_cast<off_t>(place.offset + dice.Below(place.bytes));
  char byte = 0;
  if (::pread(place.fd, &byte, 1, at) != 1) return false;
  byte = static_cast<char>(byte ^ (1 << dice.Below(8)));
  return ::pwrite(place.fd, &byte, 1, at) == 1;
}

}  // namespace mooncake::sim
