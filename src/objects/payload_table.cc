#include "objects/payload_table.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace mooncake::objects {
namespace {

size_t HashOf(std::string_view name) { return std::hash<std::string_view>()(name); }

}  // namespace

void PayloadTable::Append(const std::vector<NewRow>& rows) {
  if (rows.empty()) return;
  MC_CHECK(rows.size() < kRemoved - row_count_);
  size_t name_bytes = 0;
  for (const NewRow& row : rows) name_bytes += row.name.size();
  MC_CHECK(name_bytes <= UINT32_MAX);

  Block& block = blocks_.emplace_back();
  block.first_row = row_count_;
  block.rows.reserve(rows.size());
  block.names.reserve(name_bytes);
  for (const NewRow& row : rows) {
    Row& added = block.rows.emplace_back(row.row);
    added.name_begin = static_cast<uint32_t>(block.names.size());
    block.names += row.name;
    live_bytes_ += added.bytes;
  }
  const auto added = static_cast<uint32_t>(rows.size());
  row_count_ += added;
  live_count_ += added;

  // At most two thirds full.
  const size_t wanted = static_cast<size_t>(row_count_) + row_count_ / 2 + 1;
  if (wanted > slots_.size()) {
    size_t slots = 16;
    while (slots < wanted) slots *= 2;
    Reindex(slots);
  } else {
    for (uint32_t number = row_count_ - added; number < row_count_; ++number) Index(number);
  }
}

void PayloadTable::Reindex(size_t slots) {
  slots_.assign(slots, 0);
  slots_.shrink_to_fit();
  for (uint32_t number = 0; number < row_count_; ++number) Index(number);
}

void PayloadTable::Index(uint32_t number) {
  const size_t mask = slots_.size() - 1;
  size_t slot = HashOf(name(number)) & mask;
  while (slots_[slot] != 0) slot = (slot + 1) & mask;
  slots_[slot] = number + 1;
}

std::optional<uint32_t> PayloadTable::Find(std::string_view wanted) const {
  if (slots_.empty()) return std::nullopt;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = HashOf(wanted) & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const uint32_t number = slots_[slot] - 1;
    if (name(number) == wanted) {
      if (row(number).arena == kRemoved) return std::nullopt;
      return number;
    }
  }
  return std::nullopt;
}

size_t PayloadTable::BlockIndexOf(uint32_t number) const {
  MC_CHECK(number < row_count_);
  const auto after =
      std::upper_bound(blocks_.begin(), blocks_.end(), number,
                       [](uint32_t n, const Block& block) { return n < block.first_row; });
  return static_cast<size_t>(std::prev(after) - blocks_.begin());
}

const PayloadTable::Row& PayloadTable::row(uint32_t number) const {
  const Block& block = BlockOf(number);
  return block.rows[number - block.first_row];
}

std::string_view PayloadTable::name(uint32_t number) const {
  const Block& block = BlockOf(number);
  const size_t index = number - block.first_row;
  const size_t begin = block.rows[index].name_begin;
  const size_t end =
      index + 1 < block.rows.size() ? block.rows[index + 1].name_begin : block.names.size();
  return std::string_view(block.names).substr(begin, end - begin);
}

void PayloadTable::Remove(uint32_t number) {
  Block& block = blocks_[BlockIndexOf(number)];
  Row& row = block.rows[number - block.first_row];
  MC_CHECK(row.arena != kRemoved);
  live_count_ -= 1;
  live_bytes_ -= row.bytes;
  row.arena = kRemoved;
  while (first_live_ < row_count_ && this->row(first_live_).arena == kRemoved) ++first_live_;
}

std::pair<uint32_t, uint32_t> PayloadTable::RowsOf(uint32_t participant) const {
  for (const Block& block : blocks_) {
    if (block.rows.front().participant != participant) continue;
    return {block.first_row, block.first_row + static_cast<uint32_t>(block.rows.size())};
  }
  return {0, 0};
}

bool PayloadTable::HasParticipant(uint32_t participant) const {
  const auto [first, last] = RowsOf(participant);
  return first != last;
}

}  // namespace mooncake::objects
