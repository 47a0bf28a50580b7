// The payload objects of one group, compactly: 32 bytes a row, the names of one participant in one
// string, and a hash index of row numbers. About 45 bytes a payload plus its name.
//
// Rows are only added (a participant at a time) and marked removed; row numbers are stable and are
// the canonical order. Single-threaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mooncake::objects {

class PayloadTable {
 public:
  struct Row {
    uint64_t bytes = 0;
    uint64_t offset = 0;  // in the arena
    uint32_t arena = 0;   // index into the group's arenas; kRemoved: gone
    uint32_t participant = 0;
    uint32_t unit = 0;
    uint32_t name_begin = 0;  // in the names of the row's block
  };
  static constexpr uint32_t kRemoved = UINT32_MAX;

  struct NewRow {
    std::string_view name;
    Row row;  // name_begin is set by Append
  };

  // Adds one participant's rows. Names must be new; the caller has checked (Find).
  void Append(const std::vector<NewRow>& rows);

  // Row number of a payload that is not removed.
  std::optional<uint32_t> Find(std::string_view name) const;

  const Row& row(uint32_t number) const;
  std::string_view name(uint32_t number) const;
  void Remove(uint32_t number);

  uint32_t row_count() const { return row_count_; }       // removed ones included
  uint32_t payload_count() const { return live_count_; }  // not removed
  uint64_t payload_bytes() const { return live_bytes_; }
  // No row before this number is live.
  uint32_t first_live() const { return first_live_; }
  bool HasParticipant(uint32_t participant) const;
  // Row numbers [first, last) of the participant; empty when it has none.
  std::pair<uint32_t, uint32_t> RowsOf(uint32_t participant) const;

 private:
  // One Append: its rows and their names, each allocated once at its exact size.
  struct Block {
    uint32_t first_row = 0;
    std::vector<Row> rows;
    std::string names;
  };

  size_t BlockIndexOf(uint32_t number) const;
  const Block& BlockOf(uint32_t number) const { return blocks_[BlockIndexOf(number)]; }
  void Index(uint32_t number);
  void Reindex(size_t slots);

  std::vector<Block> blocks_;
  std::vector<uint32_t> slots_;  // open addressing; row number + 1, 0 is empty; removed rows stay
  uint32_t row_count_ = 0;
  uint32_t live_count_ = 0;
  uint32_t first_live_ = 0;
  uint64_t live_bytes_ = 0;
};

}  // namespace mooncake::objects
